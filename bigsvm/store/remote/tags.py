"""Bytes against ETags, which of objects that were put in one piece, and not encrypted, are the MD5 of their bytes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

from bigsvm.store.remote.client import Listed

_MD5 = re.compile(r"[0-9a-f]{32}")


class Tags:
    """Holds bytes against tags; where the user says that tags are `opaque`, and on web servers, against none."""

    def __init__(self, of_use: bool) -> None:
        self._of_use = of_use

    def applies(self, listed: Listed) -> bool:
        """Whether the tag of an object is taken for the MD5 of its bytes."""
        return self._of_use and _MD5.fullmatch(listed.tag) is not None

    def agrees(self, listed: Listed, pieces: Iterable[Any]) -> bool:
        """Whether the bytes, as buffers one after the other, have the tag of the object; True where it is no digest."""
        if not self.applies(listed):
            return True
        digest = hashlib.md5(usedforsecurity=False)
        for piece in pieces:
            digest.update(piece)
        return digest.hexdigest() == listed.tag
