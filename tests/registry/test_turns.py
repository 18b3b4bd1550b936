"""One process at a time changes a registry; who waits for long is told for whom."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bigsvm.events import Event
from bigsvm.files import locks
from bigsvm.model import versions as registry
from bigsvm.model.versions import held
from tests.cli.conftest import Bigsvm, bigsvm
from tests.registry.made import make_model
from tests.turns import HOLDERS, check_told, hold

__all__ = ["bigsvm"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A registry with two versions."""
    model = make_model(tmp_path / "m")
    for _ in range(2):
        registry.promote(tmp_path / "reg", model)
    return tmp_path / "reg"


CHANGES: dict[str, Callable[..., Any]] = {
    "promote": lambda root, **how: registry.promote(root, root.parent / "m", **how),
    "rollback": lambda root, **how: registry.rollback(root, **how),
    "settle": lambda root, **how: registry.settle(root, **how),
    "prune": lambda root, **how: registry.prune(root, 1, **how),
}


@pytest.mark.parametrize("who", HOLDERS)
@pytest.mark.parametrize("change", CHANGES)
def test_who_waits_is_told_for_whom_and_goes_on(
    change: str, who: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = hold(root / registry.LOCK, who, monkeypatch)
    seen: list[Event] = []
    CHANGES[change](root, emit=seen.append)
    check_told(seen, said, "is changing the registry", root / registry.LOCK)


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_told_where_nobody_is_waited_for(change: str, root: Path) -> None:
    signed: list[str] = []
    tidy = held.tidy

    def looked(root: Path, emit: Any) -> None:
        found = locks.signed_by(root / registry.LOCK)
        signed.append("" if found is None else found.who)
        tidy(root, emit)

    seen: list[Event] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held, "tidy", looked)
        CHANGES[change](root, emit=seen.append)
    assert seen == []
    assert [who.startswith(f"process {os.getpid()} on ") for who in signed] == [True]


@pytest.mark.parametrize("flags", [[], ["--json"], ["--quiet"], ["--log-format", "json"]], ids=" ".join)
@pytest.mark.parametrize("command", ["promote", "rollback"])
def test_the_commands_say_it_on_standard_error(
    command: str, flags: list[str], root: Path, bigsvm: Bigsvm, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = hold(root / registry.LOCK, "ours", monkeypatch)
    done = bigsvm(command, root, *([root.parent / "m"] if command == "promote" else []), *flags)
    assert done.code == 0, done.err
    assert (f"waiting for {said}" in done.err) == (flags != ["--quiet"])
    assert "waiting" not in done.out


def test_promoters_take_turns(tmp_path: Path) -> None:
    root = tmp_path / "reg"
    models = [make_model(tmp_path / f"m{seed}", seed) for seed in range(4)]
    code = "import sys; from bigsvm.model.versions import promote; [promote(*sys.argv[1:]) for _ in range(3)]"
    running = [subprocess.Popen([sys.executable, "-c", code, str(root), str(model)]) for model in models[:3]]
    assert [process.wait() for process in running] == [0, 0, 0]
    entries = registry.history(root)
    assert [entry["version"] for entry in entries] == list(range(1, 10))
    assert [entry["from"] for entry in entries] == [None, *range(1, 9)]


def test_who_waits_for_a_registry_that_is_taken_away_makes_it_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, model = tmp_path / "reg", make_model(tmp_path / "a")
    wait = held.wait_for

    def taken_away(lock: Any, tell: Any) -> None:
        monkeypatch.setattr(held, "wait_for", wait)
        shutil.rmtree(root)
        wait(lock, tell)

    monkeypatch.setattr(held, "wait_for", taken_away)
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
        monkeypatch.setattr(held, "open", open, raising=False)
        (root / "versions").rmdir()  # as another process does that could not promote; it keeps a folder that has a lock
        return open(path, how)

    monkeypatch.setattr(held, "open", late, raising=False)
    assert registry.promote(root, model) == 1
