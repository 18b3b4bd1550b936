"""The version of an object: what a server says of it, and whether all answers are about the same one."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

from bigsvm.store.remote.faults import Changed


@dataclass(frozen=True)
class Listed:
    """An object as one answer describes it.

    key : in the bucket, or the path of a URL
    tag : the ETag without quotation marks and without the mark of a weak one; '' if the answer has none
    time : the time of the last change, in the form of ISO 8601; '' if the answer has none
    """

    key: str
    size: int
    tag: str
    time: str = ""

    @property
    def version(self) -> str:
        """What distinguishes the object from others of its size: the ETag, else the time; '' if there is neither."""
        return self.tag or self.time

    def check(self, other: Listed) -> None:
        """Raises Changed if another answer is about another version.

        Like is compared with like: a proxy may drop the ETag of some answers.  Answers that have nothing in common
        count as the same.
        """
        one, another = (self.tag, other.tag) if self.tag and other.tag else (self.time, other.time)
        if self.size != other.size or (one and another and one != another):
            raise Changed

    def is_comparable(self, other: Listed) -> bool:
        """Whether both answers have an ETag, or both a time."""
        return bool((self.tag and other.tag) or (self.time and other.time))


class Held:
    """The version that all answers with bytes of an object must have: that of the listing, and of the first answer.

    complete : every answer had a validator of the kind that the listing has (an ETag; if it has none, a time), so that
        the listed version is known to be the one that was copied
    n_answers : the number of answers
    """

    def __init__(self, listed: Listed) -> None:
        self._listed = listed
        self._first: Listed | None = None
        self._lock = threading.Lock()
        self.complete, self.n_answers = True, 0

    def check(self, found: Listed) -> None:
        """Compare one more answer with the listing and with the answers before it.  Raises Changed."""
        with self._lock:
            self.n_answers += 1
            self._listed.check(found)
            first = self._first or found
            first.check(found)
            self._first = replace(first, tag=first.tag or found.tag, time=first.time or found.time)
            if not (found.tag if self._listed.tag else found.time or not self._listed.time):
                self.complete = False


def listed_of(meta: Any) -> Listed:
    """The description of an object from the metadata of obstore."""
    tag = (meta["e_tag"] or "").removeprefix("W/").strip('"')
    time = meta["last_modified"]
    # obstore gives the epoch for a time that is missing.
    known = time is not None and time.timestamp() > 0
    return Listed(meta["path"], int(meta["size"]), tag, time.isoformat() if known else "")
