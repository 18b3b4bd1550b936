"""How the rows that a model was trained on were made, kept beside it in `rows.json`: names, categories, matrix.

Other rows are then made alike, and features that go by other names are refused.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakValueDictionary

from bigsvm.errors import DataError
from bigsvm.files.atomic import file_digest
from bigsvm.files.packed_text import MANY_BYTES, TextSequence, packed, text_bytes
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.checks import names_of_columns

FILE = "rows.json"
_MAX_NAMES = 1 << 20
_OPENING, _CLOSING = b' "features": [\n', (b" ],\n", b" ]\n")
_AT_ONCE = 1 << 12
_NAMES: WeakValueDictionary[str, TextSequence] = WeakValueDictionary()
"""Of files of models that somebody holds, by their digests."""
_ENCODER = json.JSONEncoder(indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)


def rows_of(store: RowBlocks) -> dict[str, Any]:
    """What a model keeps of a store: its recipe, and `features`, the names of them; empty where there is neither."""
    names = store.feature_names
    kept = dict(store.recipe)
    if names is not None and len(names) <= _MAX_NAMES:
        kept["features"] = names if isinstance(names, TextSequence) else list(names)
    return kept


def rows_bytes(rows: Mapping[str, Any]) -> int:
    """What a model holds to make rows alike and is to be counted: many names of features, many values of columns."""
    columns = (rows.get("encoding") or {}).get("columns", [])
    values = sum(sys.getsizeof(value) + 16 for _, _, found in columns for value in found)
    return text_bytes(rows.get("features")) + (values if values > MANY_BYTES else 0)


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
    """What `write_rows` wrote; empty where a model has none.  Raises DataError where it is damaged."""
    if not isinstance(digests, dict) or FILE not in digests:
        return {}
    where = str(folder / FILE)
    try:
        if file_digest(folder / FILE) != digests[FILE]:
            raise DataError("damaged: its digest does not match model.json", where, "restore it, or train again")
        found = _read(folder / FILE, digests[FILE])
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


def in_order_of(rows: Mapping[str, Any], X: Any) -> Any:
    """X, where it is a frame whose columns have names with those of a model's features alone, in their order.

    rows : what the model keeps; X is as it was where either has no names

    Raises DataError naming the first feature that is not there.
    """
    names, ours = names_of_columns(X), rows.get("features")
    if names is None or names == ours:
        return X
    columns = (rows.get("encoding") or {}).get("columns", [])
    of_text = [name for name, kind, _ in columns if kind != "number"]
    if of_text:
        what = f"the model makes features of columns of text ({', '.join(of_text[:5])}), which it does in files only"
        hint = (
            "write the frame to a file (to_parquet), for bigsvm predict or open_store(FILE, like=model.about['rows'])"
        )
        raise DataError(what, "X", hint)
    if ours is None:
        return X
    there = frozenset(names)
    missing = next((name for name in ours if name not in there), None)
    if missing is not None:
        what = f"no column {missing!r}, which the model was trained on"
        raise DataError(what, "X", f"columns there: {', '.join(names[:20])}")
    return X[list(ours)]


def check_alike(rows: Mapping[str, Any], store: RowBlocks) -> None:
    """Refuse rows whose features are not those of a model, by their names or by how columns became features.

    rows : what the model keeps; nothing is compared where either says nothing

    Raises DataError naming the first feature that differs.
    """
    names, ours = store.feature_names, rows.get("features")
    if names is not None and ours is not None and names is not ours:
        for k, (name, our) in enumerate(zip(names, ours, strict=False)):
            if name != our:
                raise DataError(
                    f"feature {k} is {name!r}, and the model's is {our!r}", store.uri,
                    "the model needs the features that it was trained on, in their order",
                )  # fmt: skip
    if rows.get("normalize") != store.recipe.get("normalize"):
        ours, theirs = (found.get("normalize", "nothing") for found in (rows, store.recipe))
        what = f"the rows are normalized by {theirs}, and those of the model by {ours}"
        raise DataError(what, store.uri, "open_store(..., like=model.about['rows']) reads them alike")
    if rows.get("scale") != store.recipe.get("scale"):
        ours, theirs = ((found.get("scale") or {}).get("kind", "none") for found in (rows, store.recipe))
        what = f"the rows are scaled by {theirs}, and those of the model by {ours}"
        if ours == theirs:
            what = f"the rows are scaled by {theirs}, with other scales than those of the model"
        raise DataError(what, store.uri, "open_store(..., like=model.about['rows']) reads them alike")
    if "encoding" in rows and "encoding" in store.recipe and rows["encoding"] != store.recipe["encoding"]:
        what = "its columns became features in another way than those of the model"
        raise DataError(what, store.uri, "open_store(..., like=model.about['rows']) reads them alike")
