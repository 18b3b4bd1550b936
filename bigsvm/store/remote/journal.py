"""The journal of a copy: a line for each finished piece, from which a killed copy continues."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import xxhash

from bigsvm.files.appending import append_whole
from bigsvm.files.space import cannot_write

NAME = "journal.jsonl"


class Journal:
    """Lines about finished pieces, appended by several threads; a line torn by a kill does not count.

    parts : (path, first byte) -> (length, xxh3-128 of the bytes)
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._lock = threading.Lock()
        self.parts: dict[tuple[str, int], tuple[int, str]] = {}
        self._suspects: set[str] = set()
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            lines = [b""]
        for line in lines[:-1]:
            try:
                path, start, length, digest = json.loads(line)
                self.parts[str(path), int(start)] = int(length), str(digest)
            except (ValueError, TypeError):
                continue
        try:
            self._file = open(self._path, "a+b", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise cannot_write(self._path, error) from error

    def add(self, path: str, start: int, content: Any) -> None:
        """Record that a piece is in its file."""
        line = json.dumps([path, start, len(content), xxhash.xxh3_128_hexdigest(content)]).encode() + b"\n"
        with self._lock:
            append_whole(self._file, line)

    def holds(self, path: str, start: int, content: bytes) -> bool:
        """Whether these are the bytes of a recorded piece."""
        return self.parts.get((path, start)) == (len(content), xxhash.xxh3_128_hexdigest(content))

    def close(self) -> None:
        """Close the file."""
        os.fsync(self._file.fileno())
        self._file.close()
