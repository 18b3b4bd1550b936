"""Where the time of a fit went: each part by its own name, compiling above all."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numba
import pytest

import bigsvm
from bigsvm.events import COMPILING, WorkEnded
from bigsvm.run.fit import fit as fitting
from bigsvm.store.ingest import compile_time as measuring
from bigsvm.testing.problems import random_problem


def test_each_part_has_its_own_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that stands still but in the parts."""
    now = [0.0]
    monkeypatch.setattr(fitting, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def taking(seconds: float, part: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*args: Any, **kwargs: Any) -> Any:
            now[0] += seconds
            return part(*args, **kwargs)

        return slow

    for name, seconds in (("make_plan", 1.0), ("precompile", 20.0), ("open_rows", 300.0)):
        monkeypatch.setattr(fitting, name, taking(seconds, getattr(fitting, name)))
    events: list[Any] = []
    X, y = random_problem(40, 3, seed=0)
    found = bigsvm.fit((X, y), emit=events.append).seconds
    assert list(found)[:7] == ["total", "plan", "compile", "staging", "solving", "io_wait", "certify"]
    assert [found[name] for name in ("total", "plan", "compile", "staging")] == [321.0, 1.0, 20.0, 300.0]
    assert [event.seconds for event in events if isinstance(event, WorkEnded) and event.what == COMPILING] == [20.0]


def test_compiling_is_no_part_of_the_speed_of_an_ingest(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A function that calls another is compiled once, with what it calls."""
    ticks = itertools.count()
    monkeypatch.setattr(measuring, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))

    @numba.njit
    def inner(x: float) -> float:
        return x + 1

    @numba.njit
    def outer(x: float) -> float:
        return inner(x) * 2

    with measuring.compile_time() as compiling:
        assert outer(1.0) == 4.0
        assert compiling.seconds == 1.0  # one tick: the clock is asked at the beginning and at the end
        assert outer(2.0) == 6.0
        assert compiling.seconds == 1.0
    result = bigsvm.ingest(random_problem(20, 2, seed=0), tmp_path / "s.zarr")
    assert result["compile_seconds"] in range(next(ticks))
