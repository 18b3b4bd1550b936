"""Standard output as a place of data: where it cannot be written, it is named like any other output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TextIO

from bigsvm.errors import OutputError


def standard_output() -> BinaryIO:
    """Standard output, for data that were asked for there.

    Raises OutputError where the caller of this process closed it (`>&-`): what is written would be lost in silence.
    """
    if sys.__stdout__ is None:  # Python's mark of a descriptor that was closed at the start
        raise OutputError("cannot write: it is closed", "standard output", "redirect it, or name a file")
    return sys.stdout.buffer


@contextmanager
def to_standard_output() -> Iterator[None]:
    """Around what is written to standard output.  Raises OutputError naming it, BrokenPipeError if nobody reads it."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        from bigsvm.files.space import cannot_write  # `bigsvm --help` does not need it

        raise cannot_write(Path("-"), error) from error


def silence_standard_output() -> None:
    """Redirect standard output to /dev/null.  The flush at exit would fail again, and make the exit code 120."""
    _to_nowhere(sys.stdout)


def drop_what_nobody_reads() -> None:
    """To be called at the very end: what standard error could not take must not make the exit code 120."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        _to_nowhere(sys.stderr)


def _to_nowhere(stream: TextIO) -> None:
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
