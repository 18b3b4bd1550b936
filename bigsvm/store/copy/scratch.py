"""The scratch folder, for working copies and per-row state."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from bigsvm.config import FitConfig
from bigsvm.errors import OutputError
from bigsvm.files.paths import can_make, check_here
from bigsvm.files.space import cannot_write
from bigsvm.store.copy.stage_index import COPIES

_OWN = "use --scratch DIR with a folder of your own, or set BIGSVM_SCRATCH"


def scratch_folder(config: FitConfig) -> Path:
    """--scratch, else $BIGSVM_SCRATCH, else a folder of this user in the system's temporary folder; absolute.

    A worker with another working directory would misread a relative path.
    """
    return Path(config.scratch or os.environ.get("BIGSVM_SCRATCH") or _own_folder()).absolute()


def make_scratch(config: FitConfig) -> Path:
    """The scratch folder; the user's own default folder is created if missing, readable only by the user.

    Raises OutputError if it cannot be made, is remote, or belongs to somebody else.
    """
    if config.scratch is not None:
        check_here(config.scratch)
    folder = scratch_folder(config)
    if folder != _own_folder():
        copies = folder / COPIES
        if os.path.lexists(copies) and not can_make(copies):
            raise OutputError("does not belong to you", str(copies), _OWN)
        return folder
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()  # do not follow a link, which anybody may put there
    except OSError as error:
        raise cannot_write(folder, error) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise OutputError("does not belong to you", str(folder), _OWN)
    return folder


def _own_folder() -> Path:
    return Path(tempfile.gettempdir()).absolute() / f"bigsvm-{os.getuid()}"


def is_tmpfs(path: Path) -> bool:
    """Whether files in a folder are in memory (tmpfs); for a missing folder its parent decides."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    device = os.stat(path).st_dev
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        major, minor = map(int, fields[2].split(":"))
        if os.makedev(major, minor) == device:
            return fields[fields.index("-") + 1] in ("tmpfs", "ramfs")
    return False
