"""Signals that come while a night is still being imported: it ends at once, as it would a moment later.

This module imports nothing that takes time.  `retrain.main` hands over to handlers that unwind the night.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 75
_SAID = "interrupted; the current model stays"
_HINT = "nothing was begun: run the job again"
_LINE = f"bigsvm: error: {_SAID} ({_HINT}) [errors.md#interrupted]\n"
_DOCUMENT = (  # a handler may run in the midst of any import, so it imports nothing
    '{"schema_version": 1, "command": "retrain", "status": "interrupted", '
    f'"error": {{"code": {INTERRUPTED}, "message": "{_SAID}", "where": "", "hint": "{_HINT}"}}}}\n'
)


def end_at_once_on_signals() -> None:
    """From now on SIGTERM, SIGINT and SIGHUP end the process with 75; those that are ignored stay so."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    try:
        os.write(2, _LINE.encode())
        if "--json" in sys.argv:
            os.write(1, _DOCUMENT.encode())
    finally:
        os._exit(INTERRUPTED)
