"""Small JSON files with a digest of their content, written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xxhash

from bigsvm.files.atomic import new_file, read_bytes

_AT_ONCE = 64  # parts of a long list that are made text together: each may be a text of some kilobytes
_FEW = 8


def sealed(content: Any) -> bytes:
    """`content` as a JSON document with its digest; numbers that are not finite stay what they are."""
    return b"".join(_sealed_pieces(content))


def unsealed(document: bytes | str) -> Any:
    """The content of such a document.  Raises ValueError where it is not what was written."""
    return _content_of(_found_in(document))


def _found_in(document: bytes | str) -> Any:
    try:
        return json.loads(document)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _content_of(found: Any) -> Any:
    if not isinstance(found, dict) or set(found) != {"digest", "content"}:
        raise ValueError("this is another kind of file")
    try:
        digest = json_digest(found["content"])
    except RecursionError as error:  # Python 3.13 reads deeper documents than it has frames for `_pieces_of`
        raise ValueError("it is nested too deeply") from error
    if digest != found["digest"]:
        raise ValueError("its digest does not match")
    return found["content"]


def write_sealed(path: Path, content: Any) -> None:
    """Write a document, whole or not at all.  Raises OutputError."""
    nbytes = sum(map(len, _pieces_of(content)))  # what is said of a full disk
    with new_file(path, nbytes) as file:
        for piece in _sealed_pieces(content):
            file.write(piece)


def read_sealed(path: Path) -> Any:
    """The content of a file.  Raises OSError, or ValueError where it is damaged."""
    # As text, of which the bytes have gone when its objects are made: each of the three may be large.
    text = read_bytes(path).decode()
    found = _found_in(text)
    del text
    return _content_of(found)


def json_digest(content: Any) -> str:
    """xxh3-128 of a JSON document, 32 hex digits, whatever the order of its names."""
    digest = xxhash.xxh3_128()
    for piece in _pieces_of(content):
        digest.update(piece.encode())
    return digest.hexdigest()


def _sealed_pieces(content: Any) -> Iterator[bytes]:
    yield b'{"digest":"' + json_digest(content).encode() + b'","content":'
    yield from (piece.encode() for piece in _pieces_of(content))
    yield b"}\n"


def _pieces_of(content: Any) -> Iterator[str]:
    """The text of `json.dumps` with sorted names and nothing between, in pieces: a table's values may be many."""
    names: list[str] | None = None
    if isinstance(content, dict) and content and all(isinstance(name, str) for name in content):
        names = sorted(content)
        values: Any = [content[name] for name in names]
    elif isinstance(content, list | tuple) and content:
        values = content
    else:
        yield _text_of(content)
        return
    before, closing = ("[", "]") if names is None else ("{", "}")
    for start in range(0, len(values), _AT_ONCE):
        some = values[start : start + _AT_ONCE]
        if all(map(_is_small, some)):
            part = some if names is None else dict(zip(names[start : start + _AT_ONCE], some, strict=True))
            yield before + _text_of(part)[1:-1]
            before = ","
            continue
        for k, value in enumerate(some, start):
            yield before if names is None else f"{before}{_text_of(names[k])}:"
            yield from _pieces_of(value)
            before = ","
    yield closing


def _is_small(content: Any) -> bool:
    """Whether it is made text together with what stands beside it."""
    if not isinstance(content, dict | list | tuple):
        return True
    parts = content.values() if isinstance(content, dict) else content
    return len(content) <= _FEW and not any(isinstance(one, dict | list | tuple) for one in parts)


def _text_of(content: Any) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))
