"""`bigsvm.fit` and `bigsvm.certify`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.config import FitConfig
from bigsvm.errors import UsageError
from bigsvm.events import Emit, silent
from bigsvm.machine import check_address_space
from bigsvm.model.linear_model import is_regression, rows_of_model, weight_as_trained
from bigsvm.run.apply.held_out import add_held_out
from bigsvm.run.fit.fit import fit_store
from bigsvm.run.fit.outcome import FitResult
from bigsvm.run.proof.certify import certify_model
from bigsvm.run.start.lazy_rows import apart, rows_on_disk
from bigsvm.run.start.targets import open_for
from bigsvm.store.frames.values import refuse_unread
from bigsvm.store.ingest.collections.lazy import is_lazy
from bigsvm.store.labels import Missing
from bigsvm.store.remote.place import storing_by
from bigsvm.store.sealing.seal import EmptyChunks
from bigsvm.store.transforms.scaling import Scale


def fit(
    source: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    label: str | None = None,
    labels: str | Sequence[str] | None = None,
    weight: str | None = None,
    empty_chunks: EmptyChunks = "refuse",
    matrix: str | None = None,
    missing: Missing = "refuse",
    columns: str | Sequence[str] = (),
    hash_bits: int | None = None,
    scale: Scale | None = None,
    normalize: str | None = None,
    rows: str | None = None,
    split: float | None = None,
    positive: str | None = None,
    label_map: Mapping[str, str] | None = None,
    emit: Emit = silent,
    **options: Any,
) -> FitResult:
    """Train an SVM on a store or on arrays, with a certificate of its distance from the optimum.

    Parameters
    ----------
    source : path of a Zarr store, of Parquet, .csv or Arrow files; (X, y) or (X, y, sample_weight), arrays or SciPy
        CSR; or what `bigsvm.open_store` returned; or X alone, if `y` is given.  X may be a dask collection, as for
        `bigsvm.ingest`: its rows are written to the scratch folder for the duration of the fit
    y, sample_weight : arrays, shape (n_samples,): `fit(X, y)` is `fit((X, y))`.  For rows with several labels y is
        (n_samples, n_labels), of 0 and 1
    label, weight : names of the label and weight columns
    labels : columns of rows with several labels, see `bigsvm.open_store`
    empty_chunks, matrix, missing, columns, hash_bits, scale, normalize, rows, positive, label_map : as for
        `bigsvm.open_store`
    split : the share of rows to train on, as for `bigsvm.open_store`; None: what the store records, if it is given by
        its path, else all rows
    emit : called with each event of the run
    options : fields of `bigsvm.config.FitConfig`: loss, C, tol, memory, seed, class_weight, threads, ...; also
        `client`, a `dask.distributed.Client` on whose workers tasks run (scheduler="dask" takes the current one); and
        `storage_options`, a dictionary for a source in a bucket, as for `--storage-option`

    Returns
    -------
    FitResult : `.model`, `.certificate.relative_gap`, `.status` ('converged' if the tolerance is proved); with `split`
        `.figures["held_out"]` has the metrics of the model on the held-out rows

    Raises
    ------
    BigSVMError : see `bigsvm.errors`; each carries the exit code of the command line.
    """
    check_address_space()
    client = options.pop("client", None)
    if client is not None:
        if options.setdefault("scheduler", "dask") != "dask":
            what = f"client and scheduler={options['scheduler']!r} exclude each other"
            raise UsageError(what, hint="leave scheduler out")
        with client.as_current():
            return fit(
                source, y, sample_weight, label=label, labels=labels, weight=weight, empty_chunks=empty_chunks,
                matrix=matrix, missing=missing, columns=columns, hash_bits=hash_bits, scale=scale, normalize=normalize,
                rows=rows, split=split, positive=positive, label_map=label_map, emit=emit, **options,
            )  # fmt: skip
    source, y, sample_weight = apart(source, y, sample_weight)
    if is_lazy(source):
        if rows is not None or labels is not None:
            what = "rows= and labels= are not supported for a dask collection"
            raise UsageError(what, hint="select the rows with dask, or write them first: bigsvm.ingest")
        beside = {"y": y, "sample_weight": sample_weight, "label": label, "weight": weight, "columns": columns}
        beside |= {"hash_bits": hash_bits, "missing": missing, "matrix": matrix}
        regression = FitConfig.of(**options).regression
        with rows_on_disk(source, options, beside, regression, emit) as (path, options):
            return fit(
                path, scale=scale, normalize=normalize, split=split, positive=positive, label_map=label_map, emit=emit,
                **options,
            )  # fmt: skip
    given = options.pop("storage_options", None)
    config = FitConfig.of(**options)
    with storing_by(config, given, emit):
        joined = joined_source(source, y, sample_weight)
        store = open_for(
            joined, config.regression, label=label, labels=labels, weight=weight, empty_chunks=empty_chunks,
            columns=columns, hash_bits=hash_bits, matrix=matrix, missing=missing, scale=scale,
            normalize=normalize, rows=rows, split="recorded" if split is None else split, positive=positive,
            label_map=label_map,
        )  # fmt: skip
    result = fit_store(store, config, emit).heed_a_late_stop()
    add_held_out(result, store, config, emit)
    return result


def certify(
    model: str | Path,
    source: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    label: str | None = None,
    labels: str | Sequence[str] | None = None,
    weight: str | None = None,
    rows: str | None = None,
    missing: Missing = "refuse",
    empty_chunks: EmptyChunks = "refuse",
    **options: Any,
) -> dict[str, Any]:
    """Prove the duality gap of a saved model again, on the rows that it was trained on.

    model : its folder
    source, y, sample_weight, label, labels, weight, missing, empty_chunks, options : as for `fit`
    rows : the condition that chose the rows; None: that of the model, if it has one

    Returns the result of `bigsvm certify --json`, as a dictionary.  Raises DataError if the rows are not
    those that the model was trained on.
    """
    source, y, sample_weight = apart(source, y, sample_weight)
    if isinstance(source, str | os.PathLike) or hasattr(source, "columns"):  # not what was given as weights
        weight = weight_as_trained(model, weight)
    if is_lazy(source):
        beside = {"y": y, "sample_weight": sample_weight, "label": label, "weight": weight, "missing": missing}
        encoding = rows_of_model(model).get("encoding")
        if encoding is not None and hasattr(source, "columns"):  # the columns that the model chose of a frame
            names = [name for name, *_ in encoding["columns"]]
            beside |= {"columns": names, "hash_bits": encoding["hash_bits"]}
        regression = is_regression(model)  # a collection does not say whether y are classes or targets
        with rows_on_disk(source, options, beside, regression) as (path, options):
            return certify(model, path, **options)
    given = options.pop("storage_options", None)
    config = FitConfig.of(**options)
    like = rows_of_model(model)
    part: Any = "train" if "split" in like else None
    with storing_by(config, given):
        joined = joined_source(source, y, sample_weight)
        rows = rows or like.get("chosen", {}).get("rows")
        store = open_for(
            joined, is_regression(model), label=label, labels=labels, weight=weight, missing=missing,
            empty_chunks=empty_chunks, rows=rows, like=like, part=part,
        )  # fmt: skip
    return certify_model(Path(model), store, config)


def joined_source(source: Any, y: Any, sample_weight: Any) -> Any:
    """`source`, or (source, y, ...) if y is given.  Raises UsageError if the source has labels of its own."""
    if y is None and sample_weight is None:
        return source
    if y is None:
        hint = "fit(X, y, sample_weight), or name a column of the store: weight='NAME'"
        raise UsageError("sample_weight without y", hint=hint)
    refuse_unread(source)
    if isinstance(source, list):
        try:
            source = np.array(source)
        except ValueError as error:
            raise UsageError("X is a list of rows of different lengths", hint="give a SciPy CSR matrix") from error
    if isinstance(source, str | os.PathLike):
        what = f"y was given beside {os.fspath(source)!r}, but labels of rows on disk are a column of these rows"
        raise UsageError(what, hint="write y to a column there, and name it: label='NAME'")
    if isinstance(source, tuple) or not hasattr(source, "shape"):
        what = "y was given together with a source that has labels of its own"
        raise UsageError(what, hint="fit(X, y), fit((X, y)) or fit('x.zarr')")
    return (source, y) if sample_weight is None else (source, y, sample_weight)
