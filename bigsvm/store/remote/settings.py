"""How this call reaches objects elsewhere: options that were typed, where copies go, who watches.

A value of the context, as the environment is one of the process: credentials pass through no signature, and so into no
record, event or message.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from bigsvm.errors import UsageError
from bigsvm.events import Emit, silent
from bigsvm.units import MIB

DEADLINE_S, TIMEOUT_S = 180.0, 30.0
_LEAST_MEMORY, _USUAL_MEMORY = 2 * MIB, 256 * MIB


@dataclass(frozen=True)
class Storage:
    """What reading objects elsewhere goes by.

    options : for the store, by the names that obstore has for them; never shown
    deadline_s : after so long a piece of an object is given up
    timeout_s : after so long one answer is
    opaque_tags : the bucket's ETags are no MD5
    scratch, scratch_limit : folder of copies, and bytes they may take; None: the usual folder, what the disk has
    memory : bytes that pieces in flight may take a quarter of; None: nobody said
    watch : gives the Emit that is told how far copying is
    """

    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    deadline_s: float = DEADLINE_S
    timeout_s: float = TIMEOUT_S
    opaque_tags: bool = False
    scratch: str | None = None
    scratch_limit: int | None = None
    memory: int | None = None
    watch: Callable[[], AbstractContextManager[Emit]] = lambda: nullcontext(silent)

    @property
    def last_request_s(self) -> float:
        """After so long nothing is asked for any more, so that the last answer, too, comes before the deadline."""
        return max(self.deadline_s - self.timeout_s, self.deadline_s / 2)

    @property
    def in_flight(self) -> int:
        """Bytes that may be in flight: read-ahead is paid from the budget."""
        return max(self.memory or _USUAL_MEMORY, _LEAST_MEMORY) // 4


_current: ContextVar[Storage | None] = ContextVar("storage", default=None)


def current() -> Storage:
    """The settings of this context."""
    return _current.get() or Storage()


@contextmanager
def storing(options: Mapping[str, Any] | None = None, **changes: Any) -> Iterator[None]:
    """Settings for the block; what is None stays as it was.

    options : of the store, and of ours: `deadline` and `timeout` in seconds; `etag`, md5 or opaque

    Raises UsageError for a deadline or timeout that is none; values are not repeated, one may be a secret in the wrong
    place.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    if options is not None and not isinstance(options, Mapping):
        raise UsageError("storage_options must be a dictionary of names and values")
    if options:
        ours: dict[str, Any] = {}
        theirs: dict[str, str] = {}
        for name, value in options.items():
            key = str(name).lower()
            if key in ("deadline", "timeout"):
                ours[f"{key}_s"] = _seconds(key, value)
            elif key == "etag":
                if value not in ("md5", "opaque"):
                    raise UsageError("storage option etag must be md5 or opaque")
                ours["opaque_tags"] = value == "opaque"
            else:
                theirs[key] = str(value)
        given |= {**ours, "options": theirs}
    token = _current.set(dataclasses.replace(current(), **given))
    try:
        yield
    finally:
        _current.reset(token)


def _seconds(name: str, value: Any) -> float:
    try:
        seconds = float(str(value).removesuffix("s"))
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= DEADLINE_S:
        raise UsageError(f"storage option {name} must be seconds, more than 0 and at most {DEADLINE_S:g}")
    return seconds
