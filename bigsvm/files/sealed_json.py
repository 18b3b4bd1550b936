"""Small JSON files of ours that carry the digest of their content: whole, or not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import xxhash

from bigsvm.files.atomic import read_bytes, write_bytes


def sealed(content: Any) -> bytes:
    """`content` as a JSON document with its digest; numbers that are not finite stay what they are."""
    text = _canonical(content)
    return b'{"digest":"' + xxhash.xxh3_128_hexdigest(text).encode() + b'","content":' + text + b"}\n"


def unsealed(document: bytes) -> Any:
    """The content of such a document.  Raises ValueError where it is not what was written."""
    try:
        found = json.loads(document)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(found, dict) or set(found) != {"digest", "content"}:
        raise ValueError("this is another kind of file")
    if xxhash.xxh3_128_hexdigest(_canonical(found["content"])) != found["digest"]:
        raise ValueError("its digest does not match")
    return found["content"]


def write_sealed(path: Path, content: Any) -> None:
    """Write a document, whole or not at all.  Raises OutputError."""
    write_bytes(path, sealed(content))


def read_sealed(path: Path) -> Any:
    """The content of a file.  Raises OSError, or ValueError where it is damaged."""
    return unsealed(read_bytes(path))


def _canonical(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
