"""Versions whose folders were deleted, by `prune` or by somebody else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bigsvm.errors import DataError
from bigsvm.model import versions as registry
from tests.cli.conftest import Bigsvm, bigsvm
from tests.registry.made import make_model

__all__ = ["bigsvm"]


def test_a_current_version_that_is_gone_is_told_of(bigsvm: Bigsvm, tmp_path: Path) -> None:
    root = tmp_path / "reg"
    bigsvm("promote", root, make_model(tmp_path / "a"), "--note", "first\n  9999  promote 7\r\x1b[2K")
    shutil.rmtree(root / "versions" / "000001")
    said = bigsvm("history", root)
    assert "the current version 1 is missing" in said.err
    assert len(said.out.splitlines()) == 2  # a note is a line
    assert "\x1b" not in said.out
    assert "is missing" in bigsvm("report", root, "--text").out


def lose(root: Path, version: int, how: str) -> None:
    """A version that is gone; what is left of it."""
    folder = root / "versions" / f"{version:06d}"
    if folder.is_dir():
        shutil.rmtree(folder)
    if how == "half":  # a deletion that was cut short
        folder.mkdir()
        (folder / "coef.npy").touch()
    elif how == "link":
        folder.symlink_to("nowhere")


@pytest.mark.parametrize("how", ["gone", "half", "link"])
@pytest.mark.parametrize("lost", ["the newest", "an older one", "not in the history", "never there"])
def test_a_registry_whose_current_version_is_gone_can_be_mended(
    lost: str, how: str, bigsvm: Bigsvm, tmp_path: Path
) -> None:
    root, model, wide = tmp_path / "reg", make_model(tmp_path / "a"), make_model(tmp_path / "wide", n_features=7)
    for _ in range(3):
        registry.promote(root, model)
    version = {"the newest": 3, "an older one": 2, "not in the history": 3, "never there": 9}[lost]
    if lost == "an older one":
        registry.rollback(root)
    elif lost == "not in the history":  # killed between the swap and its line
        lines = (root / "history.jsonl").read_bytes().splitlines(keepends=True)
        (root / "history.jsonl").write_bytes(b"".join(lines[:-1]))
    elif lost == "never there":
        (root / "current").unlink()
        (root / "current").symlink_to("versions/000009")
    lose(root, version, how)
    whole, before = tmp_path / "as it was", (root / "history.jsonl").read_bytes()
    shutil.copytree(root, whole, symlinks=True)

    def anew() -> None:
        shutil.rmtree(root)
        shutil.copytree(whole, root, symlinks=True)

    said = bigsvm("history", root)
    assert (said.code, f"the current version {version} is missing: bigsvm rollback" in said.err) == (0, True)
    for name in (model, wide):
        said = bigsvm("promote", root, name)
        assert (said.code, f"the current version {version} is not there" in said.err) == (65, True), said.err
        assert f"(bigsvm rollback {root} --to N first" in said.err
    registry.settle(root)
    with pytest.raises(DataError, match=f"the current version {version} is not there"):
        registry.current(root)
    assert bigsvm("rollback", root, "--to", version).code == 66
    assert (root / "history.jsonl").read_bytes() == before
    # As told, or back to what lay below it, or another model on top.
    newest_below = {"the newest": 2, "an older one": 1, "not in the history": 2, "never there": 3}[lost]
    for words, found in ((["--to", 1], 1), ([], newest_below)):
        assert bigsvm("rollback", root, *words).code == 0
        assert registry.current(root) == root / "versions" / f"{found:06d}"
        assert registry.history(root)[-1]["from"] == version
        anew()
    assert bigsvm("promote", root, wide, "--allow-other-shape").code == 0
    assert registry.current_version(root) == max(version, 3) + 1
    ruins = [version] if os.path.lexists(root / "versions" / f"{version:06d}") else []
    assert registry.prune(root, 5) == ruins  # what is left of a deletion goes, and no version does


@pytest.mark.parametrize("keep", range(8))
def test_the_newest_stay_however_few_there_are(keep: int, tmp_path: Path) -> None:
    root, model = tmp_path / "reg", make_model(tmp_path / "a")
    for n in range(1, 6):
        registry.promote(root, model)
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(root, tmp_path / "copy", symlinks=True)
        stay = set(range(1, n + 1)[max(n - keep, 0) :]) | {n, n - 1}  # the current one, and the one before it
        assert registry.prune(tmp_path / "copy", keep) == [number for number in range(1, n + 1) if number not in stay]


def test_what_is_left_of_a_deletion_counts_for_no_version(tmp_path: Path) -> None:
    root = tmp_path / "reg"
    for seed in range(5):
        registry.promote(root, make_model(tmp_path / f"m{seed}", seed))
    (root / "versions" / "000003" / "model.json").unlink()
    assert registry.prune(root, 3) == [1, 3]  # 2, 4 and 5 are the newest that are there
