"""A disk that is full at any step of a change: the change is taken back, and of a first promotion nothing stays."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from bigsvm.errors import OutputError
from bigsvm.model import versions as registry
from bigsvm.model.versions import changes, held, history_file, swap
from tests.registry.made import make_model, tree


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
        monkeypatch.setattr(history_file, "write_bytes", lambda path, data: full(path))
    elif place in ("symlink", "replace"):
        was = getattr(os, place)
        monkeypatch.setattr(os, place, lambda *names: once() if str(names[1]).find("current") > 0 else was(*names))
    elif place == "line":
        monkeypatch.setattr(os, "fsync", lambda handle: once() if is_history(handle) else None)
    else:
        module = {"after the swap": swap, "after the line": history_file}[place]
        monkeypatch.setattr(module, "sync_directory", lambda path: once())


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
            patched.setattr(held, "open", refused, raising=False)
        elif place == "copy":
            patched.setattr(changes, "_copy_model", refused)
        else:
            failing(place, patched)
        with pytest.raises(OutputError, match="No space"):
            registry.promote(root, model)
    left = [str(path.relative_to(tmp_path)) for path in sorted((tmp_path / "on").rglob("*"))]
    assert left == (["on/disk", "on/disk/reg"] if there else [])
    assert (tmp_path / "on").exists() == there
    assert registry.promote(root, model) == 1


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
        patched.setattr(swap, "write_down", lambda root, *_: full(root))
        with pytest.raises(OutputError, match="version 2 is current all the same"):
            registry.promote(root, make_model(tmp_path / "b", 1))
    assert registry.current_version(root) == 2
    registry.settle(root)
    assert registry.history(root)[-1]["version"] == 2


def test_who_could_not_promote_leaves_the_registry_of_the_next_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes an empty registry away while it holds the lock, and never after that."""
    root, model = tmp_path / "reg", make_model(tmp_path / "a")
    locks: list[Any] = []
    found: list[bool] = []
    unsign, remove = held.unsign, held._remove_empty

    def let_go(lock: Any) -> None:
        unsign(lock)
        locks.clear()

    def taken_away(path: Path, absent: list[Path]) -> None:
        found.append(bool(locks))
        remove(path, absent)

    monkeypatch.setattr(held, "sign", locks.append)
    monkeypatch.setattr(held, "unsign", let_go)
    monkeypatch.setattr(held, "_remove_empty", taken_away)
    monkeypatch.setattr(changes, "_copy_model", lambda *given: full(root))
    with pytest.raises(OutputError, match="No space"):
        registry.promote(root, model)
    assert found == [True]
    assert not root.exists()
