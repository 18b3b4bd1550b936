"""What a process that died left in a registry: files to remove, and a history to complete."""

from __future__ import annotations

import shutil
from pathlib import Path

from bigsvm.model.versions.history_file import announced, history, write_down
from bigsvm.model.versions.layout import VERSIONS, is_there, version_folder, version_numbers
from bigsvm.model.versions.reading import current_version

_LITTER = ".*.tmp-*"


def tidy(root: Path) -> None:
    """Remove temporary files of dead processes, and complete the history if a process died before it could.

    The caller holds the lock of the registry, so that every temporary file belongs to a dead process.
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
        # An interrupted rollback must not be recorded as a promotion.
        write_down(root, "rollback" if action == "rollback" else "recovered", version, recorded, note, metrics)
    elif entries and version is not None:
        # A copy without a history entry: its process died before the swap.
        newest = max(entry["version"] for entry in entries)
        for number in (number for number in version_numbers(root) if number > newest):
            shutil.rmtree(version_folder(root, number), ignore_errors=True)
