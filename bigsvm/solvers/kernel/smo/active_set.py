"""A round of block SMO: it solves the active sets in memory, then updates f of all other rows in one pass.

Each open model has an active set of its own.  One row buffer holds the rows of all active sets, each row once.  The
pass reads the rows once for all models, and computes a kernel value that several models need only once
(`moved_rows.py`).

If the row buffer is too small, each model keeps its worst violators, and all models keep equally many.  Half of them
are rows whose beta may rise, half are rows whose beta may fall, because a step of SMO takes one of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bigsvm.solvers.kernel.dual_qp import Progress
from bigsvm.solvers.kernel.smo.candidates import among, distinct, worst_first
from bigsvm.solvers.kernel.smo.exact_scores import correct_scores
from bigsvm.solvers.kernel.smo.far_rows import bring_back, see_pass
from bigsvm.solvers.kernel.smo.member import Member
from bigsvm.solvers.kernel.smo.moved_rows import MovedRows
from bigsvm.solvers.kernel.smo.round_work import ACTIVE, NEXT, Violations
from bigsvm.solvers.kernel.values.data import Rows
from bigsvm.solvers.kernel.values.row_buffer import RowBuffer

_SMALL = 4096  # a programme of at most so many rows is active as a whole
_HELD = 3  # quarters of the capacity for active sets if not all rows fit; the rest is for candidates
_SAMPLING = 7  # key of the random numbers of the sample, with the seed


def active_rows(capacity: int) -> int:
    """The rows that active sets may take in a row buffer that does not hold all rows."""
    return max(capacity * _HELD // 4, 2)


@dataclass
class RoundWork:
    """What all open models share between two pauses.

    row : int            the row of the data at which an interrupted pass goes on; 0: no pass is under way
    row_buffer : RowBuffer, or None: its rows are read again
    """

    row: int = 0
    row_buffer: Any = field(default=None, metadata={"derived": True})


class Round:
    """One round of some models, from its start or from where it was interrupted.

    Each model goes through the stages of `SmoWork.stage`; a round ends when all of them have passed.
    """

    def __init__(self, members: Sequence[Member], work: RoundWork) -> None:
        self.members, self.work = members, work
        self.ctx, self.data = members[0].ctx, members[0].rows.data

    def run(self) -> list[Progress]:
        """Work until the round ends, or until each active set that is not solved yet had one share of work."""
        work = self.work
        if any(member.work.stage == "choose" for member in self.members):
            self._choose()
        if work.row_buffer is None:
            work.row_buffer = RowBuffer(self.data)
            work.row_buffer.load(self._wanted(), charge=False)
        for member in self.members:
            if member.work.stage == "solve" and not member.solve(work.row_buffer) and member.work.solved:
                return self._paused()
        moved = any(member.work.moved for member in self.members)
        if any(member.work.stage == "solve" for member in self.members):
            # f of all rows is known without a pass if all of them are active.  Several models are judged together,
            # after their pass.
            alone = len(self.members) == 1
            for member in self.members:
                if alone and member.all_active:
                    correct_scores(member)
            return [member.told(not (alone and member.all_active), moved) for member in self.members]
        if any(member.work.stage != "far" for member in self.members) and not self._pass():
            return self._paused()
        if any(member.work.stage == "far" and not bring_back(member) for member in self.members):
            return self._paused()
        for member in self.members:
            member.work.rounds += 1
            member.work.stage, member.work.shares = "choose", 0
            correct_scores(member)
        return [member.told(False, moved) for member in self.members]

    def _paused(self) -> list[Progress]:
        # The counts are reported when the share of work ends, so that they do not depend on where it was interrupted.
        return [Progress(False, False, 0, 0, member.work.violation, paused=True) for member in self.members]

    def _wanted(self) -> np.ndarray:
        """Numbers of all rows that the models need in their present stage, ascending."""
        return distinct([member.numbers(member.wanted()) for member in self.members])

    # -- the active sets

    def _choose(self) -> None:
        """Choose the next active sets among rows in the row buffer.  Models without one begin with a sample."""
        work = self.work
        choosing = [member for member in self.members if member.work.stage == "choose"]
        empty = work.row_buffer is None
        if empty:
            work.row_buffer = RowBuffer(self.data)
        going_on = [member for member in choosing if np.any(member.flags & (ACTIVE | NEXT))]
        new = [member for member in choosing if member not in going_on]
        others = [member.numbers(member.wanted()) for member in self.members if member not in choosing]
        room = work.row_buffer.capacity
        wants = [
            member.wants(member.flagged(ACTIVE | NEXT), member.work.middle, self._stays_whole(member))
            for member in going_on
        ]
        chosen = self._limited(going_on, wants, self._share(room))
        held = distinct([*others, *(member.numbers(some) for member, some in zip(going_on, chosen, strict=True))])
        if not empty:
            work.row_buffer.keep(held)
        elif len(held):  # a resumed run
            taken = held[: work.row_buffer.load(held, charge=False)]
            chosen = [among(member, some, taken) for member, some in zip(going_on, chosen, strict=True)]
        for member in new:
            member.begin_first()
        first = self._first(new, max(room - len(held), 0))
        for member in choosing:  # only now, because the row buffer holds the rows within the band of the last pass
            member.work.band = member.band()
        numbers = distinct([member.numbers(some) for member, some in zip(new, first, strict=True)])
        numbers = numbers[~work.row_buffer.has(numbers)] if self._streams and len(held) else numbers
        taken = numbers[: work.row_buffer.bring(numbers, charge=True)]
        if len(taken) < len(numbers):
            taken = distinct([taken, held])
            first = [among(member, some, taken) for member, some in zip(new, first, strict=True)]
        for member, some in zip([*going_on, *new], [*chosen, *first], strict=True):
            member.take(some)

    @property
    def _streams(self) -> bool:
        return not self.ctx.resident

    def _share(self, capacity: int) -> int:
        """The number of rows that active sets may take.

        If not all rows fit, a quarter of the capacity is left for candidates that the pass finds.  Otherwise free rows
        could fill the buffer, and no violating row would ever enter.
        """
        return capacity if self._n_rows <= capacity else active_rows(capacity)

    @property
    def _n_rows(self) -> int:
        """A bound of the number of distinct rows of all models."""
        return min(sum(member.qp.n for member in self.members), self.data.n)

    def _is_whole(self, member: Member) -> bool:
        """Whether all rows of a model are active in every round, because they are few and fit."""
        return member.qp.n <= _SMALL and self._n_rows <= self.work.row_buffer.capacity

    def _stays_whole(self, member: Member) -> bool:
        return member.all_active and self._is_whole(member)

    def _limited(
        self, members: Sequence[Member], wants: Sequence[tuple[np.ndarray, Violations]], room: int
    ) -> list[np.ndarray]:
        """Cut what the models want, (positions, violations) each, to `room` distinct rows; the positions left."""
        wanted = [member.numbers(some) for member, (some, _) in zip(members, wants, strict=True)]
        if len(distinct(wanted)) <= room:
            return [some for some, _ in wants]
        stay = np.sort(worst_first(wanted, [found for _, found in wants])[:room])
        return [some[np.isin(mine, stay)] for (some, _), mine in zip(wants, wanted, strict=True)]

    def _first(self, members: Sequence[Member], room: int) -> list[np.ndarray]:
        """The first active sets: all rows of a small programme, a sample of another; after a warm start, violators."""
        if not members:
            return []
        small = [self._is_whole(member) for member in members]
        if all(small):
            return [np.arange(member.qp.n) for member in members]
        cold = [whole or not np.any(member.qp.beta) for member, whole in zip(members, small, strict=True)]
        q = members[0].rules.q
        wanted = [
            member.qp.n if whole else min(max(int(member.rules.sample * member.qp.n), min(2 * q, member.qp.n)), room)
            for member, whole in zip(members, small, strict=True)
        ]
        chosen = dict.fromkeys(range(len(members)), np.empty(0, np.int64))
        sampled = [k for k, begins in enumerate(cold) if begins]
        if sampled:
            found = self._sampled([members[k] for k in sampled], [wanted[k] for k in sampled], room)
            chosen.update(zip(sampled, found, strict=True))
        warm = [k for k, begins in enumerate(cold) if not begins]
        if warm:
            some = [members[k] for k in warm]
            taken = len(distinct([members[k].numbers(chosen[k]) for k in sampled]))
            wants = [member.wants(np.arange(member.qp.n), 0.5 * sum(member.qp.bounds()), False) for member in some]
            chosen.update(zip(warm, self._limited(some, wants, min(self._share(room), room - taken)), strict=True))
        return [chosen[k] for k in range(len(members))]

    def _sampled(self, members: Sequence[Member], wanted: Sequence[int], room: int) -> list[np.ndarray]:
        """Random rows for each model; if rows stream, whole blocks, the same for all models, to read less."""
        rng = np.random.default_rng([self.ctx.seed, _SAMPLING])
        if not self._streams:
            return [np.sort(rng.choice(one.qp.n, n, replace=False)) for one, n in zip(members, wanted, strict=True)]
        chosen: list[list[np.ndarray]] = [[np.empty(0, np.int64)] for _ in members]
        left, found = list(wanted), 0
        for number in rng.permutation(len(self.ctx.refs)).tolist():
            ref = self.ctx.refs[number]
            some = []
            for member, most in zip(members, left, strict=True):
                first, end = member.positions(np.array([ref.start, ref.stop]))
                some.append(np.arange(first, end)[:most])
            numbers = distinct([member.numbers(these) for member, these in zip(members, some, strict=True)])
            if len(numbers) > room - found:
                numbers = numbers[: room - found]
                some = [among(member, these, numbers) for member, these in zip(members, some, strict=True)]
            found += len(numbers)
            for k, these in enumerate(some):
                chosen[k].append(these)
                left[k] -= len(these)
            if found >= room or not any(left):
                break
        return [np.sort(np.concatenate(these)) for these in chosen]

    # -- the pass

    def _pass(self) -> bool:
        """Update f of the rows outside the active sets, and find candidates; False if the run is to stop before."""
        work, data = self.work, self.data
        waiting = [member for member in self.members if not member.all_active]
        if waiting:
            if work.row == 0:
                work.row_buffer.keep(self._wanted())
            moved = MovedRows(waiting, work.row_buffer)
            counts = waiting[0].rows.counts
            for block in moved.blocks(work.row):
                near = []
                for member in waiting:
                    mine, _ = member.rows.of(block)
                    others = np.flatnonzero(member.waits(mine)) + mine.start
                    near.append(member.near(others))
                    member.rows.counts.asked += len(others) * moved.n_moved(member)
                self._offer(block, waiting, near)
                work.row = block.stop
                if block.stop < data.n and self.ctx.pause():
                    counts.values += moved.n_values
                    return False
            counts.values += moved.n_values
            counts.computed += moved.n_distinct
            for member in waiting:
                member.work.visits += member.qp.n
            work.row = 0
        for member in self.members:
            member.sent[:] = member.qp.beta
        if waiting and len(self.members) == 1 and not self._streams:
            see_pass(self.members[0])
        return True

    def _offer(self, block: Rows, members: Sequence[Member], near: Sequence[np.ndarray]) -> None:
        """Take candidates of a block for the next active sets.  If there are too many, only the worse half stays."""
        row_buffer = self.work.row_buffer
        if not self._streams:
            for member, positions in zip(members, near, strict=True):
                member.flags[positions] |= NEXT
            return
        numbers = distinct([member.numbers(positions) for member, positions in zip(members, near, strict=True)])
        numbers = numbers[~row_buffer.has(numbers)]
        if row_buffer.n + len(numbers) > row_buffer.capacity:
            stay = self._thinned(members, near)
            near = [among(member, positions, stay) for member, positions in zip(members, near, strict=True)]
            numbers = numbers[np.isin(numbers, stay)]
        row_buffer.offer(block, numbers)
        for member, positions in zip(members, near, strict=True):
            member.flags[positions[row_buffer.has(member.numbers(positions))]] |= NEXT

    def _thinned(self, members: Sequence[Member], near: Sequence[np.ndarray]) -> np.ndarray:
        """Drop candidates from the row buffer; the numbers of the rows that stay, ascending.

        Active rows stay, and candidates that violate most, up to half of the room for candidates.  Dropped candidates
        lose their flag, and raise the threshold for later ones (`Member.let_go`).  Rows of the block at hand, which are
        not in the buffer yet, are judged with the others.
        """
        row_buffer = self.work.row_buffer
        active = distinct([member.numbers(member.flagged(ACTIVE)) for member in self.members])
        active = active[row_buffer.has(active)]
        candidates = []
        for member, new in zip(members, near, strict=True):
            positions = np.concatenate([member.flagged(NEXT), new])
            candidates.append(positions[~np.isin(member.numbers(positions), active)])
        rows = [member.numbers(positions) for member, positions in zip(members, candidates, strict=True)]
        violations = [
            member.sides(positions, member.work.middle) for member, positions in zip(members, candidates, strict=True)
        ]
        stays = max((row_buffer.capacity - len(active)) // 2, 0)
        stay = np.sort(worst_first(rows, violations)[:stays])
        for member, positions, numbers, found in zip(members, candidates, rows, violations, strict=True):
            dropped = ~np.isin(numbers, stay)
            member.let_go(positions[dropped], found.of(dropped))
        stay = np.sort(np.concatenate([active, stay]))
        row_buffer.keep(stay)
        return stay
