"""What `bigsvm doctor` found that stands in somebody's way, each with a line that mends it."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from bigsvm.config import BASE_BYTES
from bigsvm.errors import OutputError
from bigsvm.files.paths import cache_folder, can_make, unwritable_cache
from bigsvm.store.remembered import FOLDER, why_not_read
from bigsvm.units import GIB, MIB, show_bytes

EXTRAS = {
    "sklearn": ("sklearn", "bigsvm.sklearn, the estimators"),
    "matplotlib": ("report", "pages of bigsvm report and plots as PNG or SVG"),
    "h5py": ("anndata", "rows in .h5ad and .h5 files"),
    "obstore": ("remote", "rows on object storage"),
    "mlflow": ("mlflow", "runs in MLflow: bigsvm fit --mlflow"),
    "onnx": ("onnx", "bigsvm export MODEL OUT.onnx"),
}
"""Library -> (extra, what it is for)."""
_LEAST_BUDGET = 256 * MIB


def remedies(found: dict[str, Any]) -> list[dict[str, str]]:
    """problem and fix of each thing that the result of `doctor` shows, the worst first; empty where there is none.

    A fix is a line for the shell where there is one.  What is merely optional comes last.
    """
    said: list[tuple[str, str]] = []
    if found["missing"]:
        said.append(("no fit can run: libraries are missing", f"pip install {' '.join(found['missing'])}"))
    base = found["memory"]["base_bytes"]
    if base is None and not found["missing"]:
        said.append(("the limit of addresses (ulimit -v) leaves no room for a process", "ulimit -v unlimited"))
    if base is not None and base > BASE_BYTES:
        more = -(-(base - BASE_BYTES) // MIB)
        what = f"a process takes more than {show_bytes(BASE_BYTES)} before it reads a row"
        said.append((what, f"lower --memory by {more} MiB"))
    said += _of_scratch(found["scratch"])
    said += _of_cache()
    memory = found["memory"]
    if memory["default_budget_bytes"] < _LEAST_BUDGET:
        limit = f"{memory['limit_source']} leaves a fit {memory['default_budget_bytes'] // MIB} MiB"
        said.append((limit, "raise that limit, or name the budget yourself: bigsvm fit ... --memory SIZE"))
    for library, (extra, what) in EXTRAS.items():
        if importlib.util.find_spec(library) is None:
            said.append((f"optional, for {what}: {library} is not installed", f"pip install 'bigsvm[{extra}]'"))
    return [{"problem": problem, "fix": fix} for problem, fix in said]


def _of_cache() -> list[tuple[str, str]]:
    elsewhere = "export BIGSVM_CACHE=DIR  # a folder that stays and that you may write"
    try:
        cache = cache_folder()
    except OutputError as error:
        return [(str(error), elsewhere)]
    if not can_make(cache):
        return [(f"nothing can be kept in the cache folder {cache}", 'export BIGSVM_CACHE="$HOME/.cache"')]
    if cache.parent == Path(tempfile.gettempdir()):
        usual = unwritable_cache()
        said = f"the cache folder is in the temporary folder, which the machine may empty: {cache}"
        if usual is not None:
            why = why_not_read(usual / FOLDER)
            said += f"; {usual} cannot be written, and is not read: {why}" if why else f"; {usual} is only read"
        return [(said, elsewhere)]
    return []


def _of_scratch(scratch: dict[str, Any]) -> list[tuple[str, str]]:
    folder, elsewhere = (
        scratch["folder"],
        'export BIGSVM_SCRATCH="$HOME/.cache/bigsvm-scratch"  # or any folder on a disk',
    )
    if not can_make(Path(folder)):
        return [(f"the scratch folder {folder} cannot be written", elsewhere)]
    if scratch["filesystem"] in ("tmpfs", "ramfs"):
        return [(f"the scratch folder {folder} is in memory ({scratch['filesystem']})", elsewhere)]
    if scratch["free_bytes"] < GIB:
        return [(f"less than 1 GiB is free in the scratch folder {folder}", "bigsvm cache clear")]
    return []
