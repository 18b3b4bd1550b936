"""Which version of a registry is current, which one was before it, and which number comes next."""

from __future__ import annotations

import os
from pathlib import Path

from bigsvm.errors import BigSVMError, DataError, MissingInput
from bigsvm.model.versions.history_file import history
from bigsvm.model.versions.layout import CURRENT, LOCK, is_there, linked_version, version_folder, version_numbers


def current(registry: str | Path) -> Path | None:
    """The resolved folder of the current version; None if there is none.  Raises DataError."""
    version = current_version(Path(registry))
    if version is None:
        return None
    folder = version_folder(Path(registry), version)
    if not is_there(Path(registry), version):
        hint = f"bigsvm rollback {registry} --to N makes another version current"
        raise DataError(f"the current version {version} is not there", str(registry), hint)
    refuse_a_link(folder)
    return folder


def current_version(root: Path) -> int | None:
    """The version that the link names; None without a link.  Raises DataError if it is not a link of a registry.

    Raises MissingInput if the registry may not be searched.
    """
    try:
        target = os.readlink(root / CURRENT)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise MissingInput(f"cannot be read: {error.strerror}", str(root / CURRENT)) from error
    except OSError as error:
        hint = f"move it away, then: bigsvm rollback {root} --to N"
        raise DataError(f"not a link: {error.strerror}", str(root / CURRENT), hint) from error
    version = linked_version(target)
    if version is None:
        hint = f"delete it, then: bigsvm rollback {root} --to N"
        raise DataError(f"links to {target!r}, which is not a version", str(root / CURRENT), hint)
    return version


def refuse_a_link(folder: Path) -> None:
    """Raise DataError if a version is a link, because the target of a link may change."""
    if folder.is_symlink():
        raise DataError("the version is a link", str(folder), "put the model's folder itself there")


def remedy_of_version(path: Path) -> str:
    """What helps if the model at `path` is damaged; '' unless it is a version of a registry.

    path : of the version or of the link `current`; the registry is called as it is there
    """
    folder = path.resolve()
    version, registry = linked_version(f"{folder.parent.name}/{folder.name}"), folder.parent.parent
    if version is None or not (registry / LOCK).exists():
        return ""
    named = {CURRENT: path.parent, folder.name: path.parent.parent}.get(path.name, registry)
    try:
        if current_version(registry) != version:
            return f"bigsvm rollback {named} --to N makes another version current, see bigsvm history {named}"
        return f"bigsvm rollback {named} makes version {version_before(registry)} current"
    except BigSVMError:
        return f"bigsvm promote {named} MODEL --allow-other-shape makes another model current"


def version_before(root: Path) -> int:
    """The version that a rollback goes to.  The history is replayed as a stack: a promotion pushes, a rollback pops.

    Raises MissingInput if there is none.
    """
    pile: list[int] = []
    for version in (entry["version"] for entry in history(root)):
        pile = pile[: pile.index(version) + 1] if version in pile else [*pile, version]
    pile = [version for version in pile if is_there(root, version)]  # skip versions that were deleted
    former = current_version(root)
    if former is not None and not is_there(root, former):
        pile.append(former)  # the current version counts as the top, even if its folder is gone
    if len(pile) < 2:
        known = {entry["version"] for entry in history(root)}
        lost = [version for version in version_numbers(root) if is_there(root, version) and version not in known]
        hint = unrecorded(root, lost[-1]) if lost else ""
        raise MissingInput("there is no earlier version to go back to", str(root), hint)
    return pile[-2]


def unrecorded(root: Path, version: int) -> str:
    """The remedy for a version without a line in the history: its process died before the swap, or lines were lost."""
    return f"if version {version} was current once: bigsvm promote {root} {version_folder(root, version)}"


def next_version(root: Path) -> int:
    """A number above all versions that exist or were ever recorded."""
    used = [*version_numbers(root), *(entry["version"] for entry in history(root)), current_version(root) or 0]
    return max(used) + 1
