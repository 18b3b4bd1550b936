"""The moment of a change: another version becomes current and the history says so, or neither."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from bigsvm.errors import OutputError
from bigsvm.files.atomic import sync_directory, temporary_name
from bigsvm.files.space import cannot_write
from bigsvm.files.undisturbed import it_is_done, undisturbed
from bigsvm.model.versions.history_file import announce, write_down
from bigsvm.model.versions.layout import CURRENT, PENDING, link_target
from bigsvm.model.versions.reading import current_version


def swap(
    root: Path, action: str, version: int, former: int | None, note: str, metrics: dict[str, Any] | None = None
) -> None:
    """Make a version current and add the history entry: both, or neither if one of them cannot be written.

    Raises OutputError.
    """
    with undisturbed():
        try:
            announce(root, action, version, note, metrics)
            _point_to(root, version)
            write_down(root, action, version, former, note, metrics)
        except OutputError as error:
            _swap_back(root, version, former, error)
            raise
        (root / PENDING).unlink(missing_ok=True)
        it_is_done(root)


def _swap_back(root: Path, version: int, former: int | None, error: OutputError) -> None:
    """Make the former version current again; if that fails, the next change completes the history instead."""
    with suppress(OSError, OutputError):
        if current_version(root) == version:
            if former is None:
                (root / CURRENT).unlink()
            else:
                _point_to(root, former)
    if current_version(root) == version:
        error.hint = f"version {version} is current all the same; once there is room, the next change writes it down"
        error.args = (error.what, error.where, error.hint)
    else:
        (root / PENDING).unlink(missing_ok=True)


def _point_to(root: Path, version: int) -> None:
    """Swap the link, in one rename: the only step that readers can see."""
    link = root / CURRENT
    temporary = temporary_name(link)
    try:
        os.symlink(link_target(version), temporary)
        os.replace(temporary, link)
        sync_directory(root)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise cannot_write(link, error) from error
