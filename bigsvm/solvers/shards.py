"""The number of shards, and of sums (rounds) in a pass: functions of the data's shape, never of the workers."""

from __future__ import annotations

import math

from bigsvm.config import FitConfig
from bigsvm.errors import UsageError
from bigsvm.solvers.base import DataShape, Solver
from bigsvm.solvers.shard_seconds import NOMINAL, sum_seconds

_SHARD_BYTES = 16 * 10**9
_MOST_SHARDS = 256
_A_SHARD = 4  # rounds in a pass for each shard, within
_ROUNDS = (64, 256)
_PIECES = 8  # pieces of each shard that are read apart, at least
_LEAST_ROUNDS = 16  # fewer rounds need several times the passes
_LEAST_ROWS = 4, 8  # rows of a shard in a round, at least: with --rounds-per-pass, and without
_SUMS_SHARE = 2.0  # the sums of a pass may take this many times as long as its reading


def shards_of(config: FitConfig, data_bytes: int) -> int:
    """The number of shards: as asked for, else 1 below 16 GB and then one for each 16 GB (a power of two, at most 256).

    A fit that starts from an earlier model has one shard.  Raises UsageError if more are asked for.
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
    """Rows read in one piece: `extent_rows`, or fewer so that every shard has several pieces."""
    return extent_rows if shape.shards == 1 else max(min(extent_rows, shape.n_samples // (_PIECES * shape.shards)), 1)


def rounds_of(config: FitConfig, shape: DataShape, data_bytes: int, solver: Solver) -> int:
    """The number of rounds in a pass: as asked for, else as `rounds_for` chooses.

    There is at most one round for every eight rows of a shard (or every four, if rounds are asked for): with more, a
    round takes longer to start than its rows take.  Solvers that add the shards up once a pass have one round; raises
    UsageError if more are asked for.
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
    """The number of rounds for shards that have many rows.

    It is 4 for each shard, from 64 to 256, then halved while the sums of a pass would take more than twice as long as
    its reading; but at least one for each shard, and 16.

    told : seconds of a sum on the user's cluster (--sum-seconds), if known.  Then P is the power of two nearest to the
        minimum of (1 + L / P) (T_pass + P T_sum), which the seconds of a fit are proportional to
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
    """Bytes of w of all models."""
    return shape.weight_bytes * shape.n_features * shape.n_models
