"""What the files of a registry are called, and which numbered folders it has."""

from __future__ import annotations

import re
from pathlib import Path

CURRENT, HISTORY, LOCK, PENDING, VERSIONS = "current", "history.jsonl", ".lock", ".pending.json", "versions"


def version_folder(root: Path, version: int) -> Path:
    """The folder of a version, whether it exists or not."""
    return root / VERSIONS / f"{version:06d}"


def link_target(version: int) -> str:
    """What the link `current` says if it names a version."""
    return f"{VERSIONS}/{version:06d}"


def linked_version(target: str) -> int | None:
    """The version that a link's target names; None if it is not `link_target` of a version."""
    match = re.fullmatch(rf"{VERSIONS}/([0-9]{{6,}})", target)
    return None if match is None else int(match[1])


def version_numbers(root: Path) -> list[int]:
    """The numbers of all folders of versions, ascending; an interrupted deletion may have left some of them."""
    return sorted(int(path.name) for path in (root / VERSIONS).iterdir() if re.fullmatch("[0-9]{6,}", path.name))


def is_there(root: Path, version: int) -> bool:
    """Whether a version exists; an interrupted deletion leaves a folder without model.json."""
    return (version_folder(root, version) / "model.json").is_file()
