"""Conditions on columns (--rows): parsed into a tree, and evaluated on pieces of columns; nothing is executed.

    condition := and {"or" and};  and := not {"and" not};  not := "not" not | "(" condition ")" | test
    test      := column ("==" | "!=" | "<" | "<=" | ">" | ">=") value
               | column ["not"] "in" "(" value {"," value} ")"
               | column "is" ["not"] "null"
    column    := a word, or anything in back-ticks;  value := number | true | false | 'text' | "text" | a word

As in SQL, a test of a missing value is neither true nor false, and neither is its negation.  Such a row is not
selected, and is counted in `Chosen.unknown`.  NaN in a file counts as missing.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bigsvm.errors import UsageError
from bigsvm.units import shortened

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))|(?P<text>'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\")"
    r"|(?P<tick>`[^`]+`)|(?P<word>[^\W\d][\w./\-]*)|(?P<sign>==|!=|<=|>=|=|<|>|\(|\)|,))"
)
_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_HINT = "such as: cell_type in (T, B) and n_genes > 500 and not batch == 'b 7'"
_DEEPEST = 50


Value = str | float | int | bool


class Column(NamedTuple):
    """Some rows of a column.

    values : (n,) numbers, booleans or strings, arbitrary where missing;  there : bool, (n,), whether there is a value
    """

    values: np.ndarray
    there: np.ndarray


class Chosen(NamedTuple):
    """The result of a condition for some rows: bool, (n,) each.

    true : it holds;  unknown : a value needed for the decision is missing
    """

    true: np.ndarray
    unknown: np.ndarray


Columns = Mapping[str, Column]


@dataclass(frozen=True)
class Test:
    """A test of one column against values, by `sign`: a comparison, `in`, or `null`."""

    column: str
    sign: str
    values: tuple[Value, ...]

    def __str__(self) -> str:
        name = self.column if re.fullmatch(r"[^\W\d][\w./\-]*", self.column) and not _is_keyword(self.column) else None
        left = name or f"`{self.column}`"
        if self.sign == "null":
            return f"{left} is null"
        if self.sign == "in":
            return f"{left} in ({', '.join(map(_written, self.values))})"
        return f"{left} {self.sign} {_written(self.values[0])}"

    def names(self) -> Iterator[str]:
        """The columns that the condition uses."""
        yield self.column

    def of(self, columns: Columns) -> Chosen:
        """The result for some rows.  Raises UsageError for values of another kind than the column's."""
        column = columns[self.column]
        there = column.there & ~np.isnan(column.values) if column.values.dtype.kind == "f" else column.there
        if self.sign == "null":
            return Chosen(~there, np.zeros(len(there), bool))
        values = [self._as_of(column.values, value) for value in self.values]
        if self.sign == "in":
            found = np.zeros(len(there), bool)
            for value in values:
                found |= np.asarray(column.values == value, bool)
        else:
            found = np.asarray(_COMPARED[self.sign](column.values, values[0]), bool)
        return Chosen(found & there, ~there)

    def _as_of(self, found: np.ndarray, value: Value) -> Value:
        """The value, converted to the kind of the column."""
        kind = {"b": "true or false", "U": "text"}.get(found.dtype.kind, "a number")
        given = "true or false" if isinstance(value, bool) else "text" if isinstance(value, str) else "a number"
        if kind != given:
            hint = "put text in quotes" if kind == "text" else _HINT
            raise UsageError(f"column {self.column!r} holds {kind}, but {_written(value)} is {given}", hint=hint)
        if kind == "true or false" and self.sign not in ("==", "!=", "in"):
            raise UsageError(f"column {self.column!r} holds true or false, which have no order", hint="use == true")
        return value


@dataclass(frozen=True)
class Not:
    """The negation of a condition."""

    part: Condition

    def __str__(self) -> str:
        return f"not ({self.part})"

    def names(self) -> Iterator[str]:
        """The columns that the condition uses."""
        return self.part.names()

    def of(self, columns: Columns) -> Chosen:
        """The result for some rows."""
        found = self.part.of(columns)
        return Chosen(~found.true & ~found.unknown, found.unknown)


@dataclass(frozen=True)
class Joined:
    """Two or more conditions joined by `and` or `or`; a flat list, so that long conditions are not deeply nested."""

    word: str
    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return f"({f' {self.word} '.join(map(str, self.parts))})"

    def names(self) -> Iterator[str]:
        """The columns that the condition uses."""
        for part in self.parts:
            yield from part.names()

    def of(self, columns: Columns) -> Chosen:
        """The result for some rows."""
        found = self.parts[0].of(columns)
        for part in self.parts[1:]:
            found = self._with(found, part.of(columns))
        return found

    def _with(self, a: Chosen, b: Chosen) -> Chosen:
        if self.word == "or":
            true = a.true | b.true
            return Chosen(true, (a.unknown | b.unknown) & ~true)
        false = (~a.true & ~a.unknown) | (~b.true & ~b.unknown)
        return Chosen(a.true & b.true, (a.unknown | b.unknown) & ~false)


Condition = Test | Not | Joined


def parse(text: str) -> Condition:
    """Parse a condition.  Raises UsageError naming the place that cannot be parsed."""
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._tokens, self._at = text, list(_tokens(text)), 0

    def read(self) -> Condition:
        found = self._joined("or", 0)
        if self._at < len(self._tokens):
            raise self._wrong("and, or, or the end")
        return found

    def _wrong(self, wanted: str) -> UsageError:
        seen = f"{self._tokens[self._at][1]!r}" if self._at < len(self._tokens) else "the end"
        what = f"cannot read the condition {shortened(self._text)!r}: {wanted} was expected, not {seen}"
        return UsageError(what, hint=_HINT)

    def _take(self, *wanted: str) -> bool:
        """Consume the next token if it is one of these keywords or signs."""
        if self._at < len(self._tokens):
            kind, text = self._tokens[self._at]
            if kind in ("word", "sign") and text.lower() in wanted:
                self._at += 1
                return True
        return False

    def _joined(self, word: str, depth: int) -> Condition:
        if depth > _DEEPEST:
            raise UsageError(f"the condition has more than {_DEEPEST} nested brackets", hint=_HINT)
        below = (lambda: self._joined("and", depth)) if word == "or" else (lambda: self._negated(depth))
        parts = [below()]
        while self._take(word):
            parts.append(below())
        return parts[0] if len(parts) == 1 else Joined(word, tuple(parts))

    def _negated(self, depth: int) -> Condition:
        turns = 0
        while self._take("not"):
            turns += 1
        if self._take("("):
            found = self._joined("or", depth + 1)
            self._close()
        else:
            found = self._test()
        return Not(found) if turns % 2 else found

    def _close(self) -> None:
        if not self._take(")"):
            raise self._wrong("a closing bracket")

    def _test(self) -> Condition:
        kind, text = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        if kind not in ("word", "tick") or (kind == "word" and _is_keyword(text)):
            raise self._wrong("a column")
        self._at += 1
        column = text[1:-1] if kind == "tick" else text
        if self._take("is"):
            opposite = self._take("not")
            if not self._take("null"):
                raise self._wrong("null")
            found: Condition = Test(column, "null", ())
            return Not(found) if opposite else found
        opposite = self._take("not")
        if self._take("in"):
            if not self._take("("):
                raise self._wrong("an opening bracket")
            values = [self._value()]
            while self._take(","):
                values.append(self._value())
            self._close()
            found = Test(column, "in", tuple(values))
            return Not(found) if opposite else found
        if opposite:
            raise self._wrong("in")
        for sign in (*_COMPARED, "="):
            if self._take(sign):
                return Test(column, "==" if sign == "=" else sign, (self._value(),))
        raise self._wrong("a comparison such as ==")

    def _value(self) -> Value:
        kind, text = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        if kind not in ("number", "text", "word") or (kind == "word" and _is_keyword(text)):
            raise self._wrong("a value")
        self._at += 1
        if kind == "text":
            return text[1:-1].replace(text[0] * 2, text[0])
        if kind == "word":
            return {"true": True, "false": False}.get(text.lower(), text)
        return float(text) if re.search(r"[.eE]", text) else int(text)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at, end = 0, len(text.rstrip())
    if text != text.encode("utf-8", "ignore").decode():  # bytes of a command line in another encoding
        raise UsageError(f"the condition {shortened(text)!r} is not valid Unicode", hint="write it in UTF-8")
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            what = f"cannot read the condition {shortened(text)!r} from {text[at:].strip()[:20]!r} on"
            raise UsageError(what, hint=_HINT)
        at = found.end()
        assert found.lastgroup is not None
        yield found.lastgroup, found.group(found.lastgroup)


def _is_keyword(word: str) -> bool:
    return word.lower() in ("and", "or", "not", "in", "is", "null")


def _written(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)
