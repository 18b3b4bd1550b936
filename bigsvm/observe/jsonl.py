"""The record of a run, events.jsonl: one event for each line.

    {"event": "FitStarted", "at_s": 0.0, "plan": {...}, "config": {...}, "store_fingerprint": "...", ...}
    {"event": "CertificateMade", "at_s": 1.2, "epochs": 1.0, "relative_gap": 0.08, ...}

The first line holds everything that is needed to repeat the run, and any plot can be drawn again from the file.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any, TextIO

from bigsvm.errors import DataError, MissingInput
from bigsvm.events import Event, WorkAdvanced
from bigsvm.files.appending import append_whole

_SURROGATE = re.compile("[\ud800-\udfff]")
_OF_BYTE = 0xDC00  # Python keeps the byte b of a name that is not UTF-8 as U+DC00 + b


def plain(value: Any) -> Any:
    """`value` as JSON can represent it: arrays as lists, paths as strings, numbers that are not finite as null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy arrays and scalars, without importing NumPy
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    return str(value)


def without_surrogates(value: Any) -> Any:
    """A JSON document with `\\xff` for each byte of a file name that is not UTF-8.

    Python keeps such a byte as a lone surrogate, which many readers of JSON refuse, and which cannot be printed.
    """
    if isinstance(value, str):
        return value if value.isascii() else _SURROGATE.sub(_escaped, value)
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    return [without_surrogates(item) for item in value] if isinstance(value, list) else value


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code - _OF_BYTE:02x}" if 0x80 <= code - _OF_BYTE <= 0xFF else f"\\u{code:04x}"


def event_line(event: Event, at_s: float) -> str:
    """An event as one line, without its newline.

    Parameters
    ----------
    at_s : seconds since the record began
    """
    return json.dumps(_document(event, at_s), allow_nan=False)


def _document(event: Event, at_s: float) -> dict[str, Any]:
    fields = {f.name: plain(getattr(event, f.name)) for f in dataclasses.fields(event)}
    return {"event": type(event).__name__, "at_s": round(at_s, 6), **fields}


def event_of(document: dict[str, Any]) -> Event | None:
    """The event on a line, with null as NaN; None for an unknown kind, or if a field is missing."""
    kind = next((kind for kind in Event.__subclasses__() if kind.__name__ == document.get("event")), None)
    if kind is None:
        return None
    found = {f.name: document[f.name] for f in dataclasses.fields(kind) if f.name in document}
    try:
        return kind(**{name: math.nan if value is None else value for name, value in found.items()})
    except TypeError:
        return None


class JsonlStream:
    """An Emit that writes each event as a line to an open text stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._began = stream, time.monotonic()

    def __call__(self, event: Event) -> None:
        document = _document(event, time.monotonic() - self._began)
        self._stream.write(json.dumps(without_surrogates(document), allow_nan=False) + "\n")
        self._stream.flush()


class JsonlFile:
    """An Emit that appends to a record file; a context manager.

    The file and its folder are created with the first event, so a run that is refused before it starts leaves nothing.
    A last line that was torn by a crash is removed first.  WorkAdvanced events are not recorded: they serve a progress
    display, and would be most of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: FileIO | None = None
        self._began = time.monotonic()

    def __call__(self, event: Event) -> None:
        if isinstance(event, WorkAdvanced):
            return
        line = (event_line(event, time.monotonic() - self._began) + "\n").encode()
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                _cut_torn_line(self.path)
                self._file = open(self.path, "a+b", buffering=0)  # noqa: SIM115
            self._write(self._file, line)
        except OSError as error:
            from bigsvm.files.space import cannot_write

            raise cannot_write(self.path, error, len(line)) from error

    def _write(self, file: FileIO, line: bytes) -> None:
        """Append the whole line or nothing, and delete a file that would stay empty.  Raises OSError."""
        alone = file.tell() == 0
        try:
            append_whole(file, line)
        except OSError:
            if alone:
                self.close()
                self.path.unlink(missing_ok=True)
            raise

    def close(self) -> None:
        """Close the file; may be called twice."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> JsonlFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a record, in order; a torn last line is ignored.

    Raises
    ------
    MissingInput : there is no record at `path`.
    DataError : a line before the last is not an event; names file and line.
    """
    try:
        file = open(path, encoding="utf-8", errors="replace")  # noqa: SIM115
    except OSError as error:
        raise MissingInput(f"no record of events here: {error.strerror}", str(path)) from error
    with file:
        for number, line in enumerate(file, 1):
            try:
                event = json.loads(line)
                if not isinstance(event, dict) or "event" not in event:
                    raise ValueError("no event")
            except ValueError as error:
                if not line.endswith("\n"):
                    return
                hint = "repair or delete the line; the model does not depend on it"
                raise DataError("this line is not an event", f"{path}:{number}", hint) from error
            yield event


def _cut_torn_line(path: Path) -> None:
    """Remove whatever follows the last newline."""
    if not path.exists():
        return
    with open(path, "rb+") as file:
        end = size = file.seek(0, 2)
        while end > 0:
            start = max(0, end - 65536)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            file.truncate(end)
