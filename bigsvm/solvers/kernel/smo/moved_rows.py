"""What rows that moved in some models make of the scores of all others, each kernel value computed once.

Models that tell two classes apart share rows: one of class a is in all pairs of a.  Of a support row of a, values with
rows of a serve all these pairs, those with rows of b the pair of a and b alone.  So rows are taken class by class on
either side, and of each two classes the rows that moved in any model that has both.  A model's f then sums up the rows
of one class after those of the other, whatever the block, and whichever other models are in work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bigsvm.compiled.kernel.support import Support
from bigsvm.solvers.kernel.smo.member import Member
from bigsvm.solvers.kernel.smo.round_work import ACTIVE
from bigsvm.solvers.kernel.values.data import Rows
from bigsvm.solvers.kernel.values.row_buffer import RowBuffer, support_rows

_ALL = -1  # the class of a row where models have rows of all


class _Crossing(NamedTuple):
    """Rows of one class that moved in some models which have rows of another, perhaps the same.

    numbers : int64, of the data, ascending
    """

    rows_of: int
    members: list[Member]
    numbers: np.ndarray


class MovedRows:
    """Of one pass; the row buffer holds all rows that moved, wherever in it."""

    def __init__(self, members: Sequence[Member], row_buffer: RowBuffer) -> None:
        self._row_buffer = row_buffer
        self._at_once = support_rows(members[0].ctx)
        self._by_class = members[0].rows.data.places > 1
        self._moved = {id(member): member.moved() for member in members}
        self._crossings = self._crossings_of(members)
        few = sum(len(crossing.numbers) for crossing in self._crossings) <= self._at_once
        self._kept = [list(self._gathered(crossing)) for crossing in self._crossings] if few else None

    def n_moved(self, member: Member) -> int:
        """Rows that moved in a model."""
        return len(self._moved[id(member)])

    @property
    def n_distinct(self) -> int:
        """Rows that moved in any model."""
        moved = [crossing.numbers for crossing in self._crossings]
        return len(np.unique(np.concatenate(moved))) if moved else 0

    def add(self, block: Rows) -> int:
        """Bring f of a block's rows up to date in each model where they are not active; kernel values computed."""
        values = 0
        for k, crossing in enumerate(self._crossings):
            numbers = self._numbers(crossing, block)
            where = [member.positions(numbers) for member in crossing.members]
            waits = [(member.flags[at] & ACTIVE) == 0 for member, at in zip(crossing.members, where, strict=True)]
            some = np.flatnonzero(np.any(waits, axis=0))
            if not len(some):
                continue
            f = np.stack([member.qp.f[at[some]] for member, at in zip(crossing.members, where, strict=True)])
            gram = crossing.members[0].rows.gram
            for support, by in self._kept[k] if self._kept is not None else self._gathered(crossing):
                gram.add(block.X, numbers[some] - block.offset, support, by, f)
            for member, at, waiting, sums in zip(crossing.members, where, waits, f, strict=True):
                mine = waiting[some]
                member.qp.f[at[some][mine]] = sums[mine]
            values += len(some) * len(crossing.numbers)
        return values

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

    def _numbers(self, crossing: _Crossing, block: Rows) -> np.ndarray:
        """A block's rows of the class: those that weigh something, as any of the models has them."""
        member = crossing.members[0]
        mine, numbers = member.rows.of(block)
        if crossing.rows_of == _ALL:
            return numbers
        return member.numbers(self._of_class(member, np.arange(mine.start, mine.stop), crossing.rows_of))

    def _gathered(self, crossing: _Crossing) -> Iterator[tuple[Support, np.ndarray]]:
        """The rows that moved, some at a time, and by how much in each model."""
        rows = crossing.members[0].rows
        at = self._row_buffer.at(crossing.numbers)  # rows move in the row buffer when it thins
        for start in range(0, len(at), self._at_once):
            these = slice(start, start + self._at_once)
            numbers = crossing.numbers[these]
            by = np.empty((len(numbers), len(crossing.members)))
            for m, member in enumerate(crossing.members):
                places = member.positions(numbers)
                change = member.qp.beta[places] - member.sent[places]
                by[:, m] = np.where(member.flags[places] & ACTIVE, change, 0.0)
            yield rows.data.support(self._row_buffer.X, at[these], numbers, rows.gram), by
