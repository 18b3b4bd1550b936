"""The scratch folder: where working copies and per-row state go."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from bigsvm.config import FitConfig


def scratch_folder(config: FitConfig) -> Path:
    """--scratch, else $BIGSVM_SCRATCH, else the system's temporary folder."""
    return Path(config.scratch or os.environ.get("BIGSVM_SCRATCH") or tempfile.gettempdir())


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
