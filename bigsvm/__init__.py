"""bigsvm: exact support vector machines on data larger than memory, certified by a duality gap.

Importing this package is light: NumPy, numba, zarr and dask load when a name that needs them is
first used.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False  # as that of `typing`, which takes some time to load

__version__ = "0.1.0"
LOADED_AT = time.time_ns()
WRITTEN_AT = os.stat(__file__).st_mtime_ns if os.path.exists(__file__) else 0
"""When this file was loaded and when it was written: an upgrade may take its place meanwhile (`cache/stamp.py`)."""

# public name -> module that defines it
_PUBLIC = {
    "fit": "bigsvm.run.api",
    "fit_path": "bigsvm.run.path",
    "tune": "bigsvm.run.tune.search",
    "ingest": "bigsvm.store.ingest.ingest",
    "open_store": "bigsvm.store.formats.opener",
    "load_model": "bigsvm.model.linear_model",
    "certify": "bigsvm.run.api",
    "export_model": "bigsvm.model.exchange.exchange",
    "import_model": "bigsvm.model.exchange.exchange",
    "BigSVMError": "bigsvm.errors",
}
__all__ = ["__version__", "predictor", *_PUBLIC]

if TYPE_CHECKING:
    from typing import Any

    from bigsvm.errors import BigSVMError as BigSVMError
    from bigsvm.model.exchange.exchange import export_model as export_model
    from bigsvm.model.exchange.exchange import import_model as import_model
    from bigsvm.model.linear_model import load_model as load_model
    from bigsvm.run.api import certify as certify
    from bigsvm.run.api import fit as fit
    from bigsvm.run.path import fit_path as fit_path
    from bigsvm.run.tune.search import tune as tune
    from bigsvm.store.formats.opener import open_store as open_store
    from bigsvm.store.ingest.ingest import ingest as ingest


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562), so that `import bigsvm` stays under 0.15 s."""
    from importlib import import_module

    if name == "predictor":
        return import_module("bigsvm.predictor")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'bigsvm' has no attribute {name!r}")
    found = getattr(import_module(_PUBLIC[name]), name)
    if not isinstance(found, type):
        found = import_module("bigsvm.python_api.told").told_in_python(found)
        found.__module__ = __name__  # by which a pickle finds it
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
