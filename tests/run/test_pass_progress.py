"""A pass over streamed rows is shown as work that goes on, whatever solver reads, and changes nothing."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.config import KERNEL_SOLVERS, FitConfig
from bigsvm.errors import DataError, Interrupted
from bigsvm.events import Event, WorkAdvanced, WorkEnded, WorkStarted
from bigsvm.run.execute import pass_progress
from bigsvm.run.execute.pass_progress import PassProgress
from bigsvm.run.execute.signals import Stop
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store
from bigsvm.solvers.context import ReadAccount
from bigsvm.solvers.registry import SOLVERS
from tests.classifiers import CLASSIFIERS
from tests.run.test_checkpoint import classes, same_folder


def configured(name: str, **options: Any) -> FitConfig:
    loss = SOLVERS[name].losses[0]
    return FitConfig.of(
        **{"solver": name, "loss": loss, "C": 0.01, "tol": 1e-3, "memory": "64MiB", "max_passes": 40, **options}
    )


def passes_of(events: list[Event]) -> list[tuple[str, list[float]]]:
    """Name, and how far it had come, of each pass that was shown, once; each ends before another one begins."""
    shown: list[tuple[str, list[float]]] = []
    going_on = ""
    for event in events:
        what = getattr(event, "what", "")
        if not what.startswith("pass "):
            continue
        if isinstance(event, WorkStarted):
            assert going_on == ""
            going_on = what
            shown.append((what, []))
            assert event.unit == "bytes"
        elif isinstance(event, WorkAdvanced):
            assert what == going_on
            shown[-1][1].append(event.done)
        elif isinstance(event, WorkEnded):
            assert what == going_on
            going_on = ""
    assert going_on == ""
    assert len({what for what, _ in shown}) == len(shown)
    return shown


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.usefixtures("streaming")
def test_every_solver_shows_its_passes_and_comes_to_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Those that fetch row after row of K read all rows for each.
    store = bigsvm.open_store(classes(2, 120 if name in KERNEL_SOLVERS and name != "smo" else 400))
    config = configured(name)
    before: list[Event] = []
    fit_store(store, config, before.append).save_model(tmp_path / "a")
    assert passes_of(before) == []
    monkeypatch.setattr(pass_progress, "_TELL_S", 0.0)
    events: list[Event] = []
    result = fit_store(store, config, events.append)
    result.save_model(tmp_path / "b")
    assert same_folder(tmp_path / "a", tmp_path / "b")
    shown = passes_of(events)
    assert shown, "something was read"
    for _, done in shown:
        assert done == sorted(done)
        assert min(done) >= 0
    assert max(int(what.split()[1]) for what, _ in shown) <= math.ceil(result.figures["passes"]) + 1


@pytest.mark.parametrize("at", [1, 5, 12])
@pytest.mark.parametrize("name", ["dcd", "newton-cg", "pegasos"])
@pytest.mark.usefixtures("streaming")
def test_a_stop_while_a_pass_is_shown_loses_nothing(
    name: str, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work before training ends at once; in training the state is saved first."""
    store, config = bigsvm.open_store(classes(2)), configured(name, tol=1e-6, max_passes=8)
    fit_store(store, config).save_model(tmp_path / "a")
    monkeypatch.setattr(pass_progress, "_TELL_S", 0.0)
    stops: list[Stop] = []
    made = Stop.__init__

    def remembered(self: Stop, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        stops.append(self)

    monkeypatch.setattr(Stop, "__init__", remembered)
    left = itertools.count(1)
    events: list[Event] = []

    def stop(event: Event) -> None:
        events.append(event)
        if isinstance(event, WorkAdvanced) and event.what.startswith("pass ") and next(left) == at:
            stops[0].by = "SIGTERM"

    checkpoints = Checkpoints(tmp_path / "checkpoint", {}, 1e9, "the same command goes on")
    with pytest.raises(Interrupted) as caught:
        fit_store(store, config, stop, checkpoints)
    assert "before training" not in str(caught.value)
    assert checkpoints.written == 1
    assert passes_of(events)
    resumed = fit_store(store, config, checkpoints=Checkpoints(tmp_path / "checkpoint", {}, 1e9), resume=True)
    resumed.save_model(tmp_path / "b")
    assert same_folder(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("error", [DataError("a row is bad"), KeyboardInterrupt(), MemoryError()], ids=repr)
@pytest.mark.parametrize("at", [1, 5, 12])
@pytest.mark.parametrize("name", ["dcd", "newton-cg", "newton-ws", "pegasos", "smo"])
@pytest.mark.usefixtures("streaming")
def test_a_pass_that_an_error_leaves_is_ended(
    name: str, at: int, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, looks = PassProgress.look, itertools.count(1)

    def look_and_fail(self: PassProgress) -> None:
        look(self)
        if next(looks) >= at:
            raise error

    monkeypatch.setattr(pass_progress, "_TELL_S", 0.0)
    monkeypatch.setattr(PassProgress, "look", look_and_fail)
    events: list[Event] = []
    with pytest.raises(type(error)):
        fit_store(bigsvm.open_store(classes(2)), configured(name, tol=1e-9), events.append)
    assert passes_of(events)


def read_again(progress: PassProgress, reads: ReadAccount, to: int) -> None:
    """What a solver does whose step is left, to save a checkpoint."""
    again, reads.bytes_read = reads.bytes_read, to
    while reads.bytes_read < again:
        reads.bytes_read += 100
        progress.look()


@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize("sample", [0, 100, 900, 1000, 2500])
@pytest.mark.parametrize("left", [False, True])
def test_a_pass_is_shown_once_wherever_steps_end(
    steps: int, sample: int, left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pass_progress, "_TELL_S", 0.0)
    reads, events = ReadAccount(), list[Event]()
    progress = PassProgress(reads, 1000, events.append)
    for step in range(steps):
        began = reads.bytes_read
        for _ in range(10 + (0 if step else sample // 100)):
            reads.bytes_read += 100
            progress.look()
        if left:
            read_again(progress, reads, began)
        progress.ended()
    progress.close()
    progress.look()  # a thread that is late
    shown = dict(passes_of(events))
    assert list(shown) == [f"pass {1 + number}" for number in range(-(-reads.bytes_read // 1000))]
    assert [max(done) for done in shown.values()][:-1] == [1000] * (len(shown) - 1)
    assert shown[list(shown)[-1]][-1] == (reads.bytes_read - 1) % 1000 + 1


@pytest.mark.usefixtures("streaming")
def test_the_first_pass_of_a_warm_start_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = bigsvm.open_store(classes(2))
    fit_store(store, configured("dcd")).save_model(tmp_path / "earlier")
    monkeypatch.setattr(pass_progress, "_TELL_S", 0.0)
    events: list[Event] = []
    fit_store(store, configured("dcd", C=0.02, warm_start=str(tmp_path / "earlier")), events.append)
    assert [what for what, _ in passes_of(events)][:2] == ["pass 1", "pass 2"]


def test_passes_that_are_short_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_progress, "_TELL_S", 2.0)
    now, reads, events = [0.0], ReadAccount(), list[Event]()
    progress = PassProgress(reads, 1000, events.append, clock=lambda: now[0])

    def read(seconds: float, nbytes: int) -> None:
        now[0] += seconds
        reads.bytes_read += nbytes
        progress.look()

    for nbytes in (600, 400):
        read(0.75, nbytes)
    progress.ended()  # after 1.5 s
    assert events == []
    for nbytes in (100, 300, 100, 100, 400):
        read(1.5, nbytes)
    progress.ended()
    second = [WorkAdvanced("pass 2", done) for done in (400, 600, 1000)]
    assert events == [WorkStarted("pass 2", 1000, "bytes"), *second, WorkEnded("pass 2", 7.5)]
    events.clear()
    for nbytes in (500, 500, 500):  # a step of more than a pass
        read(2.0, nbytes)
    progress.ended()
    assert events == [
        WorkStarted("pass 3", 1000, "bytes"), WorkAdvanced("pass 3", 500), WorkAdvanced("pass 3", 1000),
        WorkEnded("pass 3", 6.0), WorkStarted("pass 4", 1000, "bytes"), WorkAdvanced("pass 4", 500),
    ]  # fmt: skip
    events.clear()
    read(0.0, 300)
    progress.close()
    assert events == [WorkAdvanced("pass 4", 800), WorkEnded("pass 4", 0.0)]


def test_rows_in_memory_have_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_progress, "_TELL_S", 0.0)
    events: list[Event] = []
    bigsvm.fit(np.arange(40.0).reshape(20, 2), np.arange(20) % 2, emit=events.append)
    assert passes_of(events) == []
