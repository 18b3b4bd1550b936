"""The faults of a single request, and when to repeat it.

Messages of obstore contain URLs and headers, which may be secret, so no part of them is ever passed on.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from bigsvm.errors import DataError, Interrupted, MissingInput, ReadFailed

T = TypeVar("T")
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 8.0
_SLOWER = 4
_FIRST_DEADLINE_S = 30.0
OTHER_BYTES = "its bytes are not those of its ETag"
REMEDY = (
    "put the object there again; of a bucket whose ETags are no MD5, as of one encrypted with keys of its own: "
    "--storage-option etag=opaque"
)
_AGREEING = 4
"""Number of consecutive answers "absent", "denied" or "wrong bytes" that are needed before they are believed."""
_AGREEING_UNUSABLE = 2
"""The same for answers that cannot be used: these are the server's habit, seldom an accident."""
_UNKNOWN_LENGTH = re.compile(r"bytes +\d+-\d+/\*")
_OTHER_RANGE = re.compile(r"Requested (\d+)\.\.(\d+), got (\d+)\.\.(\d+)")
_STATUS = re.compile(r"(?:status(?: code)?:?|HTTP(?:/\d\S*)?) (\d{3})\b")


class Fault(Exception):
    """A request failed.

    what : a short description, without words of obstore
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class Passing(Fault):
    """The fault may be temporary, so the request is repeated until the deadline."""


class Silence(Passing):
    """No answer came in time."""

    def __init__(self) -> None:
        super().__init__("no answer in time")


class Believed(Fault):
    """A fault that is believed after several consecutive occurrences.

    kind : absent, denied, changed, wrong (bytes), tag (the ETag of other bytes), path, length (not given), date (not
        readable), redirect, range (other than asked for), part (of the range), or refused with a status
    """

    agreeing = _AGREEING

    def __init__(self, what: str, kind: str) -> None:
        super().__init__(what)
        self.kind = kind


class Changed(Believed):
    """The object has changed since it was listed."""

    def __init__(self) -> None:
        super().__init__("changed since it was listed", "changed")


class Unmeasured(Believed):
    """An answer without its length, as for a page that is generated or compressed while it is sent."""

    def __init__(self) -> None:
        super().__init__("the server does not say how long it is (no Content-Length)", "length")


class Unusable(Believed):
    """A complete answer that obstore cannot use; most of them break the rules of HTTP."""

    agreeing = _AGREEING_UNUSABLE


class OtherRange(Unusable):
    """An answer with other bytes than those that were asked for, or without saying which bytes it has.

    part : it has the first of these bytes, which is permitted
    """

    def __init__(self, what: str, part: bool = False) -> None:
        super().__init__(what, "part" if part else "range")


class NoRanges(Fault):
    """The server gives only whole objects."""


def fault_of(error: BaseException) -> Fault:
    """The fault for an exception of obstore; only the HTTP status of its text is used."""
    kind, text = type(error).__name__, str(error)
    status_found = _STATUS.search(text)
    if status_found and int(status_found[1]) == 405:  # obstore takes it for the answer of a folder
        return Believed("the server refuses the request (HTTP 405)", "refused 405")
    if isinstance(error, FileNotFoundError) or kind == "NotFoundError":
        return Believed("is not there (HTTP 404)", "absent")
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or isinstance(error, PermissionError):
        status = 403 if kind == "PermissionDeniedError" else 401
        return Believed(f"may not be read (HTTP {status})", "denied")
    if kind in ("PreconditionError", "NotModifiedError"):
        return Changed()
    if kind == "InvalidPathError":
        return Believed("a key there has an empty part, . or .., or a control character in its path", "path")
    if kind == "NotSupportedError" and "ange" in text:
        return NoRanges("the server gives no ranges")
    if status_found:
        status = int(status_found[1])
        if status == 404:
            return Believed("is not there (HTTP 404)", "absent")
        if status in (401, 403):
            return Believed(f"may not be read (HTTP {status})", "denied")
        if 300 <= status < 500 and status not in (408, 409, 425, 429):
            return Believed(f"the server refuses the request (HTTP {status})", f"refused {status}")
        return Passing(f"HTTP {status}")
    if unusable := _unusable(text):
        return unusable
    low = text.lower()
    if "content-length" in low or "content length" in low or "contentlength" in low:
        return Unmeasured()
    if "dns error" in low:
        return Passing("the host name cannot be resolved")
    if "kind: connect" in low:
        return Passing("no connection")
    if "kind: timeout" in low:
        return Silence()
    return Passing("the connection broke, or the answer was cut short")


def _unusable(text: str) -> Fault | None:
    """The fault if the text says that obstore cannot use an answer, which was complete."""
    if "error following redirect" in text:
        endless = "TooManyRedirects" in text or "too many redirects" in text
        where = "again and again, without end" if endless else "to an address that cannot be read"
        return Unusable(f"the server redirects {where}", "redirect")
    if "Invalid last modified" in text:
        return Unusable("the server gives a Last-Modified that is no date", "date")
    if "Content-Range header not present" in text:
        return OtherRange("the server gives a part (HTTP 206) and does not say which one (no Content-Range)")
    if "value for CONTENT_RANGE header" in text:
        if _UNKNOWN_LENGTH.search(text):  # permitted, but obstore does not read it
            return NoRanges("the server gives ranges without the length of the whole")
        return OtherRange("the server gives a part (HTTP 206) with a Content-Range that cannot be read")
    if found := _OTHER_RANGE.search(text):
        first, stop, first_found, stop_found = map(int, found.groups())
        what = f"the server answers a request for the bytes {first}-{stop - 1} with {first_found}-{stop_found - 1}"
        return OtherRange(what, part=first == first_found and stop_found < stop)
    return None


class Patience:
    """Repeats requests, with growing pauses, until an answer comes or the deadline has passed.

    deadline_s : for each request; at most 30 s until the store has answered for the first time
    stopping : set when copying is given up: nobody waits or sends requests any more
    """

    def __init__(self, deadline_s: float, stopping: threading.Event | None = None) -> None:
        self.deadline_s, self.stopping = deadline_s, stopping or threading.Event()
        self._answered = False
        self._last_answer = 0.0

    def _pause_s(self, number: int) -> float:
        """Seconds to wait after `number` + 1 faults of one request.

        The pause grows fast if the whole store is silent or busy.  If the store has just answered other requests, it
        needs no rest, and a request that failed several times by chance must not wait for seconds.
        """
        grown = _FIRST_WAIT_S * 2.0**number
        if self._answered:
            ago = time.monotonic() - self._last_answer
            grown = min(grown, max(_FIRST_WAIT_S * 2.0 ** (number / _SLOWER), ago / 2))
        return min(grown, _LONGEST_WAIT_S)

    def _has_answered(self) -> None:
        self._answered, self._last_answer = True, time.monotonic()

    def ask(self, where: str, attempt: Callable[[], T]) -> T:
        """Repeat `attempt` until it returns, and return its result.

        where : name of the object, for messages; also the seed of the pauses

        Raises
        ------
        ReadFailed : the deadline has passed.  MissingInput : the object was absent or denied several times in a row.
        DataError : it has changed, or gave wrong bytes several times in a row.  NoRanges is passed on, and raised for
            ranges of which only a part came several times in a row.
        """
        began, pauses, agreeing, last = time.monotonic(), random.Random(where), 0, ""
        number = 0
        while True:
            if self.stopping.is_set():
                raise Interrupted("stopped", where)
            try:
                answer = attempt()
                self._has_answered()
                return answer
            except Believed as fault:
                self._has_answered()
                agreeing = agreeing + 1 if fault.kind == last else 1
                last, what = fault.kind, fault.what
                if agreeing >= fault.agreeing:
                    raise _believed(fault, where) from None
            except Passing as fault:
                last, what = "", fault.what
            pause = self._pause_s(number) * (0.5 + 0.5 * pauses.random())
            number += 1
            # If a store has never answered, a wrong name is more likely than a failure.
            deadline = self.deadline_s if self._answered else min(self.deadline_s, _FIRST_DEADLINE_S)
            left = deadline - (time.monotonic() - began)
            if left <= 0:
                raise ReadFailed(
                    f"given up after {number} requests in {deadline:g} s; the last fault: {what}", where,
                    "what was copied is kept: repeat the command when the store answers",
                )  # fmt: skip
            self.stopping.wait(min(pause, left))


class Absent(MissingInput):
    """There is no object with that name."""


def _believed(fault: Believed, where: str) -> Exception:
    if fault.kind == "absent":
        return Absent(fault.what, where)
    if fault.kind == "changed":
        return DataError(fault.what, where, "repeat the command, which copies it again")
    if fault.kind == "tag":
        return DataError(fault.what, where, REMEDY)
    if fault.kind == "path":
        return DataError(fault.what, where, "rename that object, or name a folder without it")
    if fault.kind == "wrong":
        return DataError(fault.what, where, "restore the object, or ingest the store again")
    if fault.kind == "part":
        return NoRanges(fault.what)
    if fault.kind == "redirect":
        return MissingInput(fault.what, where, "see where the URL leads (curl -IL URL), and name the URL of the file")
    if fault.kind in ("length", "date", "range"):
        # Without a length the space needed is unknown, and so is whether everything came.
        return MissingInput(fault.what, where, "download it first (curl -o FILE URL), and name FILE")
    if fault.kind == "denied":
        if where.startswith("http"):
            return MissingInput(fault.what, where, "is reading permitted?  User and password may be part of the URL")
        hint = "set credentials (AWS_*, GOOGLE_*, AZURE_*); for a public bucket: --storage-option skip_signature=true"
        return MissingInput(fault.what, where, hint)
    return MissingInput(fault.what, where, "check the URI, the endpoint, the region and the credentials")
