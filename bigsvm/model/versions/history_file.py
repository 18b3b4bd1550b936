"""The history of a registry: one line for each change, and the line of a change that is in progress."""

from __future__ import annotations

import getpass
import json
import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bigsvm.errors import DataError
from bigsvm.files.appending import append_whole, json_line
from bigsvm.files.atomic import sync_directory, write_bytes
from bigsvm.files.space import cannot_write
from bigsvm.model.model_files import model_fingerprint
from bigsvm.model.versions.layout import HISTORY, PENDING, version_folder


def history(registry: str | Path, warn: Callable[[str], object] | None = None) -> list[dict[str, Any]]:
    """The entries of the history, oldest first.  A torn last line is left out; DataError names any other bad line.

    warn : called with a sentence about a torn line, and one about lines that are missing before another
    """
    path = Path(registry) / HISTORY
    entries = []
    *lines, rest = (path.read_bytes() if path.exists() else b"").split(b"\n")
    if rest and warn is not None:
        warn(f"{path}: the last line was torn by a kill, and is left out; the next change of the registry removes it")
    for number, line in enumerate(lines, 1):
        try:
            entries.append(_checked(json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(
                f"line {number} is not a valid entry of a history", str(path), "repair or drop the line"
            ) from error
    if warn is not None:
        _tell_of_gaps(path, entries, warn)
    return entries


def _tell_of_gaps(path: Path, entries: list[dict[str, Any]], warn: Callable[[str], object]) -> None:
    """Each entry names the version that was current before; None if there was none, or the link had been removed."""
    before: int | None = None
    for number, entry in enumerate(entries, 1):
        if entry["from"] not in (None, before):
            said = f"version {entry['from']} was current before" + ("" if before is None else f", not {before}")
            warn(f"{path}: before line {number} lines are missing: it says that {said}")
        before = entry["version"]


def _checked(entry: Any) -> dict[str, Any]:
    """An entry that has what every change writes down.  Raises ValueError, TypeError or KeyError where it has not."""
    former = entry["from"]
    texts = {name: entry[name] for name in ("at", "by", "note")}
    if not isinstance(entry["metrics"], dict) or not all(isinstance(said, str) for said in texts.values()):
        raise ValueError("it says something else")
    whole = {"version": int(entry["version"]), "from": None if former is None else int(former)}
    return {**entry, **whole, "action": str(entry["action"])}


def write_down(
    root: Path, action: str, version: int, former: int | None, note: str, metrics: dict[str, Any] | None = None
) -> None:
    """Append an entry to the history, and flush it to disk; a torn last line is cut off first."""
    entry = {
        "schema_version": 1,
        "action": action,
        "version": version,
        "from": former,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "by": _who(),
        "model_fingerprint": model_fingerprint(version_folder(root, version)),
        "note": note,
        "metrics": metrics or {},
    }
    line = json_line(entry)
    path = root / HISTORY
    try:
        with open(path, "a+b", buffering=0) as file:
            file.seek(0)
            whole = file.read().rfind(b"\n") + 1
            file.truncate(whole)
            append_whole(file, line)
            try:
                os.fsync(file.fileno())
                sync_directory(root)
            except OSError:
                file.truncate(whole)  # remove the entry again
                raise
    except OSError as error:
        raise cannot_write(path, error, len(line)) from error


def announce(root: Path, action: str, version: int, note: str, metrics: dict[str, Any] | None = None) -> None:
    """Write .pending.json, from which the next change completes the history if this process dies."""
    said = {"action": action, "version": version, "note": note, "metrics": metrics or {}}
    write_bytes(root / PENDING, json.dumps(said, allow_nan=False).encode())


def announced(root: Path, version: int) -> tuple[str, str, dict[str, Any]]:
    """(action, note, metrics) from .pending.json, if it describes the change to `version`; else defaults."""
    nothing = "the link had moved without an entry"
    try:
        said = json.loads((root / PENDING).read_bytes())
        if said["version"] == version:
            return str(said.get("action")), str(said["note"]) or nothing, dict(said["metrics"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass  # no valid file: the link was moved by other means
    return "", nothing, {}


def _who() -> str:
    """`user@host`, for the history."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # e.g. a user without a name in a container
        user = str(os.getuid())
    return f"{user}@{platform.node()}"
