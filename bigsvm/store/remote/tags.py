"""Bytes against ETags, which of objects that were put in one piece, and not encrypted, are the MD5 of their bytes."""

from __future__ import annotations

import hashlib
import re
import threading
from typing import Any

from bigsvm.errors import DataError
from bigsvm.store.remote.client import Listed

_MD5 = re.compile(r"[0-9a-f]{32}")


class Tags:
    """Which objects agreed with their tags, and which did not, twice with the same bytes.

    Where none of a store's objects agrees, tags are no digests there (a bucket with keys of its own): that is told.
    Where others do, the bytes of one that does not are wrong, however often they come.
    """

    def __init__(self, of_use: bool) -> None:
        self._of_use = of_use
        self._lock = threading.Lock()
        self._n_agreed = 0
        self.suspects: dict[str, str] = {}

    def applies(self, listed: Listed) -> bool:
        """Whether the tag of an object looks like an MD5."""
        return self._of_use and _MD5.fullmatch(listed.tag) is not None

    def agrees(self, listed: Listed, pieces: Any) -> bool:
        """Whether the bytes, as buffers one after the other, have the tag of the object; True where it is no digest."""
        if not self.applies(listed):
            return True
        digest = hashlib.md5(usedforsecurity=False)
        for piece in pieces:
            digest.update(piece)
        if digest.hexdigest() != listed.tag:
            return False
        with self._lock:
            self._n_agreed += 1
        return True

    def suspect(self, path: str, where: str) -> None:
        """The same bytes came twice, and do not agree."""
        with self._lock:
            self.suspects[path] = where

    def judge(self) -> str:
        """A warning, or ''.  Raises DataError naming an object where others agreed."""
        if not self.suspects:
            return ""
        where = self.suspects[min(self.suspects)]
        if self._n_agreed:
            raise DataError(
                "its bytes are not those of its ETag, though other objects' bytes are", where,
                "put the object there again",
            )  # fmt: skip
        return f"{where}: ETags are no digests there (encrypted?): bytes were held against sizes and tags alone"
