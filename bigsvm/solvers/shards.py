"""How many shards the rows make, and how many sums a pass: functions of the data's shape, never of who computes."""

from __future__ import annotations

import math

from bigsvm.config import FitConfig
from bigsvm.errors import UsageError
from bigsvm.solvers.base import DataShape, Solver
from bigsvm.solvers.shard_seconds import NOMINAL, sum_seconds

_SHARD_BYTES = 16 * 10**9
_MOST_SHARDS = 256
_ROUNDS = (64, 256)  # of a pass, at least and at most, for 4 a shard
_A_SHARD = 4
_PIECES = 8  # of a shard, at least
_LEAST_ROUNDS = 16
_LEAST_ROWS = 4, 8  # of a shard in a round: where rounds are asked for, and where not
_SUMS_SHARE = 2.0  # of the reading of a pass, that its sums may take


def shards_of(config: FitConfig, data_bytes: int) -> int:
    """As asked; else 1 below 16 GB, then the power of two next to one for each 16 GB, 256 at most.

    A fit that starts from an earlier model has one.  Raises UsageError where more are asked for.
    """
    if config.warm_start is not None:
        if config.shards is not None and config.shards > 1:
            raise UsageError("shards do not start from an earlier model", hint="leave out --shards or --warm-start")
        return 1
    if config.shards is not None:
        return config.shards
    shards = 1
    while shards < _MOST_SHARDS and data_bytes > 1.5 * shards * _SHARD_BYTES:
        shards *= 2
    return shards


def extent_rows_of(extent_rows: int, shape: DataShape) -> int:
    """Rows read in one piece: no more than let every shard have several pieces."""
    return extent_rows if shape.shards == 1 else max(min(extent_rows, shape.n_samples // (_PIECES * shape.shards)), 1)


def rounds_of(config: FitConfig, shape: DataShape, data_bytes: int, solver: Solver) -> int:
    """As asked; else 4 a shard, from 64 to 256, halved while the sums would take twice as long as the reading.

    Not below one a shard, nor below 16: coordinate descent then needs several times the passes.  No more than
    one for every eight rows of a shard (for every four, where they are asked for): beyond, a round costs more to begin
    than its rows do.  Where it is told how long a sum takes, those that are best for it.  Solvers that add up
    what a whole pass has found have one; UsageError where more are asked of them.
    """
    shards = shape.shards
    if shards == 1:
        return 1
    if not solver.in_rounds:
        if (config.rounds_per_pass or 1) > 1:
            hint = "leave out --rounds-per-pass, or use --solver dcd"
            raise UsageError(f"solver {solver.name!r} adds shards up once a pass", hint=hint)
        return 1
    asked, chosen = (max(-(-shape.n_samples // (shards * least)), 1) for least in _LEAST_ROWS)
    if config.rounds_per_pass is not None:
        return min(config.rounds_per_pass, asked)
    return min(rounds_for(shards, weights_of(shape), data_bytes, config.sum_seconds), chosen)


def rounds_for(shards: int, weight_bytes: int, data_bytes: int, told: float | None = None) -> int:
    """What the plan chooses where every shard has rows enough: see `rounds_of`.

    told : seconds of a sum, where somebody knows.  Then P is the power of two nearest to the one with which
        (1 + L / P) (T_pass + P T_sum), the seconds of a fit in units of one machine's passes, is least
    """
    if told is not None:
        pass_s = data_bytes / shards * NOMINAL.row_byte
        nearest = 2 ** round(math.log2(max(shards * pass_s / told, 1.0)) / 2.0)
        return min(max(nearest, shards, _LEAST_ROUNDS), _ROUNDS[1])
    rounds = min(max(_A_SHARD * shards, _ROUNDS[0]), _ROUNDS[1])
    sum_s = sum_seconds(weight_bytes)
    most_s = _SUMS_SHARE * data_bytes / shards * NOMINAL.row_byte
    while rounds // 2 >= max(shards, _LEAST_ROUNDS) and rounds * sum_s > most_s:
        rounds //= 2
    return rounds


def weights_of(shape: DataShape) -> int:
    """Bytes of w, of all models."""
    return shape.weight_bytes * shape.n_features * shape.n_models
