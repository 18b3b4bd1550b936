"""Prices of `bigsvm/solvers/shard_seconds.py` from measured passes, and what lost workers add."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

from bigsvm.solvers.shard_seconds import PassSeconds, Prices, ShardedPass, pass_seconds, units
from cluster.passes import Measured

NOTICED_S = 2.0  # until somebody looks for a worker that is gone


def fitted(passes: Sequence[Measured], save_byte: float) -> Prices:
    """Prices that are not negative and explain the seconds of all passes, in least squares of relative errors.

    save_byte : of the bytes of saves, which pass and part do not tell apart from those of rows: it is measured alone
    """
    prices = {"save_byte": save_byte}
    counts = [units(one.work, one.workers) for one in passes]
    saved = [save_byte * count["saves"]["save_byte"] for count in counts]
    works = [{**count["parts"], "save": count["saves"]["save"]} for count in counts]
    prices |= _prices(works, [one.work_s - bytes_s for one, bytes_s in zip(passes, saved, strict=True)])
    prices |= _prices([count["sums"] for count in counts], [one.sum_s for one in passes])
    prices |= _prices([count["caller"] for count in counts], [one.caller_s for one in passes])
    return Prices(**prices)


def _prices(counts: list[dict[str, float]], seconds: list[float]) -> dict[str, float]:
    names = list(counts[0])
    b = np.maximum(seconds, 1e-9)
    A = np.array([[count[name] for name in names] for count in counts]) / b[:, None]
    scale = np.maximum(A.max(axis=0), 1e-300)  # of columns that differ by fifteen orders
    found, _ = nnls(A / scale, np.ones(len(b)))
    return dict(zip(names, (found / scale).tolist(), strict=True))


def foretold(one: Measured, prices: Prices) -> PassSeconds:
    """What the prices make of a measured pass."""
    return pass_seconds(one.work, one.workers, prices)


def loss_seconds(work: ShardedPass, workers: int, prices: Prices) -> float:
    """Of one lost worker, on average: the others wait for it.

    Its shards are spread over the others, which read them anew and repeat half a pass of their rounds, since a save
    ends every pass.  Another worker comes in its place, takes as many shards, and makes them anew once more.
    """
    used = min(workers, work.shards)
    lost = -(-work.shards // used)
    parts = pass_seconds(work, work.shards, prices).parts  # of one shard
    one = work.data_bytes / work.shards * prices.row_byte + 0.5 * parts
    each = -(-lost // (used - 1)) if used > 1 else 0
    return NOTICED_S + (each + lost) * one


def with_losses(seconds: float, work: ShardedPass, workers: int, prices: Prices, between_s: float) -> float:
    """Of a fit that takes so many seconds undisturbed, where each worker is lost once in `between_s` on average.

    inf where losses come faster than they are made good.
    """
    used = min(workers, work.shards)
    share = used * loss_seconds(work, workers, prices) / between_s
    return seconds / (1.0 - share) if share < 1.0 else float("inf")
