"""Comparison of bytes with ETags, which are MD5 digests for unencrypted objects that were uploaded in one part."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

from bigsvm.store.remote.versions import Listed

_MD5 = re.compile(r"[0-9a-f]{32}")


class Tags:
    """Compares bytes with tags; with nothing on web servers, or if the user declares the tags `opaque`."""

    def __init__(self, of_use: bool) -> None:
        self._of_use = of_use

    def applies(self, listed: Listed) -> bool:
        """Whether the tag of an object is taken as the MD5 of its bytes."""
        return self._of_use and _MD5.fullmatch(listed.tag) is not None

    def agrees(self, listed: Listed, pieces: Iterable[Any]) -> bool:
        """Whether the bytes, given as consecutive buffers, match the tag of the object; True if it is not a digest."""
        if not self.applies(listed):
            return True
        digest = hashlib.md5(usedforsecurity=False)
        for piece in pieces:
            digest.update(piece)
        return digest.hexdigest() == listed.tag
