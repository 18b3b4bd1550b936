"""The update of f in a pass: each kernel value with a row that moved is computed once for all models.

A row has moved in a model if its beta has changed there since the last pass.  Models for pairs of classes share rows: a
row of class a takes part in all pairs with a.  Kernel values between two rows of class a serve all these pairs; values
between a row of a and a row of b serve only the pair (a, b).  So the kernel values are computed for each two classes
(a `_Crossing`): rows of the one, and rows of the other that moved in any model that has both.  f of a model adds up the
classes in the same order, whatever the blocks are and whichever other models are open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bigsvm.compiled.kernel.values.support import Support
from bigsvm.solvers.kernel.smo.member import Member
from bigsvm.solvers.kernel.smo.round_work import ACTIVE
from bigsvm.solvers.kernel.values.data import Rows
from bigsvm.solvers.kernel.values.row_buffer import RowBuffer, kept_rows, support_rows
from bigsvm.solvers.kernel.values.sent_moves import MovedShare, SentMoved, Step, add_moved_rows, add_step
from bigsvm.solvers.kernel.values.sent_rows import SentRows, is_worth_sending, sent_rows
from bigsvm.store.blocks import BlockRef
from bigsvm.tasks import over_shares

_ALL = -1  # stands for all classes, for models that have the rows of all


class _Crossing(NamedTuple):
    """Two classes, perhaps the same, and the models that have both: what moved in one is added to f of the other.

    rows_of : int        class whose f is updated
    members : models that have both classes
    numbers : int64      numbers of the rows of the other class that moved in any of these models, ascending
    """

    rows_of: int
    members: list[Member]
    numbers: np.ndarray


class MovedRows:
    """The rows that moved before one pass, and the update of f by them.

    row_buffer : holds all rows that moved
    n_values : int   kernel values computed so far
    """

    def __init__(self, members: Sequence[Member], row_buffer: RowBuffer) -> None:
        self._row_buffer, self._members, self.n_values = row_buffer, members, 0
        self._at_once = support_rows(members[0].ctx)
        self._by_class = members[0].rows.data.places > 1
        self._moved = {id(member): member.moved() for member in members}
        self._crossings = self._crossings_of(members)
        at = {id(member): m for m, member in enumerate(members)}
        self._places = [tuple(at[id(member)] for member in crossing.members) for crossing in self._crossings]
        most = max((len(crossing.members) for crossing in self._crossings), default=1)
        few = sum(len(crossing.numbers) for crossing in self._crossings) <= kept_rows(members[0].ctx, most)
        self._kept = [list(self._gathered(crossing)) for crossing in self._crossings] if few else None

    def n_moved(self, member: Member) -> int:
        """The number of rows that moved in a model."""
        return len(self._moved[id(member)])

    @property
    def n_distinct(self) -> int:
        """The number of rows that moved in any model."""
        moved = [crossing.numbers for crossing in self._crossings]
        return len(np.unique(np.concatenate(moved))) if moved else 0

    def blocks(self, first: int) -> Iterator[Rows]:
        """Yield the blocks of rows from `first` on, each after f of its rows outside the active sets was updated.

        Kernel values are computed in this process, or by workers in other processes.
        """
        data, n_moved = self._members[0].rows.data, sum(len(crossing.numbers) for crossing in self._crossings)
        if n_moved and is_worth_sending(data.ctx, float(n_moved) * (data.n - first)):
            at, numbers = self._all_moved()
            with sent_rows(data, self._row_buffer.X, at, numbers, self._at_once) as sent:
                if sent is not None:
                    yield from self._blocks_there(sent, numbers, first)
                    return
        for block in data.blocks(first):
            f = [member.qp.f[member.rows.of(block)[0]] for member in self._members]
            before = f[0].copy()
            for step in self._steps(block):
                crossing = self._crossings[step.moved]
                self.n_values += len(step.rows) * len(crossing.numbers)
                moved = self._kept[step.moved] if self._kept is not None else self._gathered(crossing)
                add_step(f, step, block.X, block.offset, crossing.members[0].rows.gram, moved)
            self._see_move(block, before)
            yield block

    def _blocks_there(self, sent: SentRows, numbers: np.ndarray, first: int) -> Iterator[Rows]:
        """`blocks` with kernel values from other processes.  Blocks are read here too, because candidates are kept."""
        data, mapper = self._members[0].rows.data, self._members[0].ctx.mapper
        lists = []
        for crossing in self._crossings:
            exact = crossing.members[0].rows.gram is data.exact
            lists.append((np.searchsorted(numbers, crossing.numbers), self._change(crossing, crossing.numbers), exact))
        published = mapper.publish(SentMoved(sent, tuple(lists)))
        values: deque[int] = deque()

        def share(ref: BlockRef) -> MovedShare:
            steps = tuple(self._steps(ref))
            values.append(sum(len(step.rows) * len(lists[step.moved][0]) for step in steps))
            f = tuple(member.qp.f[member.rows.of(ref)[0]] for member in self._members)
            return MovedShare(ref, published, f, steps)

        found = over_shares(mapper, add_moved_rows, data.refs(first), share)
        for block, (_, scores) in zip(data.blocks(first), found, strict=True):
            before = self._members[0].qp.f[self._members[0].rows.of(block)[0]].copy()
            for member, f in zip(self._members, scores.f, strict=True):
                member.qp.f[member.rows.of(block)[0]] = f
            self.n_values += values.popleft()
            self._see_move(block, before)
            yield block

    def _see_move(self, block: Rows, before: np.ndarray) -> None:
        """Record the largest change of a score in the block, which decides about far rows; only for a single model."""
        member = self._members[0]
        if len(self._members) == 1 and len(before):
            mine, _ = member.rows.of(block)
            moved = np.abs(member.qp.f[mine] - before)[member.waits(mine)]
            member.work.move = max(member.work.move, float(moved.max(initial=0.0)))

    def _steps(self, block: Rows | BlockRef) -> Iterator[Step]:
        """The updates of f for the rows of a block, in order."""
        for k, crossing in enumerate(self._crossings):
            numbers = self._numbers(crossing, block)
            where = [member.positions(numbers) for member in crossing.members]
            waits = [member.waits(at) for member, at in zip(crossing.members, where, strict=True)]
            some = np.flatnonzero(np.any(waits, axis=0))
            if not len(some):
                continue
            firsts = [member.rows.of(block)[0].start for member in crossing.members]
            at = tuple(places[some] - start for places, start in zip(where, firsts, strict=True))
            yield Step(k, numbers[some], self._places[k], at, tuple(mine[some] for mine in waits))

    def _all_moved(self) -> tuple[np.ndarray, np.ndarray]:
        """(places in the row buffer, numbers) of all rows that moved, ascending by number."""
        numbers = np.unique(np.concatenate([crossing.numbers for crossing in self._crossings]))
        return self._row_buffer.at(numbers), numbers

    def _crossings_of(self, members: Sequence[Member]) -> list[_Crossing]:
        together: dict[tuple[bool, int, int], list[Member]] = {}
        for member in members:
            if member.all_active:
                continue
            for rows_of in self._classes(member):
                for moved_of in self._classes(member):
                    key = (member.rows.gram is member.rows.data.exact, rows_of, moved_of)
                    together.setdefault(key, []).append(member)
        found = []
        for (_, rows_of, moved_of), some in sorted(together.items(), key=lambda item: item[0]):
            moved = [member.numbers(self._of_class(member, self._moved[id(member)], moved_of)) for member in some]
            numbers = moved[0] if len(moved) == 1 else np.unique(np.concatenate(moved))
            if len(numbers):
                found.append(_Crossing(rows_of, some, numbers))
        return found

    def _classes(self, member: Member) -> tuple[int, ...]:
        return member.classes if self._by_class and member.classes is not None else (_ALL,)

    @staticmethod
    def _of_class(member: Member, positions: np.ndarray, code: int) -> np.ndarray:
        if code == _ALL or member.classes is None:
            return positions
        return positions[(member.qp.target[positions] > 0.0) == (code == member.classes[0])]

    def _numbers(self, crossing: _Crossing, block: Rows | BlockRef) -> np.ndarray:
        """The numbers of the rows of a block that belong to the class `rows_of`; rows of weight 0 are in no model."""
        member = crossing.members[0]
        mine, numbers = member.rows.of(block)
        if crossing.rows_of == _ALL:
            return numbers
        return member.numbers(self._of_class(member, np.arange(mine.start, mine.stop), crossing.rows_of))

    def _gathered(self, crossing: _Crossing) -> Iterator[tuple[Support, np.ndarray]]:
        """(rows, changes of beta in each model) of the rows that moved, some at a time."""
        rows = crossing.members[0].rows
        at = self._row_buffer.at(crossing.numbers)  # places in the row buffer change when candidates are dropped
        for start in range(0, len(at), self._at_once):
            these = slice(start, start + self._at_once)
            numbers = crossing.numbers[these]
            support = rows.data.support(self._row_buffer.X, at[these], numbers, rows.gram)
            yield support, self._change(crossing, numbers)

    @staticmethod
    def _change(crossing: _Crossing, numbers: np.ndarray) -> np.ndarray:
        """Changes of beta of rows of the data in each model, float64, (n, n_members)."""
        by = np.empty((len(numbers), len(crossing.members)))
        for m, member in enumerate(crossing.members):
            places = member.positions(numbers)
            change = member.qp.beta[places] - member.sent[places]
            by[:, m] = np.where(member.flags[places] & ACTIVE, change, 0.0)
        return by
