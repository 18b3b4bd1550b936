"""Work that may run on threads or in other processes: shares, tasks, mappers, and the one loop that sends shares out.

A *piece* names a part of the work: a run of block addresses, one address, a number.  From a piece the caller makes a
*share*, a small picklable NamedTuple with all that the work needs: the data source (which pickles as its name), the
addresses, and the parts of arrays that belong to these rows.  A *task* is a module-level function that takes one share
and returns its result.  A *mapper* runs tasks: in this thread, on threads, or in other processes.

Tasks are pure, so a task that is lost with its worker can run again elsewhere.  One exception is allowed: if tasks run
in this process (`Mapper.in_process`), a share may hold views of the caller's arrays for the task to write into.  A
share may also hold what `Mapper.publish` returned; the value is sent once, and the task finds it in the share.

`over_shares` is the only caller of `Mapper.map`.  A new way to move work to other machines changes this file and the
mappers, but no solver.

Other work belongs to a *shard*: a part of the rows whose state (alpha, rows kept in memory) stays on one worker, so
that only vectors of the size of w travel.  For shards mappers have three more methods.  `publish` sends a value to all
workers once.  `on_shards` runs a task for each shard, on the worker that has the shard as long as it lives.  `reduce`
adds the results up in a tree (`TreeSum`) that depends only on the number of shards, so the sum has the same bits
wherever it is computed.
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
"""Results of shards that a node of the tree adds up."""
BLOCKS_PER_TASK = 16
"""Blocks of a share whose result is as large as w: few results cost less to send and to add up."""
NOBODY_S = 300.0
"""Seconds without any worker after which a cluster counts as lost."""
LOOK_S = 2.0
"""Seconds between two checks which workers are alive."""

P = TypeVar("P")
S = TypeVar("S")
R = TypeVar("R")
T = TypeVar("T")


class ShardSum(NamedTuple):
    """The result of a task on a shard, or of several shards together.

    each : one entry for each shard, in the order of the shards
    vectors : arrays of one shape and dtype for all shards; added in float64
    """

    each: tuple[Any, ...]
    vectors: tuple[np.ndarray, ...] = ()


def added(*parts: ShardSum) -> ShardSum:
    """The sum of at most `FAN_IN` results of consecutive shards; a single result is returned as it is."""
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
    """Adds results up as they come: four at a time, then four of these sums, and so on, so that few are in memory."""

    def __init__(self) -> None:
        self._levels: list[list[ShardSum]] = []

    def take(self, part: ShardSum, level: int = 0) -> None:
        """Add the result of the next shard."""
        if level == len(self._levels):
            self._levels.append([])
        waiting = self._levels[level]
        waiting.append(part)
        if len(waiting) == FAN_IN:
            self._levels[level] = []
            self.take(added(*waiting), level + 1)

    def total(self) -> ShardSum:
        """The sum of all results; there must be at least one."""
        level = 0
        while level < len(self._levels) - 1 or len(self._levels[level]) > 1:
            waiting, self._levels[level] = self._levels[level], []
            if waiting:
                self.take(added(*waiting), level + 1)
            level += 1
        return self._levels[level][0]


class Mapper(Protocol):
    """Runs pure tasks somewhere; results come in the order of the shares.

    `map` pulls `shares` lazily.  At most `at_most` tasks (by default a few more than workers) are running, or have
    results that were not taken yet, because the caller's budget has to hold them.  If a task fails, its exception is
    raised where its result would have come.  Closing the generator cancels waiting tasks; in this process it also waits
    for the running ones.
    """

    in_process: bool
    """Tasks run in this process and see the caller's arrays: nothing is copied, and they may write in place."""
    n_workers: int
    traffic: Any
    """Counts of what moved between processes (`run/execute/traffic.py`); None if tasks run in this process."""

    def map(
        self, task: Callable[[S], R], shares: Iterable[S], at_most: int | None = None
    ) -> Generator[R, None, None]: ...

    def check(self, store: Any, scratch: Any, needed: int) -> None:
        """Refuse worker processes that do not see the rows or the scratch folder, or have less than `needed` bytes."""

    def publish(self, value: Any) -> Any:
        """Send `value` to all workers, once.  Returns a handle; workers keep the value as long as the handle lives."""

    def on_shards(
        self, task: Callable[..., ShardSum], shards: Sequence[Any], published: Any, at_most: int | None = None
    ) -> Any:
        """Start `task(shard, value)` for each shard, on the worker that had the shard last.

        published : handle of the value
        at_most : tasks that may run at one time in this process, if the caller has counted their memory

        Returns what `reduce` takes.
        """

    def reduce(self, begun: Any, stopping: Callable[[], bool] | None = None) -> ShardSum:
        """Wait for what `on_shards` started and add it up, in the order of a `TreeSum`.  Raises what a task raises.

        stopping : whether the run was asked to stop.  If it says so, the tasks are told to leave (`asked_to_leave`),
            and PassLeft is raised.  None: the round is waited for
        """


class MapperHere:
    """`Mapper.check` and the methods for shards, for mappers of this process."""

    traffic: Any = None

    def map(self, task: Callable[[S], R], shares: Iterable[S], at_most: int | None = None) -> Generator[R, None, None]:
        raise NotImplementedError

    def check(self, store: Any, scratch: Any, needed: int) -> None:
        """Nothing to check: this process has opened the rows and the scratch folder."""

    def publish(self, value: T) -> T:
        """The value itself."""
        return value

    def on_shards(
        self, task: Callable[..., ShardSum], shards: Sequence[Any], published: Any, at_most: int | None = None
    ) -> Any:
        """The calls to be made; nothing runs before `reduce`."""
        return [partial(task, shard, published) for shard in shards], at_most

    def reduce(self, begun: Any, stopping: Callable[[], bool] | None = None) -> ShardSum:
        """Run the tasks, and add results up as they come."""
        calls, at_most = begun
        total = TreeSum()
        with closing(self.map(partial(_called, stopping), calls, at_most)) as results:
            for result in results:
                total.take(result)
        return total.total()


def _called(stopping: Callable[[], bool] | None, work: Callable[[], R]) -> R:
    if stopping is None:
        return work()
    with leaving_when(stopping):
        return work()


def _nobody() -> bool:
    return False


_STOPPING: ContextVar[Callable[[], bool]] = ContextVar("whether to leave the work", default=_nobody)


def asked_to_leave() -> bool:
    """Whether the work on this thread is to raise PassLeft, because the run is to stop and does not wait for it."""
    return _STOPPING.get()()


def who_asks_to_leave() -> Callable[[], bool]:
    """`asked_to_leave` of this thread, for threads that it starts."""
    return _STOPPING.get()


@contextmanager
def leaving_when(stopping: Callable[[], bool]) -> Iterator[None]:
    """Within the block `asked_to_leave` says what `stopping` says, on this thread."""
    token = _STOPPING.set(stopping)
    try:
        yield
    finally:
        _STOPPING.reset(token)


_NOTES: ContextVar[dict[str, int] | None] = ContextVar("notes of a task", default=None)


def note(what: str, number: int = 1) -> None:
    """Count an event during a task, for whoever runs the task: 'made_anew' or 'replayed' (see `Traffic`)."""
    notes = _NOTES.get()
    if notes is not None:
        notes[what] = notes.get(what, 0) + number


@contextmanager
def noting() -> Iterator[dict[str, int]]:
    """Collects the counts of `note` that tasks make within the block, on this thread."""
    notes: dict[str, int] = {}
    token = _NOTES.set(notes)
    try:
        yield notes
    finally:
        _NOTES.reset(token)


class SerialMapper(MapperHere):
    """Runs one task after another in the calling thread."""

    in_process = True
    n_workers = 1

    def map(self, task: Callable[[S], R], shares: Iterable[S], at_most: int | None = None) -> Generator[R, None, None]:
        """Runs each task when its result is asked for."""
        yield from map(task, shares)  # unlike a loop, `map` drops a share before it makes the next one


def side_by_side(work: Callable[[S], R], items: Sequence[S], at_most: int, name: str) -> list[R]:
    """[work(item) for item in items], on at most `at_most` threads.

    name : of the threads.  If one thread is enough, the calling one does the work: starting a thread and waiting for it
        takes longer than a step of a small fit
    """
    threads, told = min(at_most, len(items)), np.geterr()
    if threads <= 1:
        return [work(item) for item in items]
    # Threads of a pool warn of overflows unless told as the calling one is: there the proof tells.
    with ThreadPoolExecutor(threads, name, lambda: np.seterr(**told)) as pool:
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
    """A pass was left because the run was asked to stop.  Its results are dropped, and it will begin again.

    reached : if a problem in memory was left, the weights that were reached; None if that is not known
    """

    reached: Any = None


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
    """Run `task` on the share of each piece; yields (piece, result) in the order of `pieces`, wherever tasks run.

    So a caller that adds results as they come adds them in the order of the blocks, and gets the same bits on one
    thread, on several, or on a cluster.  If the caller leaves the loop early, no task of this process is still running
    afterwards, so that arrays that tasks write into can be used again.

    mapper : where tasks run
    task : a module-level function of the share alone
    pieces : the parts of the work, in order; pulled only as fast as tasks are sent out
    share_of : makes the share of a piece, in this process, just before it is sent; at most `at_most` shares, with the
        copies that they hold, exist at one time
    at_most : tasks that may run or wait at one time, if the caller has counted their memory
    account : is charged with the `bytes_read` of each result, after the caller has used it.  The time in which tasks
        wait for a disk is not counted: `ReadAccount.waited_s` is that of loops that read in this thread
    may_leave : ask `account.stopping` after each result.  If it says so, the reads of this loop are taken off the
        account (limits count what an undisturbed run reads), and PassLeft is raised in the caller's loop.  A pass in
        tasks cannot be paused between shares: it is complete, or it begins again

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
    """Runs of `blocks` consecutive addresses (the last may be shorter): the pieces of most passes."""
    for first in range(0, len(refs), blocks):
        yield tuple(refs[first : first + blocks])
