"""Arithmetic on arrays: NumPy and numba, nothing of ours.

numba keeps compiled functions on disk, but does not notice when a function that they call in another
file was edited.  So the cache folder is named after a hash of every source file here, of numba's version
and of the processor; it is private to the user, and only our functions are sent there.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numba
import numba.core.config as numba_config


def cache_folder() -> Path:
    """Where compiled kernels of exactly these sources, in this place, are kept; not created here."""
    sources = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        # numba knows a file by its path and time: what another installation compiled is of no use to this one.
        sources.update(f"{path} {path.stat().st_mtime_ns} ".encode() + path.read_bytes())
    processor = getattr(numba_config, "CPU_NAME", None), getattr(numba_config, "CPU_FEATURES", None)
    sources.update(f"{numba.__version__} {platform.machine()} {processor}".encode())
    base = os.environ.get("BIGSVM_CACHE") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "bigsvm" / f"kernels-{sources.hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a read-only home: compile again in each machine's temporary folder
        folder = Path(tempfile.gettempdir()) / f"bigsvm-{os.getuid()}" / folder.name
    return folder


@contextmanager
def _our_cache() -> Iterator[None]:
    """Send functions decorated inside the block to our folder, and leave other users of numba alone."""
    former = numba_config.CACHE_DIR  # type: ignore[attr-defined]
    numba_config.CACHE_DIR = str(cache_folder())  # type: ignore[attr-defined]
    try:
        yield
    finally:
        numba_config.CACHE_DIR = former  # type: ignore[attr-defined]


with _our_cache():
    from bigsvm.kernels import arena as arena
    from bigsvm.kernels import block_smo as block_smo
    from bigsvm.kernels import certify as certify
    from bigsvm.kernels import columns as columns
    from bigsvm.kernels import compile as compile
    from bigsvm.kernels import dual_cd as dual_cd
    from bigsvm.kernels import expo as expo
    from bigsvm.kernels import fingerprint as fingerprint
    from bigsvm.kernels import gram as gram
    from bigsvm.kernels import hessian as hessian
    from bigsvm.kernels import hyperpass as hyperpass
    from bigsvm.kernels import keerthi as keerthi
    from bigsvm.kernels import lanes as lanes
    from bigsvm.kernels import line_search as line_search
    from bigsvm.kernels import losses as losses
    from bigsvm.kernels import many as many
    from bigsvm.kernels import models as models
    from bigsvm.kernels import momentum as momentum
    from bigsvm.kernels import packed as packed
    from bigsvm.kernels import parts as parts
    from bigsvm.kernels import pegasos as pegasos
    from bigsvm.kernels import platt as platt
    from bigsvm.kernels import primal as primal
    from bigsvm.kernels import primal_cd as primal_cd
    from bigsvm.kernels import rosen as rosen
    from bigsvm.kernels import rows as rows
    from bigsvm.kernels import sample as sample
    from bigsvm.kernels import shuffle as shuffle
    from bigsvm.kernels import smo as smo
    from bigsvm.kernels import svmlight as svmlight
    from bigsvm.kernels import tile as tile
    from bigsvm.kernels import visiting as visiting
