"""`rows.json` of a model, written and read line by line, because it may name a million features."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakValueDictionary

import xxhash

from bigsvm.errors import DataError
from bigsvm.files.atomic import file_digest, open_regular
from bigsvm.files.packed_text import TextSequence, packed
from bigsvm.files.paths import not_permitted

FILE = "rows.json"
_OPENING, _CLOSING = b' "features": [\n', (b" ],\n", b" ]\n")
_AT_ONCE = 1 << 12
_NAMES: WeakValueDictionary[str, TextSequence] = WeakValueDictionary()
"""Digest -> names of features, for the models that are still in use."""
_ENCODER = json.JSONEncoder(indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)


def write_rows(folder: Path, rows: Mapping[str, Any]) -> str:
    """Write `rows.json`; returns its digest."""
    with open(folder / FILE, "wb") as file:
        for text in _pieces_of(rows):
            file.write(text.encode())
    return file_digest(folder / FILE)


def _pieces_of(rows: Mapping[str, Any]) -> Iterator[str]:
    """The text of `rows.json` in pieces, because one string would hold a million names again."""
    for k, (name, value) in enumerate(sorted(rows.items())):
        yield f"{',' if k else '{'}\n {_ENCODER.encode(name)}: "
        if isinstance(value, TextSequence):
            yield from (f"{',' if j else '['}\n  {_ENCODER.encode(text)}" for j, text in enumerate(value))
            yield "\n ]"
        else:  # nested values are indented; a line break inside a string is always escaped
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
        raise DataError("is not a JSON object", where)
    return found


def _read(path: Path, digest: str) -> Any:
    """The content of `rows.json`; the names of features are parsed line by line, as `write_rows` wrote them.

    Parsed as one document, a million names would be held four times: as bytes, as text, and as objects in lists.  If a
    model is read twice, for its rows and for its weights, the second reading reuses the names.
    """
    known, names, others, hasher = _NAMES.get(digest), None, [], xxhash.xxh3_128()
    with open(open_regular(path), "rb") as file:
        content = _hashed(file, hasher)
        for line in content:
            others.append(line)
            if line == _OPENING:
                lines = _lines(content, others)
                names = known if known is not None else packed(map(_names_of, lines))
                deque(lines, maxlen=0)  # the names are known already
    if hasher.hexdigest() != digest:
        raise DataError("the file changed while it was read", str(path), "repeat the command")
    found = json.loads(b"".join(others))
    if names is not None:
        found["features"] = names
    if isinstance(names, TextSequence):
        _NAMES[digest] = names
    return found


def _hashed(file: BinaryIO, hasher: xxhash.xxh3_128) -> Iterator[bytes]:
    for line in file:
        hasher.update(line)
        yield line


def _lines(file: Iterator[bytes], others: list[bytes]) -> Iterator[list[bytes]]:
    """Batches of the lines of names; the line that ends them is appended to `others`."""
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
    """The names on the lines, one on each.  Raises ValueError."""
    names = json.loads(b"[" + b"".join(lines).rstrip().removesuffix(b",") + b"]")
    if not all(isinstance(name, str) for name in names):
        raise ValueError("a name is not a string")
    return names
