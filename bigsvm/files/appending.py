"""Lines appended to a record: the whole line, or nothing of it."""

from __future__ import annotations

import os
from contextlib import suppress
from io import FileIO


def append_whole(file: FileIO, line: bytes) -> None:
    """Append `line` to an unbuffered file, which stays as it was if there is no room.  Raises OSError with the reason.

    A disk that becomes full takes a part of the line without an error.  Asked to write the rest, it says whether it is
    full, a quota is used up, or the file has reached a limit.
    """
    whole = file.seek(0, os.SEEK_END)
    rest = memoryview(line)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        with suppress(OSError):
            file.truncate(whole)
        raise
