"""A round of block SMO: active sets in memory are solved, then one pass brings the other rows up to date.

Of several models each has an active set of its own, in one row buffer that holds a row once for all of them; the pass
reads the rows once for all, and a kernel value that several models want is computed once (`moved_rows.py`).  Where more
rows are wanted than there is room for, each model has those that violate most in it, on either side: as many of one as
of another, and as many that may rise as may fall, because a step takes one of each.
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

_SMALL = 4096  # programmes of so few rows are active as a whole
_HELD = 3  # quarters of the capacity that active sets take where rows do not all fit
_SAMPLING = 7  # a key of random numbers, beside the seed


def active_rows(capacity: int) -> int:
    """Rows that active sets take of a row buffer that does not hold all."""
    return max(capacity * _HELD // 4, 2)


@dataclass
class RoundWork:
    """What all models in work share between two pauses.

    row : of the data, where the pass goes on
    """

    row: int = 0
    row_buffer: Any = field(default=None, metadata={"derived": True})


class Round:
    """One round of some models, begun or taken up again."""

    def __init__(self, members: Sequence[Member], work: RoundWork) -> None:
        self.members, self.work = members, work
        self.ctx, self.data = members[0].ctx, members[0].rows.data

    def run(self) -> list[Progress]:
        """The rest of the round, or one share of work on each active set that is not solved yet."""
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
            # Of a model that is alone f of all rows may be known; several are looked at together, after their pass.
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
        # What was done is told when the while is over: it counts once, wherever it was left.
        return [Progress(False, False, 0, 0, member.work.violation, paused=True) for member in self.members]

    def _wanted(self) -> np.ndarray:
        """Rows that models want in their present stage, ascending."""
        return distinct([member.numbers(member.wanted()) for member in self.members])

    # -- the active sets

    def _choose(self) -> None:
        """The next active sets, of rows that are in the row buffer; models that have none yet begin with a sample."""
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
        elif len(held):  # taken up again
            taken = held[: work.row_buffer.load(held, charge=False)]
            chosen = [among(member, some, taken) for member, some in zip(going_on, chosen, strict=True)]
        for member in new:
            member.begin_first()
        first = self._first(new, max(room - len(held), 0))
        for member in choosing:  # not before: rows outside of the band of the pass are no longer in the row buffer
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
        """Rows that active sets may take.

        Where not all rows can be held a part of the capacity is left to those that the pass will find: sets that fill
        it with free rows would never hear of any other.
        """
        return capacity if self._n_rows <= capacity else active_rows(capacity)

    @property
    def _n_rows(self) -> int:
        """Distinct rows of all models, at most."""
        return min(sum(member.qp.n for member in self.members), self.data.n)

    def _is_whole(self, member: Member) -> bool:
        """Whether all rows of a model may be active, from its first round to its last: they are few, and have room."""
        return member.qp.n <= _SMALL and self._n_rows <= self.work.row_buffer.capacity

    def _stays_whole(self, member: Member) -> bool:
        return member.all_active and self._is_whole(member)

    def _limited(
        self, members: Sequence[Member], wants: Sequence[tuple[np.ndarray, Violations]], room: int
    ) -> list[np.ndarray]:
        """Of rows that models want, by position and by how much they violate, as many as there is room for."""
        wanted = [member.numbers(some) for member, (some, _) in zip(members, wants, strict=True)]
        if len(distinct(wanted)) <= room:
            return [some for some, _ in wants]
        stay = np.sort(worst_first(wanted, [found for _, found in wants])[:room])
        return [some[np.isin(mine, stay)] for (some, _), mine in zip(wants, wanted, strict=True)]

    def _first(self, members: Sequence[Member], room: int) -> list[np.ndarray]:
        """First active sets: whole programmes that are small, samples of others; of a warm start what it wants."""
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
        """Some rows at random: of streamed rows whole blocks, so that little is read, the same ones for all models."""
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
        """f of the rows outside the active sets, and candidates among them; False where the run is to stop before."""
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
        """Candidates of a block for the next active sets; the lesser half of all goes where there are too many."""
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
        """Rows that stay, ascending: active ones, and of candidates those that violate more than the lesser half.

        The row buffer lets go of the others, and flags and the threshold say so; those of a new block it has not yet.
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
