"""Where work leaves the calling process: shares, tasks, mappers, and the one loop that sends shares out.

A *piece* says which part of the work comes next: a run of block addresses, one address, a number.  The caller makes a
*share* of it, a small picklable value (a NamedTuple) with all that the work needs: the data source, which pickles into
its name, the addresses, and the parts of arrays that belong to these rows.  A *task* is a function of a module that
takes one share and returns what it found.  Tasks are pure: a task that is lost with its worker runs again elsewhere.
One exception is allowed: a share that stays in this process (`Mapper.in_process`) may hold views of the caller's arrays
for the task to write into.  A *mapper* runs tasks: here, on threads, or in other processes.

`over_shares` is the only caller of `Mapper.map`: whatever moves work to another machine changes this file and the
mappers, and no solver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Protocol, TypeVar, overload

BLOCKS_PER_TASK = 16
"""Blocks of a share whose result is as large as w: fewer, larger results cost less to send and to add up."""

P = TypeVar("P")
S = TypeVar("S")
R = TypeVar("R")


class Mapper(Protocol):
    """Runs pure tasks somewhere; results come in the order of the shares.

    `shares` is pulled lazily, and at most `at_most` tasks (a few more than workers by default) run or wait to
    be taken at one time: what they hold is the caller's memory.  A failed task raises, at its place.  Closing the
    generator cancels the tasks that wait, and in this process waits for those that run.
    """

    in_process: bool
    """Tasks see the caller's own arrays: nothing is copied, and in-place work is visible."""
    n_workers: int

    def map(
        self, task: Callable[[S], R], shares: Iterable[S], at_most: int | None = None
    ) -> Generator[R, None, None]: ...


class SerialMapper:
    """One task after another, here."""

    in_process = True
    n_workers = 1

    def map(self, task: Callable[[S], R], shares: Iterable[S], at_most: int | None = None) -> Generator[R, None, None]:
        """Runs each task when its result is asked for."""
        yield from map(task, shares)  # which lets go of a share before the next one is made


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
