"""The Python front door: `bigsvm.fit` and `bigsvm.certify`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bigsvm.config import FitConfig
from bigsvm.events import Emit, silent
from bigsvm.machine import check_address_space
from bigsvm.run.certify import certify_model
from bigsvm.run.fit import fit_store
from bigsvm.run.outcome import FitResult
from bigsvm.store.opener import open_store


def fit(
    source: Any, *, label: str | None = None, weight: str | None = None, emit: Emit = silent, **options: Any
) -> FitResult:
    """Train an SVM on a store, with a proof of how far it is from the optimum.

    Parameters
    ----------
    source : path of a Zarr store or Parquet file, (X, y) or (X, y, sample_weight) arrays or SciPy CSR, or
        what `bigsvm.open_store` returned
    label, weight : names of the label and weight columns
    emit : called with each event of the run
    options : fields of `bigsvm.config.FitConfig`: loss, C, tol, memory, seed, class_weight, threads, ...

    Returns
    -------
    FitResult : `.model`, `.certificate.relative_gap`, `.status` ('converged', 'stopped' or 'stalled')

    Raises
    ------
    BigSVMError : see `bigsvm.errors`; each carries the exit code of the command line.
    """
    check_address_space()
    config = FitConfig.of(**options)
    return fit_store(open_store(source, label=label, weight=weight), config, emit)


def certify(
    model: str | Path, source: Any, *, label: str | None = None, weight: str | None = None, **options: Any
) -> dict[str, Any]:
    """Prove the duality gap of a saved model again, on the rows it was trained on.

    Returns the figures that `bigsvm certify --json` prints.  Raises DataError on other data.
    """
    config = FitConfig.of(**options)
    return certify_model(Path(model), open_store(source, label=label, weight=weight), config)
