"""Lines of JSON, and lines appended to a record: the whole line, or nothing of it where there is no room."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from io import FileIO
from typing import Any


def json_line(document: Any) -> bytes:
    """The document as one line of JSON in UTF-8; text that has no UTF-8, as some paths, with the escapes of JSON.

    Raises ValueError for NaN and infinity.
    """
    return json.dumps(document, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace") + b"\n"


def append_whole(file: FileIO, line: bytes) -> None:
    """Append `line` to an unbuffered file, which stays as it was if there is no room.  Raises OSError with the reason.

    Of a process that is killed meanwhile a part of its line may stay.  The next line begins after a line end, so that
    only one is lost.

    file : opened for reading, too

    A disk that becomes full takes a part of the line without an error.  Asked to write the rest, it says whether it is
    full, a quota is used up, or the file has reached a limit.
    """
    whole = file.seek(0, os.SEEK_END)
    torn = whole > 0 and os.pread(file.fileno(), 1, whole - 1) != b"\n"
    rest = memoryview(b"\n" + line if torn else line)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        with suppress(OSError):
            file.truncate(whole)
        raise
