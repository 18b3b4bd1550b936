"""What a process that died left in a registry: files to remove, and a history to complete."""

from __future__ import annotations

import shutil
from pathlib import Path

from bigsvm.events import Emit, Warned, silent
from bigsvm.model.versions.history_file import announced, history, write_down
from bigsvm.model.versions.layout import HISTORY, VERSIONS, is_there, version_folder, version_numbers
from bigsvm.model.versions.reading import current_version

_LITTER = ".*.tmp-*"


def tidy(root: Path, emit: Emit = silent) -> None:
    """Remove temporary files of dead processes, and complete the history if a process died before it could.

    The caller holds the lock of the registry, so that every temporary file belongs to a dead process.

    emit : receives a warning if the link moved and no process said that it would move it
    """
    for path in [*root.glob(_LITTER), *(root / VERSIONS).glob(_LITTER)]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    entries, version = history(root), current_version(root)
    recorded = entries[-1]["version"] if entries else None
    if version is not None and not is_there(root, version):
        return  # the version is gone, so there is nothing to record; whoever compares with it or loads it gets an error
    if version is not None and version != recorded:
        action, note, metrics = announced(root, version)
        if not action:
            told = f"{root / HISTORY} had no line about version {version}, which is current: one is added"
            emit(Warned(f"{told}; if lines were lost, restore them"))
        # An interrupted rollback must not be recorded as a promotion.
        write_down(root, "rollback" if action == "rollback" else "recovered", version, recorded, note, metrics)
    elif entries and version is not None:
        # A copy that never became current: its process said so, and died before the swap.  Other versions without an
        # entry stay: lines of the history were lost.
        newest = max(entry["version"] for entry in entries)
        for number in (number for number in version_numbers(root) if number > newest):
            if announced(root, number)[0]:
                shutil.rmtree(version_folder(root, number), ignore_errors=True)
