"""Processes that are killed, or get a signal, at any step of a change."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bigsvm.model import versions as registry
from bigsvm.model.versions import swap
from tests.forked import Run, scripts
from tests.registry.made import make_model, tree


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_waits_for_the_end_of_a_swap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    root, write_down = tmp_path / "reg", swap.write_down
    registry.promote(root, make_model(tmp_path / "a"))

    def signalled(*arguments: object) -> None:
        os.kill(os.getpid(), number)
        write_down(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(swap, "write_down", signalled)
    former = signal.signal(number, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            registry.promote(root, make_model(tmp_path / "b", 1))
    finally:
        signal.signal(number, former)
    assert registry.current_version(root) == 2
    assert [entry["action"] for entry in registry.history(root)] == ["promote", "promote"]
    assert not (root / ".pending.json").exists()


_IMPORTS = """
import os, sys
from bigsvm.files import atomic as files
from bigsvm.model import versions as registry
from bigsvm.model.versions import changes, swap
"""
_DIE = """
place, root, model, change = sys.argv[1:]
def die(*args): os.kill(os.getpid(), 9)
if place == "copying": changes._copy_model = lambda source, model, copy: ((copy / "coef.npy").write_bytes(b"x"), die())
if place == "before publishing": files._rename = die
if place == "before the swap": os.replace = die
if place == "after the swap": swap.write_down = die
if change == "promote": registry.promote(root, model)
else: registry.rollback(root, note="the shop says no")
"""


@pytest.fixture(scope="module")
def die(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Forks a process that dies at a place of a change."""
    folder = tmp_path_factory.mktemp("programs")
    program = folder / "die.py"
    program.write_text(_DIE)
    with scripts(_IMPORTS, folder) as run:
        yield lambda *arguments: run(program, *arguments)


@pytest.mark.parametrize("place", ["copying", "before publishing", "before the swap", "after the swap"])
@pytest.mark.parametrize("first", [True, False])
def test_killed_anywhere_the_next_promotion_works(tmp_path: Path, place: str, first: bool, die: Run) -> None:
    root = tmp_path / "reg"
    old, new, last = (make_model(tmp_path / name, seed) for seed, name in enumerate("abc"))
    if not first:
        registry.promote(root, old)
    assert die(place, str(root), str(new), "promote").returncode == -signal.SIGKILL
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
def test_a_rollback_that_was_killed_is_a_rollback(tmp_path: Path, place: str, die: Run) -> None:
    root = tmp_path / "reg"
    for seed, name in enumerate("ab"):
        registry.promote(root, make_model(tmp_path / name, seed), metrics={"problem": name})
    assert die(place, str(root), "", "rollback").returncode == -signal.SIGKILL
    registry.settle(root)
    moved = place == "after the swap"
    assert registry.current_version(root) == (1 if moved else 2)
    said = [(entry["action"], entry["version"]) for entry in registry.history(root)]
    assert said == [("promote", 1), ("promote", 2), *([("rollback", 1)] if moved else [])]
    assert not moved or registry.history(root)[-1]["note"] == "the shop says no"
    assert registry.promote(root, make_model(tmp_path / "c", 3)) == 3
