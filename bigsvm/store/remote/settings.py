"""The settings of remote access: typed options, the folder of copies, and the observer of the progress.

They are a context variable, like the environment of a process.  So credentials are in no signature, record, event or
message.
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
    """The settings of remote access.

    options : for obstore, by its names; never shown
    deadline_s : seconds after which reading a piece of an object is given up
    timeout_s : seconds of silence after which one answer is given up
    opaque_tags : whether the bucket's ETags are not MD5 digests
    scratch, scratch_limit : folder of copies, and bytes that they may take; None: the default folder, the free space
    memory : budget in bytes, of which pieces in flight may take a quarter; None: unknown
    watch : returns the Emit that receives the progress of copying
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
        """Seconds after which no request is sent any more, so that the last answer comes before the deadline."""
        return max(self.deadline_s - self.timeout_s, self.deadline_s / 2)

    @property
    def in_flight(self) -> int:
        """Bytes of pieces that may be in flight, which count in the budget."""
        return max(self.memory or _USUAL_MEMORY, _LEAST_MEMORY) // 4


_current: ContextVar[Storage | None] = ContextVar("storage", default=None)


def current() -> Storage:
    """The settings of the current context."""
    return _current.get() or Storage()


@contextmanager
def storing(options: Mapping[str, Any] | None = None, **changes: Any) -> Iterator[None]:
    """Change settings for the block; values of None change nothing.

    options : for obstore; and bigsvm's own: `deadline` and `timeout` in seconds; `etag`, md5 or opaque

    Raises UsageError for an invalid deadline or timeout.  The message does not repeat values, because a secret may have
    been typed in the wrong place.
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
