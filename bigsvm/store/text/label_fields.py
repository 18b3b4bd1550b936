"""svmlight text with several labels a row: `1,5 3:0.2 7:1`, and ` 3:0.2` of a row that has none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bigsvm.errors import DataError
from bigsvm.store.labels import MAX_CLASSES
from bigsvm.store.text.text_files import Piece
from bigsvm.store.transforms.label_sets import SEPARATOR, set_text

LABELS_FIELD = "label"
"""What `--labels` calls the field in which a line has its labels; a store of the text has them in obs/label."""
REFUSED_FIELD = b","
"""Before a field that is no list of labels, so that the line is refused in its turn, after those before it."""

_FIELD = re.compile(rb"^[ \t]*([^ \t\r\n#]+)", re.MULTILINE)
_LIST = re.compile(rb"[0-9]{1,17}(?:,[0-9]{1,17})*")
_ENTRY = re.compile(rb"(?:[0-9]+|qid):")
_MOST_TEXT = 1 << 22
"""Characters of all different sets as an array of text, where each takes as many as the longest."""
_PART_TEXT = 1 << 20


class LabelFields:
    """Takes the lists of labels out of pieces of text, and a 0 in, for the parser of rows with one label.

    known : labels that there may be; None for any
    asked : False where nobody asks for the labels: what is no list of them stays for the parser to judge

    Holds the different sets, which are bounded as classes are.
    """

    def __init__(self, known: Sequence[str] | None = None, asked: bool = True) -> None:
        self._asked = asked
        self._known = None if known is None else set(known)
        self._texts: dict[bytes, str] = {}
        self._sets: dict[str, str] = {"": ""}
        self._longest = 1

    def take(self, piece: Piece) -> np.ndarray:
        """The sets of the rows in a piece as text, in order: Python strings, (n_rows,), one object for each set.

        Raises DataError naming the line at which there are more different sets than classes may be.
        """
        found: list[str] = []
        content = piece.buffer[: piece.size].tobytes()

        def without(match: re.Match[bytes]) -> bytes:
            field = match[1]
            if not self._asked:
                found.append("")
                return b"0" if _LIST.fullmatch(field) else match[0]
            if _ENTRY.match(field):  # a row without labels
                found.append("")
                return b"0 " + field
            text = self._texts.get(field)
            if text is None:
                if _LIST.fullmatch(field) is None or not self._may_be(field):
                    found.append("")
                    return REFUSED_FIELD + field
                text = self._learn(field, lambda: piece.where(piece.first_line + content.count(b"\n", 0, match.end())))
            found.append(text)
            return b"0"

        piece.replace(_FIELD.sub(without, content))
        return np.array(found, object)

    def refusal(self, line: bytes) -> tuple[str, str]:
        """What is wrong with the labels of a line whose field was refused, and the remedy."""
        field = line.strip(b" \t").removeprefix(REFUSED_FIELD).split()[0]
        if _LIST.fullmatch(field) is not None:
            strange = next(name for name in _names(field) if name not in (self._known or ()))
            return f"label {strange} is none of the store's labels", "ingest all rows to a new store"
        shown = field[:40].decode("ascii", "backslashreplace")
        return f"the labels {shown!r} are no whole numbers, joined by commas", "each line is: 1,5 index:value ..."

    def _may_be(self, field: bytes) -> bool:
        return self._known is None or self._known.issuperset(_names(field))

    def _learn(self, field: bytes, where: Callable[[], str]) -> str:
        text = set_text(list(dict.fromkeys(_names(field))))
        text = self._sets.setdefault(text, text)
        if len(self._texts) < MAX_CLASSES:  # the same set may be written in many orders
            self._texts[field] = text
        self._longest = max(self._longest, len(text))
        if len(self._sets) > MAX_CLASSES or len(self._sets) * self._longest > _MOST_TEXT:
            what = f"the {len(self._sets)}th different set of labels, and one may have {self._longest} letters"
            raise DataError(f"{what}: more than a store takes", where(), "leave rare labels out")
        return text


def in_parts(sets: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Parts of rows, and their sets as fixed-width text, of which few characters are held at a time."""
    step = max(1, _PART_TEXT // max(1, *map(len, sets.tolist())))
    for start in range(0, len(sets), step):
        part = slice(start, min(start + step, len(sets)))
        yield part, sets[part].astype(str)


def _names(field: bytes) -> list[str]:
    """The labels in a field, each as short as it can be written."""
    return [str(int(name)) for name in field.decode().split(SEPARATOR)]
