"""What readers find: a whole version always, or an error that names a strange link or a damaged history."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from bigsvm.cli.commands.models.history import shown_entry
from bigsvm.errors import DataError
from bigsvm.model import versions as registry
from bigsvm.model.linear_model import load_model
from bigsvm.model.versions.whole_models import check_model
from tests.registry.made import make_model


@pytest.mark.parametrize("target", ["nowhere", "../m", "versions/000007"])
def test_a_strange_link_is_named(tmp_path: Path, target: str) -> None:
    root = tmp_path / "reg"
    registry.promote(root, make_model(tmp_path / "m"))
    (root / "current").unlink()
    (root / "current").symlink_to(target)
    with pytest.raises(DataError):
        registry.current(root)


def test_a_torn_history_line_is_cut_off(tmp_path: Path) -> None:
    root = tmp_path / "reg"
    registry.promote(root, make_model(tmp_path / "a"))
    with open(root / "history.jsonl", "ab") as file:
        file.write(b'{"action": "prom')
    assert len(registry.history(root)) == 1
    registry.promote(root, make_model(tmp_path / "b", 1))
    assert [entry["version"] for entry in registry.history(root)] == [1, 2]
    with open(root / "history.jsonl", "ab") as file:
        file.write(b"nonsense\n")
    with pytest.raises(DataError, match="line 3"):
        registry.history(root)


def test_a_version_is_no_link(tmp_path: Path) -> None:
    """It would change with what lies elsewhere."""
    root = tmp_path / "reg"
    assert registry.promote(root, make_model(tmp_path / "a")) == 1
    assert registry.promote(root, make_model(tmp_path / "b", seed=1)) == 2
    for version in (1, 2):
        folder = root / "versions" / f"{version:06d}"
        folder.rename(tmp_path / "away")
        folder.symlink_to(tmp_path / "away")
        with pytest.raises(DataError, match="the version is a link"):
            registry.current(root) if version == 2 else registry.rollback(root)
        folder.unlink()
        (tmp_path / "away").rename(folder)
    assert registry.rollback(root) == 1


def test_readers_see_one_whole_model_always(tmp_path: Path) -> None:
    root = tmp_path / "reg"
    models = [make_model(tmp_path / f"m{seed}", seed) for seed in range(2)]
    registry.promote(root, models[0])
    weights = [load_model(model).coef for model in models]
    stop, reads, wrong = threading.Event(), [0], []

    def read() -> None:
        while not stop.is_set():
            try:
                where = registry.current(root)
                assert where is not None
                model = load_model(where)
                assert np.array_equal(model.coef, weights[int(model.intercept[0])])
            except Exception as error:
                wrong.append(repr(error))
            reads[0] += 1

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    turns = 0
    while turns < 10 or (reads[0] < 100 and not wrong):
        registry.promote(root, models[turns % 2])
        registry.rollback(root, to=1)
        turns += 1
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert reads[0] >= 100


def test_a_history_with_a_damaged_byte_is_shown_or_refused(tmp_path: Path) -> None:
    root = tmp_path / "reg"
    registry.promote(root, make_model(tmp_path / "a"))
    path = root / "history.jsonl"
    content = path.read_bytes()
    refused = 0
    for place in range(len(content) - 1):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            shown = [shown_entry(entry) for entry in registry.history(root)]
        except DataError as error:
            assert str(path) in str(error)  # noqa: PT017  the others are read in vain
            refused += 1
        else:
            assert len(shown) == 1
    assert refused > 50


@pytest.mark.parametrize("file", ["model.json", "coef.npy", "alpha.npy"])
@pytest.mark.parametrize("n_versions", [0, 1, 2, 3])
@pytest.mark.parametrize("way", ["current", "number", "link"])
def test_a_damaged_version_names_what_can_be_done(tmp_path: Path, way: str, n_versions: int, file: str) -> None:
    """Of the current version, and of one that is not; 0: a model that is in no registry."""
    root, model = tmp_path / "reg", make_model(tmp_path / "m0")
    for seed in range(n_versions):
        registry.promote(root, make_model(tmp_path / f"m{seed + 1}", seed))
    damaged = 2 if n_versions == 3 and way != "current" else n_versions
    folder = root / "versions" / f"{damaged:06d}" if n_versions else model
    for path in (folder, folder / file):
        path.chmod(0o755)
    content = (folder / file).read_bytes()
    path = {"current": root / "current" if n_versions else folder, "number": folder, "link": tmp_path / "link"}[way]
    if way == "link":
        path.symlink_to(folder)
    if n_versions == 0:
        remedy = "restore it, or train again"
    elif damaged != n_versions:
        remedy = f"bigsvm rollback {root} --to N makes another version current, see bigsvm history {root}"
    elif n_versions == 1:
        remedy = f"bigsvm promote {root} MODEL --allow-other-shape makes another model current"
    else:
        remedy = f"bigsvm rollback {root} makes version {n_versions - 1} current"
    for spoilt in (content[:-3] + b"?" + content[-2:], b"", content[: len(content) // 2]):
        (folder / file).write_bytes(spoilt)
        with pytest.raises(DataError) as caught:
            check_model(path)
        assert caught.value.hint == remedy
    if n_versions > 1 and damaged == n_versions:
        assert registry.rollback(root) == n_versions - 1  # as it says
        load_model(root / "current")
