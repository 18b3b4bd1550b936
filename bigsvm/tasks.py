"""Where work leaves the calling process: shares, tasks, mappers, and the one loop that sends shares out.

A *piece* says which part of the work comes next: a run of block addresses, one address, a number.  The caller makes a
*share* of it, a small picklable value (a NamedTuple) with all that the work needs: the data source, which pickles into
its name, the addresses, and the parts of arrays that belong to these rows.  A *task* is a function of a module that
takes one share and returns what it found.  Tasks are pure: a task that is lost with its worker runs again elsewhere.
One exception is allowed: a share that stays in this process (`Mapper.in_process`) may hold views of the caller's arrays
for the task to write into.  A *mapper* runs tasks: here, on threads, or in other processes.
A share may hold a value that `Mapper.publish` has made known: it travels once, and the task finds it in its place.

`over_shares` is the only caller of `Mapper.map`: whatever moves work to another machine changes this file and the
mappers, and no solver.

Some work belongs to a *shard*: rows that keep their own state (alpha, rows kept in memory) where they are, so that only
vectors of the size of w travel.  For it mappers have three more verbs: `publish` makes a value known everywhere once,
`on_shards` runs a task for each shard, always in the same place while that place lasts, and `reduce` adds the results
up in a tree (`TreeSum`) that depends on the number of shards alone: the same bits, whoever adds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, overload

import numpy as np

FAN_IN = 4
"""Results of shards that are added at a time."""
BLOCKS_PER_TASK = 16
"""Blocks of a share whose result is as large as w: fewer, larger results cost less to send and to add up."""
NOBODY_S = 300.0
"""Seconds without a worker after which a cluster counts as lost."""
LOOK_S = 2.0
"""Seconds of waiting for workers after which somebody looks who is there."""

P = TypeVar("P")
S = TypeVar("S")
R = TypeVar("R")
T = TypeVar("T")


class ShardSum(NamedTuple):
    """What tasks on shards found: something of each shard, and vectors that are added up.

    each : one entry a shard, in the order of the shards
    vectors : arrays of one shape and dtype for all shards; added in float64
    """

    each: tuple[Any, ...]
    vectors: tuple[np.ndarray, ...] = ()


def added(*parts: ShardSum) -> ShardSum:
    """Sum of at most `FAN_IN` results of shards that follow one another; a single one is itself."""
    if len(parts) == 1:
        return parts[0]
    vectors = []
    for same in zip(*(part.vectors for part in parts), strict=True):
        total = same[0].astype(np.float64)
        for vector in same[1:]:
            total += vector
        vectors.append(total.astype(same[0].dtype, copy=False))
    return ShardSum(tuple(entry for part in parts for entry in part.each), tuple(vectors))


class TreeSum:
    """Adds results up as they come, by fours, then fours of fours, and so on: few are held at one time."""

    def __init__(self) -> None:
        self._levels: list[list[ShardSum]] = []

    def take(self, part: ShardSum, level: int = 0) -> None:
        """The result of the next shard."""
        if level == len(self._levels):
            self._levels.append([])
        waiting = self._levels[level]
        waiting.append(part)
        if len(waiting) == FAN_IN:
            self._levels[level] = []
            self.take(added(*waiting), level + 1)

    def total(self) -> ShardSum:
        """The sum of all that was taken, at least one."""
        level = 0
        while level < len(self._levels) - 1 or len(self._levels[level]) > 1:
            waiting, self._levels[level] = self._levels[level], []
            if waiting:
                self.take(added(*waiting), level + 1)
            level += 1
        return self._levels[level][0]


class Mapper(Protocol):
    """Runs pure tasks somewhere; results come in the order of the shares.

    `shares` is pulled lazily, and at most `at_most` tasks (a few more than workers by default) run or wait to
    be taken at one time: what they hold is the caller's memory.  A failed task raises, at its place.  Closing the
    generator cancels the tasks that wait, and in this process waits for those that run.
    """

    in_process: bool
    """Tasks see the caller's own arrays: nothing is copied, and in-place work is visible."""
    n_workers: int
    traffic: Any
    """What it has moved between processes (`run/execute/traffic.py`); None where tasks run in this one."""

    def map(
        self, task: Callable[[S], R], shares: Iterable[S], at_most: int | None = None
    ) -> Generator[R, None, None]: ...

    def check(self, store: Any, scratch: Any, needed: int) -> None:
        """Refuse workers of other processes that do not see the rows or the scratch folder, or lack `needed` bytes."""

    def publish(self, value: Any) -> Any:
        """`value`, known to all workers by the name that is returned until nobody holds that any more."""

    def on_shards(
        self, task: Callable[..., ShardSum], shards: Sequence[Any], published: Any, at_most: int | None = None
    ) -> Any:
        """Begin `task(shard, value)` for each shard, where that shard was worked on last; what `reduce` takes.

        at_most : tasks that run at one time in this process, for a caller that has counted their memory
        """

    def reduce(self, begun: Any) -> ShardSum:
        """The sum of what `on_shards` began, in the order of a `TreeSum`.  Raises what a task raises."""


class MapperHere:
    """The verbs of shards for mappers of this process, whose `map` runs tasks as their results are asked for."""

    traffic: Any = None

    def map(self, task: Callable[[S], R], shares: Iterable[S], at_most: int | None = None) -> Generator[R, None, None]:
        raise NotImplementedError

    def check(self, store: Any, scratch: Any, needed: int) -> None:
        """Nobody is to be asked."""

    def publish(self, value: T) -> T:
        """The value itself."""
        return value

    def on_shards(
        self, task: Callable[..., ShardSum], shards: Sequence[Any], published: Any, at_most: int | None = None
    ) -> Any:
        """What is to be called; nothing runs yet."""
        return [partial(task, shard, published) for shard in shards], at_most

    def reduce(self, begun: Any) -> ShardSum:
        """Calls them, and adds up as results come."""
        calls, at_most = begun
        total = TreeSum()
        with closing(self.map(_called, calls, at_most)) as results:
            for result in results:
                total.take(result)
        return total.total()


def _called(work: Callable[[], R]) -> R:
    return work()


_NOTES: ContextVar[dict[str, int] | None] = ContextVar("notes of a task", default=None)


def note(what: str, number: int = 1) -> None:
    """A task tells whoever runs it of something worth counting: 'made_anew' or 'replayed' (see `Traffic`)."""
    notes = _NOTES.get()
    if notes is not None:
        notes[what] = notes.get(what, 0) + number


@contextmanager
def noting() -> Iterator[dict[str, int]]:
    """What the tasks that run in this block, on this thread, tell by `note`."""
    notes: dict[str, int] = {}
    token = _NOTES.set(notes)
    try:
        yield notes
    finally:
        _NOTES.reset(token)


class SerialMapper(MapperHere):
    """One task after another, here."""

    in_process = True
    n_workers = 1

    def map(self, task: Callable[[S], R], shares: Iterable[S], at_most: int | None = None) -> Generator[R, None, None]:
        """Runs each task when its result is asked for."""
        yield from map(task, shares)  # which lets go of a share before the next one is made


def side_by_side(work: Callable[[S], R], items: Sequence[S], at_most: int, name: str) -> list[R]:
    """What `work` makes of each item, in order, on at most so many threads of that name; on none where one would do.

    Starting a thread, and waiting for it, takes longer than a step of a small fit.
    """
    threads = min(at_most, len(items))
    if threads <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads, name) as pool:
        return list(pool.map(work, items))


class Counted(Protocol):
    """A result of a task that has read data."""

    @property
    def bytes_read(self) -> int:
        """Decoded bytes of X, y and weights."""


Read = TypeVar("Read", bound=Counted)


class Account(Protocol):
    """A run to which reads are charged and which may be asked to stop: the `Context` of a solver."""

    @property
    def bytes_read(self) -> int:
        """Bytes that were read so far."""

    def stopping(self) -> bool:
        """Whether the run was asked to stop."""

    def charge(self, nbytes: int) -> None:
        """Count bytes that were read; may be called by several threads at one time."""

    def uncharge(self, to: int) -> None:
        """Forget what was read since `bytes_read` was `to`."""


class PassLeft(Exception):
    """A pass was left because the run is to stop: nothing of it counts, and it is begun again later."""


@overload
def over_shares(
    mapper: Mapper, task: Callable[[S], R], pieces: Iterable[P], share_of: Callable[[P], S], at_most: int | None = None
) -> Iterator[tuple[P, R]]: ...
@overload
def over_shares(
    mapper: Mapper,
    task: Callable[[S], Read],
    pieces: Iterable[P],
    share_of: Callable[[P], S],
    at_most: int | None = None,
    *,
    account: Account,
    may_leave: bool = False,
) -> Iterator[tuple[P, Read]]: ...
def over_shares(
    mapper: Mapper,
    task: Callable[[S], Any],
    pieces: Iterable[P],
    share_of: Callable[[P], S],
    at_most: int | None = None,
    *,
    account: Account | None = None,
    may_leave: bool = False,
) -> Iterator[tuple[P, Any]]:
    """Run `task` on the share of each piece; gives (piece, result) in the order of `pieces`, whoever ran them.

    A caller that adds results as they come therefore adds them in the order of the blocks: its sums are the same bits
    on one thread, on several, or on a cluster.  A caller that leaves the loop early leaves no task of it running in
    this process, so that arrays that tasks write into are the caller's own again.

    mapper : where tasks run
    task : a function of a module; of the share alone
    pieces : what is to be done, in order; pulled only as fast as tasks are sent out
    share_of : makes the share of a piece, here, just before it is sent: what it copies is held by no more than
        `at_most` shares at one time
    at_most : tasks that run or wait at one time, for a caller that has counted their memory
    account : is charged with the `bytes_read` of each result, once the caller has used it.  Time in which a task waits
        for a disk is the task's own and is not told: `Context.io_wait_s` is for loops that read here.
    may_leave : ask `account.stopping` after each result.  Where it says so the reads of this loop are taken off the
        account again (limits count what an undisturbed run reads) and PassLeft is raised into the caller's loop.
        There is no pause between shares: a pass in tasks is whole, or it is begun again.

    Raises what a task raises, where its result would have come.
    """
    sent: deque[P] = deque()

    def shares() -> Generator[S, None, None]:
        for piece in pieces:
            sent.append(piece)
            yield share_of(piece)

    alone = isinstance(pieces, Sequence) and len(pieces) == 1
    before = account.bytes_read if account is not None and may_leave else 0
    # A list of one share tells a pool that no other thread could help.
    with closing(shares()) as made, closing(mapper.map(task, list(made) if alone else made, at_most)) as results:
        for result in results:
            yield sent.popleft(), result
            if account is None:
                continue
            account.charge(result.bytes_read)
            if may_leave and account.stopping():
                account.uncharge(before)
                raise PassLeft


def runs_of(refs: Sequence[P], blocks: int) -> Iterator[tuple[P, ...]]:
    """Runs of `blocks` addresses that follow one another (the last may be shorter): the pieces of most passes."""
    for first in range(0, len(refs), blocks):
        yield tuple(refs[first : first + blocks])
