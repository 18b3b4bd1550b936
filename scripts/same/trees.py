"""Two trees of this repository to hold against each other: a folder as it is, or a commit in a work tree of its own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def named(what: str) -> Path | str:
    """What OLD or NEW names: a folder, as a path, or a revision's commit.  Ends the program where it is neither."""
    if Path(what).is_dir():
        return Path(what).resolve()
    done = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{what}^{{commit}}")
    if done.returncode:
        sys.stderr.write(f"{what}: neither a folder nor a revision of this repository\n")
        raise SystemExit(2)
    return done.stdout.strip()


@contextlib.contextmanager
def checked_out(what: Path | str, kept: Path | None, temporary: Path) -> Iterator[Path]:
    """The folder of a tree: that of a path itself, that of a commit a work tree.

    kept : where work trees stay for another time; None: it is removed at the end
    """
    if isinstance(what, Path):
        yield what
        return
    folder = (temporary if kept is None else kept) / f"tree-{what}"
    if not (folder / "bigsvm").is_dir():
        git("worktree", "prune").check_returncode()
        git("worktree", "add", "--detach", "--quiet", str(folder), what).check_returncode()
    try:
        yield folder
    finally:
        if kept is None:
            git("worktree", "remove", "--force", str(folder)).check_returncode()


def git(*command: str) -> subprocess.CompletedProcess[str]:
    """A command of git in this repository; what it complains of is seen."""
    return subprocess.run(["git", "-C", str(REPOSITORY), *command], stdout=subprocess.PIPE, text=True, check=False)
