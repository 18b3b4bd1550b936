"""Seconds of a pass on shards, as a price of each thing that it is made of: nominal prices, or measured ones.

A pass is made of rounds.  In a round w goes out, every worker visits a part of each of its shards, one shard after the
other, and the changes of w come back as one sum.  The rounds follow one another, so that their seconds add up:

    parts     the fullest worker's bytes of rows, its parts, and the bytes of w that each part passes over
    sums      four messages that follow one another; tasks, half of whose cost is the scheduler's and half that of the
              fullest worker, whose fetches from others cost as much; w on the caller's link out and back; and with
              several workers a tree of fan-in 4, out and back
    caller    what it does between two rounds: the log, the line search
    saves     at the end of a pass, to a disk that all workers share

`bigsvm plan --workers` and `rounds_of` use nominal prices, `scripts/simulate_cluster.py` measured ones, too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from bigsvm.tasks import FAN_IN

_MESSAGES = 4.0  # of a sum by one worker, one after another: w, tasks, their sum, the sum of sums
_ALPHA_BYTES = 9  # of a row and model in a save: alpha, and whether the row streams
_SAVED_WEIGHTS = 2  # vectors of the size of w in the save of a shard


class Prices(NamedTuple):
    """Seconds of one of each.  Those that stand here are nominal: one disk and 10 Gb/s for each worker.

    row_byte : of a worker's rows in a pass, read and visited
    part : of a shard in a round, beside its rows and w
    part_byte : of w, in a part
    sum : of nothing, by one worker
    task : of one that is sent, by scheduler and worker together
    wire_byte : between two processes
    turn : of the caller between two rounds;  turn_byte : of w, in a turn
    save : of a shard, beside its bytes;  save_byte : of all shards together
    """

    row_byte: float = 1e-9
    part: float = 0.0
    part_byte: float = 0.0
    sum: float = 0.02
    task: float = 0.0
    wire_byte: float = 0.8e-9
    turn: float = 0.0
    turn_byte: float = 0.0
    save: float = 0.0
    save_byte: float = 1e-9


NOMINAL = Prices()


class ShardedPass(NamedTuple):
    """What a pass on shards is, whoever works on it.

    data_bytes : of the rows, decoded;  saved_rows : rows times models
    weight_bytes : of w, of all models
    shards, rounds : parts of the rows, and sums in the pass
    """

    data_bytes: float
    saved_rows: float
    weight_bytes: float
    shards: int
    rounds: int


class PassSeconds(NamedTuple):
    """Seconds of a pass, or of what a unit costs in it."""

    parts: float
    sums: float
    caller: float
    saves: float

    @property
    def whole(self) -> float:
        """One after the other."""
        return self.parts + self.sums + self.caller + self.saves


def units(work: ShardedPass, workers: int) -> dict[str, dict[str, float]]:
    """How much of each price every part of a pass takes: {part of `PassSeconds`: {price: how many}}."""
    used = min(workers, work.shards)
    fullest = -(-work.shards // used)
    rounds, weights = work.rounds, work.weight_bytes
    levels, vectors = tree(used)
    additions = sum_tasks(work.shards)
    tasks = work.shards + additions + 1  # w is one, too
    own = fullest + max(additions // used, 1) + 1 + (vectors + 1 if used > 1 else 0)  # what it fetches is work, too
    return {
        "parts": {
            "row_byte": work.data_bytes * fullest / work.shards,
            "part": float(rounds * fullest),
            "part_byte": rounds * fullest * weights,
        },
        "sums": {
            "sum": rounds * (1.0 + 2.0 * levels / _MESSAGES),
            "task": rounds * (tasks + own) / 2.0,
            "wire_byte": rounds * weights * 2.0 * (1 + vectors),
        },
        "caller": {"turn": float(rounds), "turn_byte": rounds * weights},
        "saves": {
            "save": float(fullest),
            "save_byte": work.saved_rows * _ALPHA_BYTES + work.shards * weights * _SAVED_WEIGHTS,
        },
    }


def pass_seconds(work: ShardedPass, workers: int, prices: Prices = NOMINAL) -> PassSeconds:
    """Of one pass on so many workers, of which no more than there are shards have work."""
    price = prices._asdict()
    of = units(work, workers)
    return PassSeconds(*(sum(n * price[name] for name, n in of[part].items()) for part in PassSeconds._fields))


def sum_seconds(weight_bytes: float, prices: Prices = NOMINAL) -> float:
    """Of one sum by one worker: what the number of rounds is chosen by, which must not depend on who computes."""
    return prices.sum + 2.0 * weight_bytes * prices.wire_byte


def passes_factor(shards: int, rounds: int, a: float = 1.0) -> float:
    """Passes on shards over those of one machine, about.

    a : of a shard and round; 1 is nominal
    """
    return 1.0 + a * shards / rounds


def tree(workers: int) -> tuple[int, int]:
    """Levels of a tree over so many workers, and vectors that its busiest worker takes one after another."""
    levels = vectors = 0
    while workers > 1:
        levels, vectors = levels + 1, vectors + min(workers, FAN_IN) - 1
        workers = math.ceil(workers / FAN_IN)
    return levels, vectors


def sum_tasks(shards: int) -> int:
    """Additions of one sum over so many shards, fan-in 4."""
    tasks = 0
    while shards > 1:
        tasks += shards // FAN_IN + (shards % FAN_IN > 1)
        shards = math.ceil(shards / FAN_IN)
    return tasks
