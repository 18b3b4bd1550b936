"""Sums that take longer: does a fit take as long as the law says, and are the rounds of the plan well chosen?

    seconds = S (1 + a L / P) (T_pass + P (T_sum + delay))

Passes to the gap do not depend on the delay, since the bits do not: they are counted once for each number of rounds.
Seconds of a pass are measured with every delay.  S, a, T_pass and T_sum are fitted once: S and a to the counts, the
others to the passes with the shortest delay.  The plan is told how long a sum takes (--sum-seconds).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from bigsvm.solvers.shard_seconds import passes_factor
from bigsvm.solvers.shards import rounds_for
from cluster.bars import Row, bar
from cluster.cages import Cage
from cluster.passes import MODEL, events_of, fit, memory_for
from cluster.rows import write_rows

_DELAYS = (0.02, 0.1, 0.5)
_ROUNDS = (4, 16, 64, 256)
_SHARDS = 8
_SHARD_BYTES = 16e9  # what the plan makes shards of
_OFF = 0.2
_WORSE = 1.15
_LONGEST_S = 60.0  # of a pass: more says nothing new
_CORES = 0.3  # of each fit: they are measured side by side
_DELAYED = """
import sys, time
from bigsvm.cli.main import main
from bigsvm.tasks import SerialMapper

reduce, delay = SerialMapper.reduce, float(sys.argv.pop(1))

def reduce_late(self, begun, *more):
    time.sleep(delay)
    return reduce(self, begun, *more)

SerialMapper.reduce = reduce_late
main()
"""
"""A fit whose sums over shards take longer."""


def measure(work: Path, smoke: bool) -> Iterator[Row]:
    """The law at each number of rounds and delay, and the plan's rounds at each delay."""
    delays, rounds, shards = ((0.001,), (2, 4), 2) if smoke else (_DELAYS, _ROUNDS, _SHARDS)
    store = work / "delays.zarr"
    write_rows(store, *((2_000, 500) if smoke else (300_000, 5_000)))
    passes = {P: _passes(store, work, shards, P) for P in rounds}
    one = _passes(store, work, 1, 1)
    counts = np.array([passes[P] for P in rounds])
    (S, slope), _ = nnls(np.array([[1.0, shards / P] for P in rounds]) / counts[:, None], np.ones(len(counts)))
    a = slope / S
    wanted = [(delay, P) for P in reversed(rounds) for delay in reversed(delays) if delay * P <= _LONGEST_S]
    with ThreadPoolExecutor(len(delays)) as pool:
        seconds = dict(
            zip(wanted, pool.map(lambda two: _pass_s(store, work, shards, *two, smoke), wanted), strict=True)
        )
    shortest = min(delays)
    A = np.array([[1.0, P] for P in rounds])
    b = np.array([seconds[shortest, P] - P * shortest for P in rounds])
    weight = 1.0 / np.array([seconds[shortest, P] for P in rounds])
    (pass_s, sum_s), _ = nnls(A * weight[:, None], np.maximum(b, 0.0) * weight)
    fitted = f"a = {a:.2f}, S = {S:.1f} (one shard: {one:.0f})"
    how = f"L = {shards}, {fitted}, T_pass = {pass_s:.2f} s, T_sum = {1000 * sum_s:.1f} ms"
    for delay in delays:
        for P in (P for P in rounds if (delay, P) in seconds):
            took = passes[P] * seconds[delay, P]
            law = S * passes_factor(shards, P, a) * (pass_s + P * (sum_s + delay))
            what = f"{1000 * delay:.0f} ms, P = {P}: {passes[P]:.0f} passes of {seconds[delay, P]:.2f} s; {how}"
            yield bar("delays", what, "of the law, off by", abs(took / law - 1.0), _OFF)
    for delay in delays:
        planned = rounds_for(shards, 4 * 10**6, int(_SHARD_BYTES * shards), delay)
        if planned not in passes:
            passes[planned] = _passes(store, work, shards, planned)
        times = {P: passes[P] * (_SHARD_BYTES / 1e9 + P * delay) for P in {*rounds, planned}}
        best = min(rounds, key=lambda P: times[P])
        what = f"{1000 * delay:.0f} ms, shards of 16 GB: the plan's P = {planned} beside P = {best}"
        figure = "times the seconds of the best of " + ", ".join(map(str, rounds))
        yield bar("rounds", what, figure, times[planned] / times[best], _WORSE)


def _shape(shards: int, P: int) -> list[str]:
    return ["--shards", str(shards)] + (["--rounds-per-pass", str(P)] if shards > 1 else [])


def _passes(store: Path, work: Path, shards: int, P: int) -> float:
    shape = _shape(shards, P)
    memory = memory_for(store, shards, P, 0.1)
    words = [*MODEL, *shape, "--memory", f"{memory}b", "--scratch", str(work / "scratch"), "--max-passes", "200"]
    return float(fit(None, store, work / f"delays-{shards}-{P}", words)["passes"])


def _pass_s(store: Path, work: Path, shards: int, delay: float, P: int, smoke: bool) -> float:
    """Seconds of a pass, on average; the proof at the end of a fit does not count."""
    passes = 2 if delay * P > 20.0 else 4
    shape = _shape(shards, P)
    words = [*MODEL, *shape, "--memory", "48MiB", "--scratch", str(work / "scratch"), "--tol", "1e-9"]
    out = work / f"delayed-{P}-{delay}"
    cage = Cage(f"delay-{P}-{delay}", None if smoke else _CORES)
    try:
        fit(
            None, store, out, [*words, "--scheduler", "serial", "--max-passes", str(passes)],
            ("-c", _DELAYED, str(delay)), cage,
        )  # fmt: skip
    finally:
        cage.close()
    last = [event for event in events_of(out) if event["event"] == "EpochEnd"][-1]
    return float(last["wall_s"] / round(last["passes"]))
