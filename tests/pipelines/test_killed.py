"""A night that is killed at any instant and started again: the right end, and never from the beginning of a fit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bigsvm.cli.session import Session
from bigsvm.files import atomic
from bigsvm.model import versions as registry
from bigsvm.observe.jsonl import JsonlFile, read_events
from bigsvm.run.fit import fit as fitting_module
from bigsvm.run.fit.checkpoint import Checkpoints
from pipelines import journal, steps
from pipelines.config import Job, read_job
from pipelines.retrain import retrain
from tests.pipelines.jobs import ROOT, Place, current, job, write_store

__all__ = ["job"]

MANY_EPOCHS = 'solver = "dcd"\nloss = "hinge"\nc = 1.0\ntol = 1e-4'
INSTANTS = 40


class Killed(BaseException):
    """Nobody but the test catches it."""


class Clock:
    """Counts what a run does to the world, and kills it at one of these instants."""

    def __init__(self, kill_at: int | None) -> None:
        self.now, self.kill_at = 0, kill_at

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self.now += 1
            if self.now == self.kill_at:
                raise Killed
            return call(*args, **options)

        return counted


@contextmanager
def watched(kill_at: int | None = None) -> Iterator[Clock]:
    """Every flush, rename, link and event of a run is an instant; every pause of a fit writes a checkpoint."""
    clock = Clock(kill_at)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "due", lambda self: True)
        patch.setattr(JsonlFile, "__call__", clock.before(JsonlFile.__call__))
        patch.setattr(os, "fsync", clock.before(lambda handle: None))  # what is killed here is no power failure
        for name in ("replace", "rename", "symlink"):
            patch.setattr(os, name, clock.before(getattr(os, name)))
        patch.setattr(atomic, "_rename", clock.before(atomic._rename))
        yield clock


def night(read: Job) -> dict[str, Any]:
    return retrain(read, Session("retrain", quiet=True, progress=False))


def epochs(folder: Path) -> list[float]:
    """Of the record of the fit: where each step that was recorded stood."""
    path = folder / journal.RUN / "events.jsonl"
    found = read_events(path) if path.exists() else iter(())
    return [event["epochs"] for event in found if event["event"] == "EpochEnd"]


def checkpointed(folder: Path) -> bool:
    path = folder / journal.RUN / "checkpoint"
    return path.is_dir() and any(entry.name.isdigit() for entry in path.iterdir())


@pytest.fixture
def two_nights(job: Place, tmp_path: Path) -> Job:
    """A registry with a model of former rows, and new rows."""
    read = read_job(job(fit=MANY_EPOCHS))
    night(read)
    write_store(tmp_path / "train.zarr", 3)
    return read


def test_killed_at_many_instants_it_comes_to_the_right_end(two_nights: Job, tmp_path: Path) -> None:
    former = current(tmp_path)
    aside = tmp_path / "before"
    subprocess.run(["cp", "-a", str(tmp_path / "reg"), str(aside)], check=True)

    def again() -> None:
        subprocess.run(["rm", "-rf", str(tmp_path / "reg")], check=True)
        subprocess.run(["cp", "-a", str(aside), str(tmp_path / "reg")], check=True)

    with watched() as clock:
        assert night(two_nights)["status"] == "promoted"
    right, instants = current(tmp_path), clock.now
    straight = epochs(two_nights.folder)
    assert instants > INSTANTS
    resumed = 0
    for number in range(INSTANTS):
        again()
        kill_at = 1 + number * (instants - 1) // (INSTANTS - 1)
        with watched(kill_at), pytest.raises(Killed):
            night(two_nights)
        assert current(tmp_path) in (former, right), kill_at
        had_checkpoint, done = checkpointed(two_nights.folder), epochs(two_nights.folder)
        with watched():
            document = night(two_nights)
        # What was killed after the last thing that a run does has told its end before.
        assert document["status"] in ("promoted", "unchanged"), kill_at
        assert current(tmp_path) == right, kill_at
        assert [entry["version"] for entry in registry.history(tmp_path / "reg")] == [1, 2], kill_at
        assert registry.history(tmp_path / "reg")[-1]["metrics"]["relative_gap"] <= 1e-4
        if had_checkpoint and document.get("fitted") != "kept":
            assert document["fitted"] == "resumed", kill_at
            if len(done) > 1:
                steps_after = epochs(two_nights.folder)[len(done) :]
                assert straight[0] not in steps_after, f"killed at {kill_at}, it began from the beginning"
            resumed += 1
        assert night(two_nights)["status"] == "unchanged", kill_at
    assert resumed > INSTANTS // 4, "the test must kill fits that have a checkpoint"


_KILL = """
import os, signal, sys
from bigsvm.run.fit import fit as fitting_module
from bigsvm.run.fit.checkpoint import Checkpoints
from pipelines import retrain
place, config = sys.argv[1:]
die = lambda *args, **options: os.kill(os.getpid(), signal.SIGKILL)
Checkpoints.due = lambda self: True
save = Checkpoints.save
if place == "fit":
    Checkpoints.save = lambda self, tree: save(self, tree) if self.written < 3 else die()
else:
    from bigsvm.model.versions import swap
    swap.write_down = die
sys.exit(retrain.main(["--config", config, "--quiet"]))
"""


@pytest.mark.parametrize("place", ["fit", "after the swap"])
def test_killed_by_the_system(two_nights: Job, tmp_path: Path, place: str) -> None:
    command = [sys.executable, "-c", _KILL, place, str(tmp_path / "job.toml")]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    document = night(two_nights)
    assert (document["status"], document["version"]) == ("promoted", 2)
    if place == "fit":
        assert document["fitted"] == "resumed"
    else:
        assert "fit" not in document, "nothing was trained again"
        assert registry.history(tmp_path / "reg")[-1]["metrics"]["relative_gap"] <= 1e-4
    assert night(two_nights)["status"] == "unchanged"


def killed_in_the_fit(job: Job) -> None:
    """A night that ends where the fit has left a checkpoint."""
    for kill_at in range(30, 200, 10):
        with watched(kill_at), pytest.raises(Killed):
            night(job)
        if checkpointed(job.folder):
            break


def test_rows_that_changed_after_the_kill_begin_a_fit_of_their_own(two_nights: Job, tmp_path: Path) -> None:
    killed_in_the_fit(two_nights)
    assert checkpointed(two_nights.folder)
    write_store(tmp_path / "train.zarr", 4)
    assert steps.stands_at(two_nights, steps.detect(two_nights)) == "trained"
    document = night(two_nights)
    assert (document["status"], document["fitted"]) == ("promoted", "trained")


def test_a_checkpoint_that_cannot_be_gone_on_from_is_left_not_refused(two_nights: Job, tmp_path: Path) -> None:
    """It is damaged, or of a plan that came out otherwise under the memory limit of that night."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting_module, "result_options", lambda config: {"seed": 7})
        with watched(kill_at=60), pytest.raises(Killed):
            night(two_nights)
    assert steps.stands_at(two_nights, steps.detect(two_nights)) == "resumed"
    session = Session("retrain", quiet=True, progress=False)
    document = retrain(two_nights, session)
    assert (document["status"], document["fitted"]) == ("promoted", "trained")
    assert any(said.startswith("the fit starts again: the checkpoint is of another run") for said in session.warnings)
    write_store(tmp_path / "train.zarr", 4)
    with watched(kill_at=60), pytest.raises(Killed):
        night(two_nights)
    for path in (two_nights.folder / journal.RUN / "checkpoint").rglob("state.json"):
        path.write_bytes(path.read_bytes()[:-20])
    document = night(two_nights)
    assert (document["status"], document["fitted"]) == ("promoted", "trained")


def test_a_refused_candidate_is_judged_again_without_a_fit(job: Place, tmp_path: Path) -> None:
    assert night(read_job(job(gates="min_accuracy = 1")))["status"] == "refused"
    document = night(read_job(job(gates="min_accuracy = 0.5")))
    assert (document["status"], document["fitted"]) == ("promoted", "kept")
    assert json.loads((tmp_path / "reg/work/retrain.jsonl").read_text().splitlines()[0])["fitted"] == "trained"


def test_old_versions_go_and_a_rollback_still_has_where_to_go(job: Place, tmp_path: Path) -> None:
    for seed in range(4):
        write_store(tmp_path / "train.zarr", 10 + seed)
        document = night(read_job(job("keep_versions = 1\n")))
    assert document["deleted_versions"] == [2]
    assert sorted(path.name for path in (tmp_path / "reg/versions").iterdir()) == ["000003", "000004"]
    assert registry.rollback(tmp_path / "reg") == 3
    assert registry.prune(tmp_path / "reg", 1) == []
    assert registry.current_version(tmp_path / "reg") == 3
