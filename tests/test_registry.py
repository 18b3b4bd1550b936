"""Registry: what is bad never becomes current, readers see whole models, crashes and rollbacks lose nothing."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.errors import BigSVMError, DataError, MissingInput, OutputError
from bigsvm.model import versions as registry
from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.linear_model import LinearModel, load_model
from bigsvm.problem.kernel import Kernel
from tests.cli.conftest import Bigsvm, bigsvm
from tests.model_documents import renew, rewrite

__all__ = ["bigsvm"]


def make_model(path: Path, seed: int = 0, n_features: int = 6, classes: tuple[int, ...] = (-1, 1)) -> Path:
    rng = np.random.default_rng(seed)
    n_models = 1 if len(classes) == 2 else len(classes)
    model = LinearModel(rng.standard_normal((n_models, n_features)), np.full(n_models, float(seed)), np.array(classes))
    model.save(path, alpha=rng.random((n_models, 9)))
    return path


def make_kernel_model(path: Path, kind: str) -> Path:
    """A kernel model, or one of regression, of six features and the classes -1 and 1."""
    classes = np.empty(0) if kind == "regression" else np.array([-1, 1])
    support, rows = np.random.default_rng(0).standard_normal((4, 6)), np.arange(4)
    KernelModel(Kernel("rbf", 0.5), support, rows, np.ones((1, 4)), np.ones(1), classes, 6).save(path, np.ones((1, 9)))
    return path


def tree(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def spoil_nan(path: Path, name: str = "coef.npy", value: float = np.nan) -> None:
    array = np.load(path / name)
    array.flat[0] = value
    np.save(path / name, array)
    renew(path, name)


def spoil_size(path: Path, name: str, keep: int, fix: bool) -> None:
    (path / name).write_bytes((path / name).read_bytes()[:keep])
    if fix:
        renew(path, name)


def spoil_shape(path: Path, shape: tuple[int, ...], classes: list[int], n_features: int) -> None:
    np.save(path / "coef.npy", np.zeros(shape))
    np.save(path / "intercept.npy", np.zeros(shape[0]))
    rewrite(path, classes=classes, n_features=n_features)
    renew(path, "coef.npy")
    renew(path, "intercept.npy")


SPOILT: dict[str, Callable[[Path], None]] = {
    "nan coef": spoil_nan,
    "infinite coef": lambda p: spoil_nan(p, value=np.inf),
    "nan intercept": lambda p: spoil_nan(p, "intercept.npy"),
    "nan alpha, old digest": lambda p: np.save(p / "alpha.npy", np.full((1, 9), np.nan)),
    "nan alpha": lambda p: spoil_nan(p, "alpha.npy"),
    "alpha of no bytes, digest fixed": lambda p: spoil_size(p, "alpha.npy", 0, fix=True),
    "truncated": lambda p: spoil_size(p, "coef.npy", 40, fix=False),
    "truncated, digest fixed": lambda p: spoil_size(p, "coef.npy", 150, fix=True),
    "cut in the header, digest fixed": lambda p: spoil_size(p, "coef.npy", 40, fix=True),
    "no bytes, digest fixed": lambda p: spoil_size(p, "coef.npy", 0, fix=True),
    "missing coef": lambda p: (p / "coef.npy").unlink(),
    "missing intercept": lambda p: (p / "intercept.npy").unlink(),
    "missing alpha": lambda p: (p / "alpha.npy").unlink(),
    "missing model.json": lambda p: (p / "model.json").unlink(),
    "model.json torn": lambda p: spoil_size(p, "model.json", 30, fix=False),
    "model.json empty": lambda p: spoil_size(p, "model.json", 0, fix=False),
    "model.json not text": lambda p: (p / "model.json").write_bytes(b"\xff\xfe\x00"),
    "model.json a list": lambda p: (p / "model.json").write_text("[]"),
    "no digests": lambda p: rewrite(p, digests={}),
    "digest leads out": lambda p: rewrite(p, digests={**registry_digests(p), "../x": "0"}),
    "newer format": lambda p: rewrite(p, format_version=99),
    "no features": lambda p: spoil_shape(p, (1, 0), [-1, 1], 0),
    "no classes": lambda p: spoil_shape(p, (0, 6), [], 6),
    "one class": lambda p: spoil_shape(p, (1, 6), [1], 6),
    "a class twice": lambda p: spoil_shape(p, (1, 6), [1, 1], 6),
    "other feature count": lambda p: spoil_shape(p, (1, 7), [-1, 1], 7),
    "other classes": lambda p: spoil_shape(p, (1, 6), [0, 1], 6),
    "a claimed feature count": lambda p: rewrite(p, n_features=7),
}


def registry_digests(path: Path) -> dict[str, str]:
    return json.loads((path / "model.json").read_text())["digests"]


def test_promote_copies_and_points(tmp_path: Path) -> None:
    root, model = tmp_path / "reg", make_model(tmp_path / "m")
    assert registry.current(root) is None
    assert registry.history(root) == []
    assert registry.promote(root, model, "first", metrics={"accuracy": 0.9}) == 1
    assert os.readlink(root / "current") == "versions/000001"
    assert tree(root / "current") == tree(model)
    (entry,) = registry.history(root)
    assert (entry["action"], entry["version"], entry["from"], entry["note"]) == ("promote", 1, None, "first")
    assert entry["metrics"] == {"accuracy": 0.9}
    assert entry["model_fingerprint"] == registry.model_fingerprint(model)
    shutil.rmtree(model)
    where = registry.current(root)
    assert where is not None
    assert load_model(where).intercept[0] == 0.0


def test_the_registry_may_move(tmp_path: Path) -> None:
    registry.promote(tmp_path / "reg", make_model(tmp_path / "m"))
    os.rename(tmp_path / "reg", tmp_path / "elsewhere")
    assert load_model(tmp_path / "elsewhere" / "current").n_features == 6


def test_only_what_the_model_names_is_copied(tmp_path: Path) -> None:
    model = make_model(tmp_path / "m")
    (model / "core.dump").write_bytes(b"x" * 100)
    registry.promote(tmp_path / "reg", model)
    assert set(tree(tmp_path / "reg" / "current")) == {"model.json", "coef.npy", "intercept.npy", "alpha.npy"}


@pytest.mark.parametrize("name", SPOILT)
def test_bad_models_are_never_promoted(tmp_path: Path, name: str) -> None:
    root = tmp_path / "reg"
    registry.promote(root, make_model(tmp_path / "good"))
    before = tree(root)
    bad = make_model(tmp_path / "bad", seed=1)
    SPOILT[name](bad)
    with pytest.raises((DataError, MissingInput)) as caught:
        registry.promote(root, bad)
    assert caught.value.where
    assert tree(root) == before
    assert os.readlink(root / "current") == "versions/000001"


def test_another_shape_is_promoted_where_it_is_meant(tmp_path: Path) -> None:
    root = tmp_path / "reg"
    registry.promote(root, make_model(tmp_path / "a"))
    assert registry.promote(root, make_model(tmp_path / "b", n_features=9), allow_other_shape=True) == 2


def test_rollback_goes_back_step_by_step_and_byte_for_byte(tmp_path: Path) -> None:
    root = tmp_path / "reg"
    models = [make_model(tmp_path / f"m{seed}", seed) for seed in range(3)]
    for model in models:
        registry.promote(root, model)
    assert registry.rollback(root, note="worse on Sundays") == 2
    assert tree(root / "current") == tree(models[1])
    assert registry.rollback(root) == 1
    assert tree(root / "current") == tree(models[0])
    with pytest.raises(MissingInput, match="no earlier version"):
        registry.rollback(root)
    assert registry.rollback(root, to=3) == 3
    assert tree(root / "current") == tree(models[2])
    with pytest.raises(MissingInput, match="no version 9"):
        registry.rollback(root, to=9)
    # Numbers are never used again, and 3 came after 1.
    assert registry.promote(root, models[1]) == 4
    assert registry.rollback(root) == 3
    actions = [(entry["action"], entry["version"], entry["from"]) for entry in registry.history(root)]
    assert actions[3:] == [
        ("rollback", 2, 3), ("rollback", 1, 2), ("rollback", 3, 1), ("promote", 4, 3), ("rollback", 3, 4)
    ]  # fmt: skip


def test_rollback_refuses_a_damaged_version(tmp_path: Path) -> None:
    root = tmp_path / "reg"
    for seed in range(2):
        registry.promote(root, make_model(tmp_path / f"m{seed}", seed))
    file = root / "versions" / "000001" / "coef.npy"
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(DataError, match="digest"):
        registry.rollback(root)
    assert registry.current_version(root) == 2


def test_rollback_without_a_registry(tmp_path: Path) -> None:
    with pytest.raises(MissingInput):
        registry.rollback(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


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


def test_a_failing_swap_leaves_everything_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "reg"
    registry.promote(root, make_model(tmp_path / "a"))
    before = tree(root)
    replace = os.replace

    def fail(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OutputError, match="No space"):
        registry.promote(root, make_model(tmp_path / "b", 1))
    monkeypatch.setattr(os, "replace", replace)
    assert tree(root) == before
    assert registry.promote(root, tmp_path / "b") == 2


def failing(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full, or fails, at one step of a change, and at this one alone."""
    left = [1]

    def once() -> None:
        if left:
            left.clear()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if place == "announce":
        monkeypatch.setattr(registry, "write_bytes", lambda path, data: full(path))
    elif place in ("symlink", "replace"):
        was = getattr(os, place)
        monkeypatch.setattr(os, place, lambda *names: once() if str(names[1]).find("current") > 0 else was(*names))
    elif place == "line":
        monkeypatch.setattr(os, "fsync", lambda handle: once() if is_history(handle) else None)
    else:
        number = ["after the swap", "after the line"].index(place)
        calls = iter(range(100))
        was = registry.sync_directory
        monkeypatch.setattr(registry, "sync_directory", lambda path: once() if next(calls) == number else was(path))


def full(path: Path) -> None:
    raise OutputError("cannot write: No space left on device", str(path))


def is_history(handle: int) -> bool:
    return os.readlink(f"/proc/self/fd/{handle}").endswith("history.jsonl")


PLACES = ["announce", "symlink", "replace", "after the swap", "line", "after the line"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("change", ["first", "promote", "rollback"])
def test_a_change_that_cannot_be_written_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, change: str
) -> None:
    root = tmp_path / "reg"
    models = [make_model(tmp_path / name, seed) for seed, name in enumerate("abc")]
    for model in models[: 0 if change == "first" else 2]:
        registry.promote(root, model)
    before, was = {name: data for name, data in tree(root).items() if data}, registry.current_version(root)
    with monkeypatch.context() as patched:
        failing(place, patched)
        with pytest.raises(OutputError, match="No space"):
            registry.rollback(root) if change == "rollback" else registry.promote(root, models[2])
    assert registry.current_version(root) == was
    # The history of a first promotion begins with nothing; the files of locks and of histories may be there.
    assert {name: data for name, data in tree(root).items() if data} == before
    registry.settle(root)
    assert registry.current_version(root) == was
    version = registry.rollback(root) if change == "rollback" else registry.promote(root, models[2])
    assert version == {"first": 1, "promote": 3, "rollback": 1}[change]
    assert [entry["action"] for entry in registry.history(root)][-1] == change.replace("first", "promote")


@pytest.mark.parametrize("place", ["folder", "lock", "copy", *PLACES])
@pytest.mark.parametrize("there", [True, False])
def test_of_a_first_promotion_that_cannot_be_written_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, there: bool
) -> None:
    """An empty registry would be taken for one.  A folder that was there before is not ours to remove."""
    root, model = tmp_path / "on" / "disk" / "reg", make_model(tmp_path / "a")
    if there:
        root.mkdir(parents=True)

    def refused(*given: Any, **how: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        if place == "folder":
            mkdir = Path.mkdir
            patched.setattr(Path, "mkdir", lambda path, *how, **asked: mkdir(path.parent, *how, **asked) or refused())
        elif place == "lock":
            patched.setattr(registry, "open", refused, raising=False)
        elif place == "copy":
            patched.setattr(registry, "_copy_model", refused)
        else:
            failing(place, patched)
        with pytest.raises(OutputError, match="No space"):
            registry.promote(root, model)
    left = [str(path.relative_to(tmp_path)) for path in sorted((tmp_path / "on").rglob("*"))]
    assert left == (["on/disk", "on/disk/reg"] if there else [])
    assert (tmp_path / "on").exists() == there
    assert registry.promote(root, model) == 1


def test_who_waits_for_a_registry_that_is_taken_away_makes_it_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, model = tmp_path / "reg", make_model(tmp_path / "a")
    wait = registry.wait_for

    def taken_away(lock: Any, tell: Any) -> None:
        monkeypatch.setattr(registry, "wait_for", wait)
        shutil.rmtree(root)
        wait(lock, tell)

    monkeypatch.setattr(registry, "wait_for", taken_away)
    assert registry.promote(root, model) == 1
    assert registry.current_version(root) == 1


@pytest.mark.parametrize("there", [True, False])
def test_a_registry_that_is_taken_away_before_its_lock_is_opened_is_made_anew(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, model = tmp_path / "reg", make_model(tmp_path / "a")
    if there:
        root.mkdir()

    def late(path: Path, how: str) -> Any:
        monkeypatch.setattr(registry, "open", open, raising=False)
        (root / "versions").rmdir()  # as another process does that could not promote; it keeps a folder that has a lock
        return open(path, how)

    monkeypatch.setattr(registry, "open", late, raising=False)
    assert registry.promote(root, model) == 1


def test_who_could_not_promote_leaves_the_registry_of_the_next_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes an empty registry away while it holds the lock, and never after that."""
    root, model = tmp_path / "reg", make_model(tmp_path / "a")
    held: list[Any] = []
    found: list[bool] = []
    unsign, remove = registry.unsign, registry._remove_empty

    def let_go(lock: Any) -> None:
        unsign(lock)
        held.clear()

    def taken_away(path: Path, absent: list[Path]) -> None:
        found.append(bool(held))
        remove(path, absent)

    monkeypatch.setattr(registry, "sign", held.append)
    monkeypatch.setattr(registry, "unsign", let_go)
    monkeypatch.setattr(registry, "_remove_empty", taken_away)
    monkeypatch.setattr(registry, "_copy_model", lambda *given: full(root))
    with pytest.raises(OutputError, match="No space"):
        registry.promote(root, model)
    assert found == [True]
    assert not root.exists()


def test_where_a_change_cannot_be_taken_back_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "reg"
    registry.promote(root, make_model(tmp_path / "a"))
    was, links = os.symlink, []

    def symlink(*names: str) -> None:
        links.append(names)
        if len(links) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        was(*names)

    with monkeypatch.context() as patched:
        patched.setattr(os, "symlink", symlink)
        patched.setattr(registry, "_write_down", lambda root, *_: full(root))
        with pytest.raises(OutputError, match="version 2 is current all the same"):
            registry.promote(root, make_model(tmp_path / "b", 1))
    assert registry.current_version(root) == 2
    registry.settle(root)
    assert registry.history(root)[-1]["version"] == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_waits_for_the_end_of_a_swap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    root, write_down = tmp_path / "reg", registry._write_down
    registry.promote(root, make_model(tmp_path / "a"))

    def signalled(*arguments: object) -> None:
        os.kill(os.getpid(), number)
        write_down(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(registry, "_write_down", signalled)
    former = signal.signal(number, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            registry.promote(root, make_model(tmp_path / "b", 1))
    finally:
        signal.signal(number, former)
    assert registry.current_version(root) == 2
    assert [entry["action"] for entry in registry.history(root)] == ["promote", "promote"]
    assert not (root / ".pending.json").exists()


def test_what_was_compared_with_another_model_is_not_promoted(tmp_path: Path) -> None:
    root = tmp_path / "reg"
    model = make_model(tmp_path / "a")
    assert registry.promote(root, model, over=None) == 1
    for over in (None, 2):
        with pytest.raises(registry.CurrentMoved, match="version 1 is current now"):
            registry.promote(root, model, over=over)
    assert registry.promote(root, model, over=1) == 2
    assert [path.name for path in sorted((root / "versions").iterdir())] == ["000001", "000002"]


_DIE = """
import os, sys
from bigsvm.model import versions as registry
from bigsvm.files import atomic as files
place, root, model = sys.argv[1:]
def die(*args): os.kill(os.getpid(), 9)
if place == "copying": registry._copy_model = lambda source, model, copy: ((copy / "coef.npy").write_bytes(b"x"), die())
if place == "before publishing": files._rename = die
if place == "before the swap": os.replace = die
if place == "after the swap": registry._write_down = die
registry.promote(root, model)
"""


@pytest.mark.parametrize("place", ["copying", "before publishing", "before the swap", "after the swap"])
@pytest.mark.parametrize("first", [True, False])
def test_killed_anywhere_the_next_promotion_works(tmp_path: Path, place: str, first: bool) -> None:
    root = tmp_path / "reg"
    old, new, last = (make_model(tmp_path / name, seed) for seed, name in enumerate("abc"))
    if not first:
        registry.promote(root, old)
    died = subprocess.run([sys.executable, "-c", _DIE, place, str(root), str(new)], check=False, capture_output=True)
    assert died.returncode == -signal.SIGKILL
    swapped = place == "after the swap"
    where = registry.current(root)
    if swapped:
        assert where is not None
        assert tree(where) == tree(new)
    elif first:
        assert where is None
    else:
        assert where is not None
        assert tree(where) == tree(old)
    version = registry.promote(root, last)
    assert tree(root / "current") == tree(last)
    assert [path for path in root.rglob("*") if ".tmp-" in path.name] == []
    entries = registry.history(root)
    assert entries[-1]["version"] == version
    assert [entry["action"] for entry in entries].count("recovered") == swapped
    if not first:
        folders = sorted(int(path.name) for path in (root / "versions").iterdir())
        assert folders == sorted({entry["version"] for entry in entries}), "copies that never became current are gone"
        assert registry.rollback(root) == (2 if swapped else 1)


@pytest.mark.parametrize("place", ["before the swap", "after the swap"])
def test_a_rollback_that_was_killed_is_a_rollback(tmp_path: Path, place: str) -> None:
    root = tmp_path / "reg"
    for seed, name in enumerate("ab"):
        registry.promote(root, make_model(tmp_path / name, seed), metrics={"problem": name})
    program = _DIE.replace("registry.promote(root, model)", "registry.rollback(root, note='the shop says no')")
    died = subprocess.run([sys.executable, "-c", program, place, str(root), ""], check=False, capture_output=True)
    assert died.returncode == -signal.SIGKILL
    registry.settle(root)
    moved = place == "after the swap"
    assert registry.current_version(root) == (1 if moved else 2)
    said = [(entry["action"], entry["version"]) for entry in registry.history(root)]
    assert said == [("promote", 1), ("promote", 2), *([("rollback", 1)] if moved else [])]
    assert not moved or registry.history(root)[-1]["note"] == "the shop says no"
    assert registry.promote(root, make_model(tmp_path / "c", 3)) == 3


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


def test_promoters_take_turns(tmp_path: Path) -> None:
    root = tmp_path / "reg"
    models = [make_model(tmp_path / f"m{seed}", seed) for seed in range(4)]
    code = "import sys; from bigsvm.model.versions import promote; [promote(*sys.argv[1:]) for _ in range(3)]"
    running = [subprocess.Popen([sys.executable, "-c", code, str(root), str(model)]) for model in models[:3]]
    assert [process.wait() for process in running] == [0, 0, 0]
    entries = registry.history(root)
    assert [entry["version"] for entry in entries] == list(range(1, 10))
    assert [entry["from"] for entry in entries] == [None, *range(1, 9)]


def test_commands(bigsvm: Bigsvm, tmp_path: Path) -> None:
    root = tmp_path / "reg"
    first, second = make_model(tmp_path / "a"), make_model(tmp_path / "b", 1)
    assert bigsvm("history", root).code == 66
    assert bigsvm("rollback", root, "--json").document["error"]["code"] == 66
    assert "promoted" in bigsvm("promote", root, first).out
    said = bigsvm("promote", root, second, "--note", "better", "--json")
    result = said.document["result"]
    assert (said.code, result["version"], result["from"], result["note"]) == (0, 2, 1, "better")
    document = bigsvm("history", root, "--json").document["result"]
    assert document["current_version"] == 2
    assert len(document["entries"]) == 2
    assert "version 2 is current" in bigsvm("history", root).out
    said = bigsvm("rollback", root, "--json")
    assert (said.code, said.document["result"]["version"], said.document["result"]["from"]) == (0, 1, 2)
    assert said.document["result"]["model_fingerprint"] == registry.model_fingerprint(first)
    assert bigsvm("rollback", root, "--to", 7).code == 66
    assert bigsvm("rollback", root, "--to", 0).code == 2
    assert bigsvm("promote", root, tmp_path / "none").code == 66
    spoil_nan(second)
    said = bigsvm("promote", root, second)
    assert (said.code, said.out, said.err.count("\n")) == (65, "", 1)
    assert registry.current_version(root) == 1


def test_a_read_only_registry_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BigSVMError) as caught:
        registry.promote(tmp_path / "file", make_model(tmp_path / "m"))
    assert caught.value.code == 73


def test_kernel_models_and_regression_are_promoted_whole(tmp_path: Path) -> None:
    kernel, values = (make_kernel_model(tmp_path / kind, kind) for kind in ("kernel", "regression"))
    registry.promote(tmp_path / "r", make_model(tmp_path / "linear"))
    assert registry.promote(tmp_path / "r", kernel) == 2  # of the same classes and features
    current = registry.current(tmp_path / "r")
    assert current is not None
    assert tree(current) == tree(kernel)
    with pytest.raises(DataError, match="gives values and the current one labels"):
        registry.promote(tmp_path / "r", values)
    assert registry.promote(tmp_path / "r", values, allow_other_shape=True) == 3
    assert load_model(tmp_path / "r" / "current").regression


@pytest.mark.parametrize("name", ["support.npy", "dual_coef.npy", "support_rows.npy"])
def test_a_damaged_kernel_model_is_not_promoted(tmp_path: Path, name: str) -> None:
    bad = make_kernel_model(tmp_path / "m", "kernel")
    spoil_size(bad, name, 140, fix=True)
    with pytest.raises(DataError):
        registry.promote(tmp_path / "r", bad)
    assert registry.current(tmp_path / "r") is None


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


@pytest.mark.parametrize("place", ["store", "store/inner", "model", "run", "bucket"])
def test_a_registry_is_made_where_nothing_else_is(bigsvm: Bigsvm, tmp_path: Path, place: str) -> None:
    """What was refused leaves nothing behind."""
    model, root = make_model(tmp_path / "m"), tmp_path / place
    if place.startswith("store"):
        (tmp_path / "store").mkdir()
        (tmp_path / "store" / "zarr.json").write_text("{}")
    elif place == "model":
        make_model(root, 1)
    elif place == "run":
        root.mkdir()
        (root / "run.json").write_text("{}")
    before = tree(tmp_path)
    said = bigsvm("promote", "s3://bucket/reg" if place == "bucket" else root, model)
    assert said.code == 73
    assert tree(tmp_path) == before
    assert not Path("s3:").exists()


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
