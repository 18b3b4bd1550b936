"""A model of the seconds that a pass on shards takes: amounts of work, times the price of each.

A pass consists of rounds.  In a round w is sent out, every worker visits a part of each of its shards, one shard after
another, and the changes of w come back as one sum.  Rounds follow one another, so their seconds add up:

    parts     work on the fullest worker: bytes of rows, parts of shards, and bytes of w that each part passes over
    sums      four messages one after another; tasks, half of whose cost is the scheduler's and half the fullest
              worker's, where a fetch from another worker costs as much as a task; w on the link of the calling process,
              out and back; with several workers also w along a tree of fan-in 4, out and back
    caller    work of the calling process between two rounds: the log, the line search
    saves     at the end of a pass, to a disk that all workers share

`bigsvm plan --workers` and `rounds_of` use nominal prices; `scripts/simulate_cluster.py` uses measured ones too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from bigsvm.tasks import FAN_IN

_MESSAGES = 4.0  # of a sum by one worker, one after another: w, tasks, their sum, the sum of sums
_ALPHA_BYTES = 9  # of a row and model in a save: alpha, and whether the row streams
_SAVED_WEIGHTS = 2  # vectors of the size of w in the save of a shard


class Prices(NamedTuple):
    """Seconds for one unit of each kind of work.  The defaults are nominal: one disk and 10 Gb/s for each worker.

    row_byte : to read and visit a byte of rows
    part : to begin a part of a shard;  part_byte : for each byte of w in a part
    sum : for a sum of empty vectors by one worker
    task : to send a task, on scheduler and worker together
    wire_byte : to move a byte between two processes
    turn : of the calling process between two rounds;  turn_byte : for each byte of w in a turn
    save : to begin the save of a shard;  save_byte : to write a byte to the shared disk
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
    """The size of a pass on shards; it does not depend on the workers.

    data_bytes : decoded bytes of the rows;  saved_rows : rows times models
    weight_bytes : bytes of w of all models
    shards, rounds : parts of the rows, and sums in the pass
    """

    data_bytes: float
    saved_rows: float
    weight_bytes: float
    shards: int
    rounds: int


class PassSeconds(NamedTuple):
    """Seconds of each part of a pass."""

    parts: float
    sums: float
    caller: float
    saves: float

    @property
    def whole(self) -> float:
        """The sum, since the parts follow one another."""
        return self.parts + self.sums + self.caller + self.saves


def units(work: ShardedPass, workers: int) -> dict[str, dict[str, float]]:
    """How much of each price every part of a pass takes: {part of `PassSeconds`: {price: how many}}."""
    used = min(workers, work.shards)
    fullest = -(-work.shards // used)
    rounds, weights = work.rounds, work.weight_bytes
    levels, vectors = tree(used)
    additions = sum_tasks(work.shards)
    tasks = work.shards + additions + 1  # publishing w is a task too
    own = fullest + max(additions // used, 1) + 1 + (vectors + 1 if used > 1 else 0)  # of the fullest worker
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
    """Seconds of a pass on so many workers.  Workers beyond the number of shards are idle."""
    price = prices._asdict()
    of = units(work, workers)
    return PassSeconds(*(sum(n * price[name] for name, n in of[part].items()) for part in PassSeconds._fields))


def sum_seconds(weight_bytes: float, prices: Prices = NOMINAL) -> float:
    """Seconds of a sum by one worker.  The number of rounds goes by it, since it must not depend on the workers."""
    return prices.sum + 2.0 * weight_bytes * prices.wire_byte


def passes_factor(shards: int, rounds: int, a: float = 1.0) -> float:
    """About how many times the passes of one machine a fit on shards needs: 1 + a L / P.  a : 1 is nominal"""
    return 1.0 + a * shards / rounds


def tree(workers: int) -> tuple[int, int]:
    """Levels of a tree over so many workers, and vectors that its busiest worker receives one after another."""
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
