"""`rows.json` of a model, written and read line by line: it may name a million features."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakValueDictionary

from bigsvm.errors import DataError
from bigsvm.files.atomic import file_digest
from bigsvm.files.packed_text import TextSequence, packed
from bigsvm.files.paths import not_permitted

FILE = "rows.json"
_OPENING, _CLOSING = b' "features": [\n', (b" ],\n", b" ]\n")
_AT_ONCE = 1 << 12
_NAMES: WeakValueDictionary[str, TextSequence] = WeakValueDictionary()
"""Of files of models that somebody holds, by their digests."""
_ENCODER = json.JSONEncoder(indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)


def write_rows(folder: Path, rows: Mapping[str, Any]) -> str:
    """Write `rows.json`; its digest."""
    with open(folder / FILE, "wb") as file:
        for text in _pieces_of(rows):
            file.write(text.encode())
    return file_digest(folder / FILE)


def _pieces_of(rows: Mapping[str, Any]) -> Iterator[str]:
    """The text of `rows.json`, a string after the other: a million of them would be held again as one text."""
    for k, (name, value) in enumerate(sorted(rows.items())):
        yield f"{',' if k else '{'}\n {_ENCODER.encode(name)}: "
        if isinstance(value, TextSequence):
            yield from (f"{',' if j else '['}\n  {_ENCODER.encode(text)}" for j, text in enumerate(value))
            yield "\n ]"
        else:  # the lines of which are those of a part; a line end within a string is written otherwise
            yield from (piece.replace("\n", "\n ") for piece in _ENCODER.iterencode(value))
    yield "\n}\n" if rows else "{}\n"


def read_rows(folder: Path, digests: Any) -> dict[str, Any]:
    """What `write_rows` wrote; empty where a model has none.

    Raises DataError where it is damaged, MissingInput where it may not be read.
    """
    if not isinstance(digests, dict) or FILE not in digests:
        return {}
    where = str(folder / FILE)
    try:
        if file_digest(folder / FILE) != digests[FILE]:
            raise DataError("damaged: its digest does not match model.json", where, "restore it, or train again")
        found = _read(folder / FILE, digests[FILE])
    except PermissionError as error:
        raise not_permitted(where, error) from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot be read: {error}", where, "restore it, or train again") from error
    names = found.get("features", []) if isinstance(found, dict) else None
    of_text = isinstance(names, TextSequence) or (isinstance(names, list) and all(isinstance(n, str) for n in names))
    if not of_text:
        raise DataError("does not say how rows are made", where)
    return found


def _read(path: Path, digest: str) -> Any:
    """The content of `rows.json`, names of features line by line as `write_rows` puts them there.

    As one document a million of them would be held four times: as bytes, as text, and as objects in a list.  Who reads
    a model twice, for its rows and for its weights, has the names once.
    """
    known, names, others = _NAMES.get(digest), None, []
    with open(path, "rb") as file:
        for line in file:
            others.append(line)
            if line == _OPENING:
                lines = _lines(file, others)
                names = known if known is not None else packed(map(_names_of, lines))
                deque(lines, maxlen=0)  # what is known is passed over
    found = json.loads(b"".join(others))
    if names is not None:
        found["features"] = names
    if isinstance(names, TextSequence):
        _NAMES[digest] = names
    return found


def _lines(file: BinaryIO, others: list[bytes]) -> Iterator[list[bytes]]:
    """Lines of names, some at a time, up to the one that ends them, which goes to the others."""
    found: list[bytes] = []
    for line in file:
        if line in _CLOSING:
            others.append(line)
            break
        found.append(line)
        if len(found) == _AT_ONCE:
            yield found
            found = []
    if found:
        yield found


def _names_of(lines: list[bytes]) -> list[str]:
    """Names, each on a line.  Raises ValueError."""
    names = json.loads(b"[" + b"".join(lines).rstrip().removesuffix(b",") + b"]")
    if not all(isinstance(name, str) for name in names):
        raise ValueError("a name is no text")
    return names
