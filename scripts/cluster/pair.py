"""One worker and two, each with a part of a core of its own: rows a second, with and without a slow disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cluster.bars import Row, bar
from cluster.cages import Cluster
from cluster.passes import MODEL, Measured, fit, measured, memory_for, worker_limit
from cluster.rows import write_rows

_CORES = 0.25  # of each worker
_DISK = 25_000_000  # bytes a second: 100 MB/s to a whole core
_SLOW, _FAST, _PASSES = 1.8, 1.6, 1.3


class Case(NamedTuple):
    """rows, features, shards, rounds, passes; --memory"""

    rows: int
    features: int
    shards: int
    rounds: int
    passes: int
    memory: str


def disks(work: Path, smoke: bool) -> Iterator[Row]:
    """Rows that stream from a slow disk of each worker: how many times the rows a second two of them are."""
    case = Case(2_000, 500, 2, 4, 3, "64MiB") if smoke else Case(1_200_000, 20_000, 2, 8, 4, "96MiB")
    how = "a disk of 25 MB/s each, no row buffer"
    yield from _times(work, "disks", case, None if smoke else _DISK, how, _SLOW, smoke)


def in_memory(work: Path, smoke: bool) -> Iterator[Row]:
    """The same of rows in memory."""
    case = Case(2_000, 500, 2, 4, 3, "64MiB") if smoke else Case(300_000, 20_000, 2, 8, 4, "800MiB")
    yield from _times(work, "in-memory", case, None, "rows in memory", _FAST, smoke)


def counts(work: Path, smoke: bool) -> Iterator[Row]:
    """The passes of two shards beside those of one machine."""
    store = work / "counts.zarr"
    write_rows(store, *((2_000, 500) if smoke else (200_000, 20_000)))
    one, two = (_count(work, store, shards) for shards in (1, 2))
    what = f"2 shards, 64 rounds: {two:.0f} passes, one machine {one:.0f}"
    yield bar("counts", what, "times the passes", two / one, _PASSES)


def _times(
    work: Path, name: str, case: Case, disk: int | None, how: str, least: float, smoke: bool
) -> Iterator[Row]:  # fmt: skip
    store = work / f"{name}.zarr"
    write_rows(store, case.rows, case.features)
    one, two = (_pass(work, store, name, case, workers, disk, smoke) for workers in (1, 2))
    what = (
        f"{how}, {case.shards} shards, {case.rounds} rounds, {_CORES:g} of a core each: "
        f"a pass of {one.whole:.1f} and {two.whole:.1f} s, of which sums and caller "
        f"{one.whole - one.work_s:.1f} and {two.whole - two.work_s:.1f} s"
    )
    yield bar(name, what, "times the rows a second", one.whole / two.whole, least, True)


def _pass(
    work: Path, store: Path, name: str, case: Case, workers: int, disk: int | None, smoke: bool
) -> Measured:  # fmt: skip
    shape = ["--shards", str(case.shards), "--rounds-per-pass", str(case.rounds), "--memory", case.memory]
    shape += ["--set", "row_buffer=off"] if name == "disks" else []
    memory = None
    if disk is not None:  # without room for a copy in the page cache
        memory = worker_limit(store, [*MODEL, *shape], 1)
    with Cluster(work / f"{name}-{workers}", workers, None if smoke else _CORES, memory, disk) as cluster:
        out = work / f"{name}-run-{workers}"
        words = ["--tol", "1e-4", "--max-passes", str(case.passes), "--scratch", str(work / f"scratch-{name}")]
        fit(cluster, store, out, [*MODEL, *shape, *words])
        return measured(out)


def _count(work: Path, store: Path, shards: int) -> float:
    shape = ["--shards", str(shards)] + (["--rounds-per-pass", "64"] if shards > 1 else [])
    memory = memory_for(store, shards, 64, 0.1)
    words = ["--memory", f"{memory}b", "--scratch", str(work / "scratch-counts"), "--max-passes", "100"]
    return float(fit(None, store, work / f"counts-{shards}", [*MODEL, *shape, *words])["passes"])
