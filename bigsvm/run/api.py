"""The Python front door: `bigsvm.fit` and `bigsvm.certify`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bigsvm.config import FitConfig
from bigsvm.events import Emit, silent
from bigsvm.run.certify import certify_model
from bigsvm.run.fit import fit_store
from bigsvm.run.outcome import FitResult
from bigsvm.store.opener import open_store
from bigsvm.store.sealing import EmptyChunks


def fit(
    source: Any,
    *,
    label: str | None = None,
    weight: str | None = None,
    empty_chunks: EmptyChunks = "refuse",
    emit: Emit = silent,
    **options: Any,
) -> FitResult:
    """Train an SVM on a store, with a proof of how far it is from the optimum.

    Parameters
    ----------
    source : path of a Zarr store or Parquet file, (X, y) or (X, y, sample_weight) arrays or SciPy CSR, or
        what `bigsvm.open_store` returned
    label, weight : names of the label and weight columns
    empty_chunks : as for `bigsvm.open_store`
    emit : called with each event of the run
    options : fields of `bigsvm.config.FitConfig`: loss, C, tol, memory, seed, class_weight, threads, ...

    Returns
    -------
    FitResult : `.model`, `.certificate.relative_gap`, `.status` ('converged', 'stopped' or 'stalled')

    Raises
    ------
    BigSVMError : see `bigsvm.errors`; each carries the exit code of the command line.
    """
    config = FitConfig.of(**options)
    return fit_store(open_store(source, label=label, weight=weight, empty_chunks=empty_chunks), config, emit)


def certify(
    model: str | Path, source: Any, *, label: str | None = None, weight: str | None = None, **options: Any
) -> dict[str, Any]:
    """Prove the duality gap of a saved model again, on the rows it was trained on.

    Returns the figures that `bigsvm certify --json` prints.  Raises DataError on other data.
    """
    config = FitConfig.of(**options)
    return certify_model(Path(model), open_store(source, label=label, weight=weight), config)
