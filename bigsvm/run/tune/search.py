"""`bigsvm.tune`: cross-validation over a grid, whose models share passes over the data."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from bigsvm.config import RESULT_OPTIONS, FitConfig
from bigsvm.errors import DataError, UsageError
from bigsvm.events import Emit, Event, Warned, silent
from bigsvm.files.locks import folder_alone
from bigsvm.files.sealed_json import write_sealed
from bigsvm.machine import anonymous_bytes, check_address_space, memory_limit, trim_heap
from bigsvm.peak_memory import PeakMemory
from bigsvm.run.api import joined_source
from bigsvm.run.apply import curves
from bigsvm.run.apply.held_out import add_held_out
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store
from bigsvm.run.fit.outcome import FitResult
from bigsvm.run.fit.scales import is_told
from bigsvm.run.start.lazy_rows import apart, rows_on_disk
from bigsvm.run.start.targets import open_for
from bigsvm.run.tune.folder import CHECKPOINT, FOUND, LOCK, claim
from bigsvm.run.tune.folds import Folds, make_folds
from bigsvm.run.tune.grid import Candidate, grid_of
from bigsvm.run.tune.held_out import METRICS, METRICS_OF_TARGETS, calibrated_by_folds, held_out_metrics, load_scoring
from bigsvm.run.tune.memory import Part, together
from bigsvm.run.tune.result import TuneResult, choose, rows_of
from bigsvm.run.tune.train import check_room, train
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.ingest.collections.lazy import is_lazy

_OF_THE_MODEL = ("C", "class_weight", "C_path", "calibrate", "calibrate_share")
"""Options that the grid replaces, or that do not change the numbers of a search."""
_OPENED = (
    "label", "weight", "empty_chunks", "matrix", "missing", "rows", "columns", "hash_bits", "scale", "normalize",
    "split", "positive", "label_map",
)  # fmt: skip
_OF_COLLECTIONS = ("label", "weight", "matrix", "missing", "columns", "hash_bits")
"""Options of `open_store` that `ingest` applies to a collection; the others apply to the store that it makes."""


@dataclasses.dataclass(frozen=True)
class Asked:
    """The request for a search.

    one_se : choose by the one-standard-error rule;  refit : fit the chosen candidate on all rows
    overwrite : another search in the folder gives way to this one
    """

    grid: list[Candidate]
    folds: Folds
    metric: str
    one_se: bool = False
    refit: bool = False
    overwrite: bool = False


def tune(
    source: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    Cs: Any = "1e-3:1e3:7",
    folds: int = 5,
    group: Any = None,
    fold: Any = None,
    class_weights: Any = None,
    gammas: Any = None,
    metric: str | None = None,
    run: str | Path | None = None,
    **options: Any,
) -> TuneResult:
    """Search a grid by cross-validation.  With solver `dcd` all linear models advance on the same passes.

    Parameters
    ----------
    source, y, sample_weight : as for `bigsvm.fit`; dask collections are written to the scratch folder meanwhile
    Cs : 'LOW:HIGH:N', N values evenly spaced in log C; or with a power for N, from LOW to HIGH by
        that factor: '2^-5:2^15:2^2'; or numbers
    folds : number of folds; a row's fold is a hash of its number and `seed`, the same in every layout of the rows
    group : name of a column, or an array (n_samples,) for all rows or for the training rows: rows with the same group
        are in the same fold
    fold : likewise a column or an array, which gives the fold itself; there are as many folds as distinct values
    class_weights : None, 'balanced' or {label: weight}, or a list of them; 'balanced' counts the training rows
    gammas : for rbf, poly and sigmoid: numbers or 'auto', or a single one of them
    metric : accuracy (default), balanced_accuracy, f1, roc_auc, average_precision; for regression r2, mse or mae
    run : a folder for finished fits, from which the same call continues after an interruption
    options : `one_se=True` chooses by the one-standard-error rule; `refit=True` fits the chosen candidate on all rows;
        `calibrate` adds probabilities to that model, from the held-out scores; `overwrite=True` begins anew where
        `run` holds another search, which is deleted; `emit`; arguments of `bigsvm.open_store`
        (label, weight, ...), of which `split` keeps rows back from the whole search; and fields of `FitConfig` except
        C, lam and class_weight

    Returns
    -------
    TuneResult : rows, best, one_se, chosen, best_params, cv_results_, document(), csv(), refit

    Raises
    ------
    BigSVMError : as `bigsvm.fit`; UsageError for an invalid grid, number of folds or metric; DataError if a fold has
        all rows of a class, or if `run` holds another search.

    Example
    -------
    >>> import bigsvm, numpy as np
    >>> X = np.random.default_rng(0).standard_normal((60, 2))
    >>> found = bigsvm.tune((X, (X[:, 0] > 0).astype(int)), Cs=[0.1, 10.0], folds=3)
    >>> len(found.rows), found.status
    (2, 'converged')
    """
    check_address_space()
    emit, one_se, refit = options.pop("emit", silent), options.pop("one_se", False), options.pop("refit", False)
    overwrite = options.pop("overwrite", False)
    for name in ("C", "lam", "class_weight"):
        if name in options:
            raise UsageError(f"{name} is a dimension of the grid", hint="give its values as Cs, or as class_weights")
    opened = {name: options.pop(name) for name in _OPENED if name in options}
    opened["split"] = "recorded" if opened.get("split") is None else opened["split"]
    config = FitConfig.of(**options)
    source, y, sample_weight = apart(source, y, sample_weight)
    if is_lazy(source):
        beside = {name: opened.pop(name) for name in _OF_COLLECTIONS if name in opened}
        beside |= {"y": y, "sample_weight": sample_weight}
        with rows_on_disk(source, options, beside, config.regression, emit) as (path, options):
            return tune(
                path, Cs=Cs, folds=folds, group=group, fold=fold, class_weights=class_weights, gammas=gammas,
                metric=metric, run=run, emit=emit, one_se=one_se, refit=refit,
                overwrite=overwrite, **opened, **options,
            )  # fmt: skip
    store = open_for(joined_source(source, y, sample_weight), config.regression, **opened)
    asked = Asked(
        grid_of(config, Cs, class_weights, gammas),
        make_folds(store, source, folds, group, fold, config.seed, opened),
        metric_of(metric, store),
        one_se,
        refit,
        overwrite,
    )
    if run is None:
        return tune_store(store, config, asked, emit)
    with folder_alone(Path(run), LOCK, "the search"):
        return tune_store(store, config, asked, emit, Path(run))


def metric_of(metric: str | None, store: RowBlocks) -> str:
    """The metric that was asked for, or the default.  Raises UsageError."""
    known = METRICS_OF_TARGETS if store.classes is None else METRICS
    if metric is not None and metric not in known:
        raise UsageError(f"unknown metric {metric!r} for these rows", hint=f"one of {', '.join(known)}")
    return known[0] if metric is None else metric


def tune_store(
    store: RowBlocks,
    config: FitConfig,
    asked: Asked,
    emit: Emit = silent,
    run: Path | None = None,
    held_out_of: RowBlocks | None = None,
) -> TuneResult:
    """Search `store` as asked; if `run` holds an unfinished search, continue it.

    held_out_of : score held-out rows of this store, which has the same rows, some of which weigh 0 in `store`; None:
        `store`

    Raises
    ------
    Interrupted : a signal came; with a run folder the same call continues.
    DataError : the folder holds another search, or is damaged.  Also everything that `bigsvm.fit` raises.
    """
    warnings: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, Warned):
            if is_told(event.message, warnings):
                return
            warnings.append(event.message)
        emit(event)

    if config.warm_start is not None:
        raise UsageError("a search does not use --warm-start", store.uri, "leave out --warm-start")
    if config.loss == "one_class" and store.classes is None:
        what = "one_class models are compared by labels 1 and -1, but the store has a regression target"
        raise DataError(what, store.uri, "choose a column of labels with --label")
    if config.shards is not None and config.shards > 1:
        raise UsageError("a search cannot train on shards", store.uri, "leave out --shards")
    if config.calibrate is not None and (store.classes is None or not asked.refit):
        hint = "--calibrate applies to the model of --refit, and needs classes"
        raise UsageError("there is no model of classes to calibrate", store.uri, hint)
    if config.calibrate is not None:
        curves.load(config.calibrate)  # import libraries before memory is counted
    search = dataclasses.replace(
        config, calibrate=None
    )  # a search needs no rows for calibration, because every fold is held out already
    check_room(store, search, asked.grid, asked.folds)
    if run is not None:  # after all that may refuse this search: another one may go
        claim(run, _document(store, config, asked), asked.overwrite)
    trained = train(store, search, asked.grid, asked.folds, note, run)
    before = anonymous_bytes()
    load_scoring(held_out_of or store, trained.cells, asked.folds, note)
    with PeakMemory() as memory:
        scores = held_out_metrics(held_out_of or store, trained.cells, asked.folds, search, note)
    scored = memory.document(config.memory_bytes(memory_limit().nbytes))
    scoring = Part(scored, max(memory.base_bytes - before, 0), here=True)
    metrics = METRICS_OF_TARGETS if store.classes is None else METRICS
    rows = rows_of(asked.grid, trained, scores, metrics)
    best, one_se = choose(rows, asked.metric)
    chosen = one_se if asked.one_se else best
    figures = {
        "n_samples": store.n_samples,
        "n_features": store.n_features,
        "n_models": sum(cell.model.n_models for cell in trained.cells),
        "solver": trained.solver,
        "form": trained.form,
        "bytes_read": trained.bytes_read,
        "data_bytes": trained.data_bytes,
        "passes": trained.bytes_read / trained.data_bytes,
        "tol": config.tol,
        "seconds": {"training": trained.seconds},
        "memory": together([*trained.memory, scoring]),
    }
    sizes = asked.folds.sizes(store.n_samples).tolist()
    result = TuneResult(rows, asked.metric, asked.folds, sizes, best, one_se, chosen, figures, warnings)
    if run is not None:
        write_sealed(run / FOUND, json.loads(json.dumps(result.document())))
    if asked.refit:
        calibration = None
        if config.calibrate is not None:  # first, because the fit has no room beside the models that this needs
            cells = [cell for cell in trained.cells if cell.candidate == chosen]
            calibration = calibrated_by_folds(store, cells, asked.folds, config, note)
            del cells
        del trained  # frees the models, so that the fit has the whole budget
        trim_heap()
        folder = None if run is None else run / CHECKPOINT / f"refit-{chosen}"
        result.refit = _refit(store, asked.grid[chosen].config(search), note, folder)
        if calibration is not None:
            result.refit.model.about["calibration"] = calibration
            result.refit.figures["calibration"] = {"method": calibration["method"], **calibration["folds"]}
        add_held_out(result.refit, store, search, note)
    return result


def _refit(store: RowBlocks, config: FitConfig, emit: Emit, checkpoints: Path | None) -> FitResult:
    """Fit the chosen candidate on all rows, exactly as `bigsvm.fit` would."""
    if checkpoints is None:
        return fit_store(store, config, emit)
    return fit_store(store, config, emit, Checkpoints(checkpoints, {}, 60.0), True)


def _document(store: RowBlocks, config: FitConfig, asked: Asked) -> dict[str, Any]:
    """The rows, and all options that decide the numbers of a search, as JSON."""
    options = {name: getattr(config, name) for name in RESULT_OPTIONS if name not in _OF_THE_MODEL}
    document = {
        "data": store.identity.document(),
        "options": options,
        "grid": [candidate.document() for candidate in asked.grid],
        "folds": asked.folds.document(),
    }
    return json.loads(json.dumps(document))
