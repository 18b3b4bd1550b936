"""What an ingest does while it works: events, warnings, threads, memory and chunks."""

from __future__ import annotations

import mmap
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.errors import DataError, UsageError
from bigsvm.events import Event, Warned, WorkAdvanced, WorkEnded, WorkStarted
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.ingest.on_thread import on_thread
from tests.store.ingested import DENSE, X, write_text, y
from tests.test_peak_memory import Watched

pytestmark = pytest.mark.usefixtures("small_parts")


@pytest.mark.parametrize("kind", ["text", "arrays"])
def test_progress_ends_at_its_total(tmp_path: Path, kind: str) -> None:
    events: list[Event] = []
    source = write_text(tmp_path / "a.svm") if kind == "text" else (X, y)
    ingest(source, tmp_path / "a", emit=events.append)
    assert isinstance(events[0], WorkStarted)
    done = [event.done for event in events if isinstance(event, WorkAdvanced)]
    assert done == sorted(done)
    assert done[-1] == events[0].total > 0
    assert isinstance(events[-1], WorkEnded)


def test_badly_scaled_columns_are_warned_of(tmp_path: Path) -> None:
    events: list[Event] = []
    spread = DENSE.copy()
    spread[:, 3] = 1e6
    result = ingest((spread, y), tmp_path / "a", emit=events.append)
    assert "scale" in result["warnings"][0]
    assert any(isinstance(event, Warned) for event in events)


def test_threads_end_with_the_work(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    (tmp_path / "bad.svm").write_text("1 1:1\n" * 300_000 + "1 1:x\n")
    with pytest.raises(DataError, match=":300001"):
        ingest(tmp_path / "bad.svm", tmp_path / "a", memory="8MiB", chunk_bytes=1 << 18)

    def observer(event: Event) -> None:
        if isinstance(event, WorkAdvanced):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(tmp_path / "bad.svm", tmp_path / "a", memory="8MiB", chunk_bytes=1 << 18, emit=observer)
    left = set(threading.enumerate()) - before
    assert not [thread.name for thread in left if "bigsvm" in thread.name]
    assert [path.name for path in tmp_path.iterdir()] == ["bad.svm"]


def test_on_thread_stays_bounded_and_closes() -> None:
    made: list[int] = []
    closed = threading.Event()

    def numbers() -> Iterator[int]:
        try:
            for k in range(1000):
                made.append(k)
                yield k
        finally:
            closed.set()

    with on_thread(numbers(), depth=2) as ahead:  # type: ignore[arg-type]
        assert next(ahead) == 0
        assert len(made) <= 5
    assert closed.is_set()
    assert len(made) <= 6


@pytest.mark.parametrize("memory", [None, "64MiB"])
def test_ingest_tells_its_memory_as_a_fit_does(
    memory: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is held while rows are written is told, and what the caller holds already is in the base.

    The memory that is looked for is mapped anew: what rows need may come from what this process has freed before.
    """
    watched: list[Watched] = []

    def watching() -> Watched:
        watched.append(Watched())
        return watched[-1]

    def goes_on_when_seen(event: Event) -> None:
        if isinstance(event, WorkAdvanced) and event.done > X.nbytes // 2 and not seen:
            with mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as mapped:
                mapped[::4096] = b"1" * (len(mapped) >> 12)  # a page is there once it is written to
                watched[-1].wait_for_a_look()
            seen.append(event)

    monkeypatch.setattr("bigsvm.store.ingest.ingest.PeakMemory", watching)
    X, seen = np.random.default_rng(0).standard_normal((30_000, 40)).astype(np.float32), list[Event]()
    options: dict[str, Any] = {"memory": memory, "chunk_bytes": 4 << 20, "emit": goes_on_when_seen}
    told = ingest((X, np.arange(30_000) % 2), tmp_path / "rows.zarr", **options)["memory"]
    assert told["budget_bytes"] == (None if memory is None else 64 << 20)
    held = told["peak_anon_bytes"] - told["base_bytes"]
    assert 16 << 20 <= held <= 64 << 20
    assert told["base_bytes"] >= X.nbytes
    assert seen


def test_bytes_of_a_chunk_are_a_number_or_written_with_a_unit(tmp_path: Path) -> None:
    X, y = np.arange(40_000.0).reshape(-1, 4), np.arange(10_000) % 2
    found = [
        ingest((X, y), tmp_path / str(k), chunk_bytes=size)["store_fingerprint"]
        for k, size in enumerate([32 << 10, "32KiB", f"{32 << 10}"])
    ]
    assert len(set(found)) == 1
    assert len(list((tmp_path / "1" / "X" / "c").iterdir())) == 10
    with pytest.raises(UsageError, match="size"):
        ingest((X, y), tmp_path / "bad", chunk_bytes="many")


@pytest.mark.slow
def test_benchmark_runs() -> None:
    script = Path(__file__).parents[2] / "scripts" / "benchmarks" / "bench_ingest.py"
    done = subprocess.run([sys.executable, script, "--smoke"], capture_output=True, text=True, check=True)
    assert "bigsvm ingest" in done.stdout
