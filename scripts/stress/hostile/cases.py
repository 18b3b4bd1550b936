"""Makers of cases: each changes a copy of something good."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zarr

Case = Callable[[Path], None]


class Payload:
    """Says that it ran."""

    def __reduce__(self) -> Any:
        return (os.mkdir, (os.environ["BIGSVM_PAYLOAD"],))


def edit(name: str, change: Callable[[dict[str, Any]], Any]) -> Case:
    """Change a JSON document of the store."""

    def case(root: Path) -> None:
        document = json.loads((root / name).read_text())
        found = change(document)
        (root / name).write_text(json.dumps(document if found is None else found))

    return case


def put(name: str, content: bytes) -> Case:
    """Put bytes in the place of a file."""

    def case(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).unlink(missing_ok=True)
        (root / name).write_bytes(content)

    return case


def pipe(name: str) -> Case:
    """A named pipe that nobody writes to."""

    def case(root: Path) -> None:
        (root / name).unlink()
        os.mkfifo(root / name)

    return case


def link(name: str, to: str) -> Case:
    """A link in the place of a file."""

    def case(root: Path) -> None:
        (root / name).unlink()
        (root / name).symlink_to(to)

    return case


def values(name: str, change: Callable[[np.ndarray], Any]) -> Case:
    """Change numbers of an array, through zarr."""

    def case(root: Path) -> None:
        array = zarr.open_array(root / name, mode="r+")
        content = array[:]
        found = change(content)
        array[:] = content if found is None else found

    return case


def array_in(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Case:
    """Change a .npy file of a model."""

    def case(root: Path) -> None:
        with np.errstate(divide="ignore", invalid="ignore"):
            np.save(root / name, change(np.load(root / name)))

    return case


def codec(name: str, content: bytes, *codecs: dict[str, Any]) -> Case:
    """An array of one chunk with that content, to be decoded by those codecs."""

    def case(root: Path) -> None:
        little = {"name": "bytes", "configuration": {"endian": "little"}}
        edit(f"{name}/zarr.json", lambda d: d.update(codecs=[little, *codecs]))(root)
        for path in (root / name / "c").iterdir():
            path.write_bytes(content)

    return case


def set_in(name: str, *path: Any) -> Case:
    """Set a value deep in a document: keys, then the value."""

    def change(document: dict[str, Any]) -> None:
        *keys, last, value = path
        for key in keys:
            document = document[key]
        document[last] = value

    return edit(name, change)


def npy(header: str, content: bytes = b"") -> bytes:
    """A .npy with any header."""
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


def object_npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([Payload()] * 41, object), allow_pickle=True)
    return file.getvalue()
