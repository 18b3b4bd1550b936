"""The scratch folder: where working copies and per-row state go."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from bigsvm.config import FitConfig
from bigsvm.errors import OutputError
from bigsvm.files.atomic import cannot_write
from bigsvm.files.paths import check_here


def scratch_folder(config: FitConfig) -> Path:
    """--scratch, else $BIGSVM_SCRATCH, else a folder of this user's in the system's temporary folder; absolute.

    A worker that was started elsewhere would take a relative path for another folder.
    """
    return Path(config.scratch or os.environ.get("BIGSVM_SCRATCH") or _own_folder()).absolute()


def make_scratch(config: FitConfig) -> Path:
    """The scratch folder; this user's own one is made where it is not there, and nobody else can look into it.

    Raises OutputError: it cannot be made, is elsewhere, or somebody else was there first.
    """
    if config.scratch is not None:
        check_here(config.scratch)
    folder = scratch_folder(config)
    if folder != _own_folder():
        return folder
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()  # not what a link leads to: anybody may put one there
    except OSError as error:
        raise cannot_write(folder, error) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise OutputError("is not a folder of yours", str(folder), "use --scratch DIR, or set BIGSVM_SCRATCH")
    return folder


def _own_folder() -> Path:
    return Path(tempfile.gettempdir()).absolute() / f"bigsvm-{os.getuid()}"


def is_tmpfs(path: Path) -> bool:
    """Whether files there live in memory.  A folder that does not exist yet is judged by its parent."""
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
