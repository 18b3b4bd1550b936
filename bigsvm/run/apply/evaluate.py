"""Evaluation of a model on a store or text, in one streamed pass over the rows."""

from __future__ import annotations

import os
import time
from typing import Any, cast

import numpy as np

from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.errors import DataError, MissingInput, OutputError, UsageError
from bigsvm.events import Emit, Warned, silent
from bigsvm.model.linear_model import Model
from bigsvm.model.named_columns import other_columns
from bigsvm.peak_memory import PeakMemory
from bigsvm.run.apply.label_tally import LabelTally
from bigsvm.run.apply.metrics import (
    Confusion,
    Errors,
    exact_bytes,
    least_of_rankings,
    macro_mean,
    make_rankings,
    measures,
)
from bigsvm.run.apply.predict import check_least, chosen_of, least_of_scoring, memory_document, scored_rows
from bigsvm.run.apply.scoring import (
    Scored,
    TextLabels,
    budget_of,
    precompile_scoring,
    precompile_scoring_of,
    read_labels,
    text_dtype,
)
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.checks import naming_lines
from bigsvm.store.copy.scratch import is_tmpfs, make_scratch, scratch_folder
from bigsvm.store.labels import as_targets, label_codes
from bigsvm.store.state.score_file import ScoreFile
from bigsvm.store.text.compressed import changed_meanwhile
from bigsvm.store.transforms.label_sets import LABEL_SETS
from bigsvm.store.transforms.relabelled import no_targets
from bigsvm.units import MIB

Measured = RowBlocks | TextLabels
_SHARE = 4  # 1 / the part of the budget that metrics may use for scores


@naming_lines
def evaluate(
    model: Model, source: RowBlocks | str, config: FitConfig, emit: Emit = silent, zero_based: bool = False
) -> dict[str, Any]:
    """Accuracy, balanced accuracy, F1, ROC AUC, average precision and confusion matrix; for regression errors and R^2.

    Two classes: F1, AUC and average precision are those of the positive class.  More classes: their means over the
    classes, each against the rest, ranked by `Decides.class_scores`.  Regression: mean squared error, mean absolute
    error and R^2. Rows are weighted if the store has weights; weight 0 leaves a row out.  Labels that the model does
    not know count as wrong.  Scores that memory cannot hold are sorted in the scratch folder; if it has no room, they
    are binned, with a warning.

    Parameters
    ----------
    source : a store, or the path of svmlight text, which is read twice: first its labels, then its rows
    config : only memory, threads, scratch, scratch_limit, scheduler and workers are used

    Returns the JSON result.  A metric that the rows do not define (e.g. one class only) is None, with a warning.

    Raises
    ------
    DataError : there are no rows, or all weigh 0; the store holds a regression target and the model has classes, or the
        reverse; or the rows do not fit the number of features of the model.
    UsageError : standard input, which cannot be read twice.
    BudgetExceeded : the memory budget is too small.
    """
    return counted(model, source, config, emit, zero_based)[0]


def counted(
    model: Model, source: RowBlocks | str, config: FitConfig, emit: Emit = silent, zero_based: bool = False
) -> tuple[dict[str, Any], Tally | Residuals | LabelTally]:
    """`evaluate`; returns also the counts behind its result, from which curves can be drawn."""
    began = time.monotonic()
    budget = budget_of(config)
    if source == "-":
        raise UsageError("evaluate reads its rows twice, but standard input can be read only once", hint="name a file")
    known = _status(source)
    if isinstance(source, str):
        parts = least_of_scoring(model, source)
        if (
            sum(parts.values()) > budget.limit
        ):  # the memory for metrics depends on the number of rows, and is checked later
            check_least(budget, {**parts, "counts for the metrics": _least_counts(model)})
    store = read_labels(source, model, budget, zero_based) if isinstance(source, str) else source
    if store.n_samples == 0:
        raise DataError("there are no rows", store.uri, "is it empty?")
    if store.classes is None and not model.regression:
        raise DataError(
            "the store holds a regression target, but the model has classes",
            store.uri,
            "name a column of labels with --label",
        )
    if store.classes is not None and model.regression:
        raise no_targets(cast(RowBlocks, store), "the store holds classes, but the model is a regression")
    for told in other_columns(model.about, cast(RowBlocks, store)):
        emit(Warned(told))
    began = time.monotonic()
    budget = budget_of(config)
    if isinstance(source, str):
        precompile_scoring("csr", text_dtype(model), np.dtype(np.int32), model, emit)
    else:
        precompile_scoring_of(source, model, emit)
    compiled = time.monotonic()
    with PeakMemory() as memory:
        parts = least_of_scoring(model, source)
        least = sum(parts.values())
        tally = _tally_within(budget.limit - least, model, store, budget, config)
        check_least(budget, {**parts, "counts for the metrics": tally.nbytes})
        with budget.reserve("scores", tally.nbytes):
            with scored_rows(model, source, config, budget, zero_based, emit, "evaluating", True) as rows:
                for scored in rows:
                    tally.add(_coded(scored, store) if isinstance(store, TextLabels) else scored)
            result = tally.result()
    if result.get("binned") and not isinstance(tally, Residuals):
        exact = exact_bytes(store.n_samples, len(tally.rankings))
        emit(Warned(binned_warning(config, least + _SHARE * exact)))
    if _status(source) != known:
        raise changed_meanwhile(str(source))
    if not result["n_rows"]:  # without this error a check such as "AUC above 0.9" could neither pass nor fail
        raise DataError("every row has weight 0, so nothing can be measured", store.uri, "see --weight")
    for message in tally.warnings():
        emit(Warned(message))
    document = {
        "n_samples": store.n_samples,
        **chosen_of(source),
        **result,
        "seconds": {"total": time.monotonic() - began, "compile": compiled - began},
        "memory": memory_document(memory, budget),
    }
    return document, tally


def _status(source: RowBlocks | str) -> tuple[int, ...] | None:
    """Size and times of a text file, to notice a change between its two readings; None for a store."""
    if not isinstance(source, str):
        return None
    try:
        found = os.stat(source)
    except OSError as error:
        raise MissingInput(f"cannot be read: {error.strerror or error}", source) from error
    return found.st_ino, found.st_size, found.st_mtime_ns


def _tally_within(
    free: int, model: Model, store: Measured, budget: MemoryBudget, config: FitConfig
) -> Tally | Residuals | LabelTally:
    """`tally_of` with the share of the budget that is meant for it, or else with the least memory."""
    for nbytes in (budget.limit // _SHARE, 0):
        file = score_file(config, budget.limit // _SHARE)
        tally = tally_of(model, store, nbytes, file)
        if not isinstance(tally, Residuals) and tally.rankings[0].binned and file is not None:
            file.close()
        if tally.nbytes <= free:
            break
    return tally


def score_file(config: FitConfig, room: int) -> ScoreFile | None:
    """A file for scores that memory cannot hold; None if the scratch folder is itself in memory, or is not ours.

    room : bytes of memory for sorting
    """
    try:
        folder = make_scratch(config)
        return None if is_tmpfs(folder) else ScoreFile(folder, room, config.scratch_limit_bytes())
    except (OutputError, OSError):
        return None


def binned_warning(config: FitConfig, memory: int) -> str:
    """The warning that scores were binned, with the memory in which all of them fit."""
    return (
        "ROC AUC and average precision are from binned scores, because neither memory nor the scratch folder "
        f"{scratch_folder(config)} has room for exact ones: use --memory {-(-memory // MIB)}MiB, or set "
        "BIGSVM_SCRATCH to a folder on a disk with room"
    )


def tally_of(
    model: Model, store: Measured, nbytes: int, file: ScoreFile | None = None
) -> Tally | Residuals | LabelTally:
    """An object that counts the scored rows of a model; it holds about `nbytes` at most.

    file : takes the scores that do not fit; None: these are binned

    Raises DataError if the rows have one label each and the model several, or the reverse.
    """
    if model.regression:
        return Residuals(store)
    if not model.multi_label:
        if LABEL_SETS in getattr(store, "recipe", {}):
            raise DataError(
                "the rows have several labels, but the model gives one for each row",
                store.uri,
                "name one column of labels with --label",
            )
        return Tally(model, store, nbytes, file)
    return LabelTally(model, store, nbytes, file)


def _least_counts(model: Model) -> int:
    """Least bytes of `tally_of` for any number of rows, if they have only labels of the model."""
    n_classes = len(model.classes)
    if model.regression:
        return 0
    matrices = 0 if model.multi_label else MATRICES * 8 * n_classes**2
    return least_of_rankings(1 << 40, 1 if model.n_models == 1 else n_classes) + matrices


def _coded(scored: Scored, text: TextLabels) -> Scored:
    """Scored rows of text, with labels replaced by class codes or targets."""
    if LABEL_SETS in text.recipe and text.classes is not None:
        number = {name: code for code, name in enumerate(text.classes.tolist())}
        return scored._replace(y=np.array([number[name] for name in scored.y.tolist()]))
    if text.written is None or text.codes is None:
        return scored._replace(y=as_targets(scored.y, text.uri, scored.start))
    return scored._replace(y=text.codes[label_codes(scored.y, text.written)])


MATRICES = 4
"""Copies of the confusion matrix: the counts, the same as integers, as lists, and as JSON."""


class Tally:
    """Counts scored blocks, and computes classification metrics.

    nbytes : most memory, about;  file : takes the scores that do not fit; None: these are binned
    """

    def __init__(self, model: Model, store: Measured, nbytes: int, file: ScoreFile | None = None) -> None:
        assert store.classes is not None
        self._model, self._weighted = model, store.has_weights
        self._labels, self._ours, self._theirs = join_labels(model.classes, store.classes)
        self._confusion = Confusion(len(self._labels))
        self.rankings, self.nbytes = make_rankings(
            store.n_samples, 1 if model.n_models == 1 else len(model.classes), nbytes, file, store.has_weights
        )
        self.nbytes += MATRICES * self._confusion.matrix.nbytes
        # two classes have one model, whose positive class is the last one
        self._positive = self._ours[1:] if model.n_models == 1 else self._ours
        self._n_rows = 0
        self._without_auc: list[str] = []
        known = set(self._ours.tolist())
        self._unknown = [str(label) for i, label in enumerate(self._labels) if i not in known]

    def add(self, scored: Scored) -> None:
        """Count a block of scored rows."""
        scores, weights = scored.scores, scored.sample_weight
        true = self._theirs[scored.y.astype(np.int64)]
        if weights is not None and not weights.all():
            kept = weights > 0
            scores, weights, true = scores[kept], weights[kept], true[kept]
        self._n_rows += len(true)
        self._confusion.add(true, self._ours[self._model.codes(scores)], weights)
        by_class = self._model.class_scores(scores)
        for m, ranking in enumerate(self.rankings):
            ranking.add(by_class[:, m], true == self._positive[m], weights)

    def result(self) -> dict[str, Any]:
        """All metrics; None for each that the rows do not define."""
        aucs, precisions = [], []
        for ranking in self.rankings:
            auc, precision = measures(ranking)
            aucs.append(auc)
            precisions.append(precision)
        names = self._labels[self._positive]
        self._without_auc = [str(name) for name, auc in zip(names, aucs, strict=True) if auc is None]
        confusion, binary = self._confusion, self._model.n_models == 1
        f1 = confusion.f1()
        matrix = confusion.matrix if self._weighted else confusion.matrix.astype(np.int64)
        return {
            "n_rows": self._n_rows,
            "weighted": self._weighted,
            "classes": self._labels.tolist(),
            "accuracy": confusion.accuracy(),
            "balanced_accuracy": confusion.balanced_accuracy(),
            "f1": float(f1[self._positive[0]]) if binary else float(f1[confusion.seen()].mean()),
            "roc_auc": macro_mean(aucs),
            "average_precision": macro_mean(precisions),
            "average": "binary" if binary else "macro",
            "binned": self.rankings[0].binned,
            "confusion_matrix": matrix.tolist(),
        }

    @property
    def ranked(self) -> list[tuple[str, int]]:
        """For each ranking: the label that is ranked against all others, and its index in `classes` of the result."""
        return [(str(self._labels[k]), int(k)) for k in self._positive]

    def warnings(self) -> list[str]:
        """The metrics that the rows do not define, for the user; call after `result`."""
        found = []
        positive = (self._model.about.get("rows", {}).get("labels") or {}).get("positive")
        lacks_positive = positive is not None and not self._confusion.matrix[self._ours[1]].any()
        # If no class has one because the rows have other labels, the warning about these says enough.
        explained = lacks_positive or (self._unknown and len(self._without_auc) == len(self._positive))
        if self._without_auc and not explained:
            names = ", ".join(self._without_auc[:5])
            found.append(f"ROC AUC needs rows inside and outside of each class; left out: {names}")
        if self._unknown:
            names = ", ".join(self._unknown[:5])
            found.append(f"labels that the model does not know count as wrong: {names}")
        if lacks_positive:
            found.append(f"no row has the label {positive!r}, which the model tells from all others: see --label")
        return found


class Residuals:
    """Sums up scored blocks, and computes the metrics of a regression.

    some : (target, value) of at most SOME rows, evenly spaced in the data
    """

    SOME = 2000
    nbytes = 0

    def __init__(self, store: Measured) -> None:
        self._weighted, self._sums, self._n_rows = store.has_weights, Errors(), 0
        self._every = -(-store.n_samples // self.SOME) or 1
        self.some: list[tuple[float, float]] = []

    def add(self, scored: Scored) -> None:
        """Add a block of scored rows."""
        weights = np.ones(len(scored.y)) if scored.sample_weight is None else scored.sample_weight
        kept = weights > 0
        self._n_rows += int(np.count_nonzero(kept))
        self._sums.add(scored.y[kept], scored.scores[kept, 0], weights[kept])
        some = slice(-scored.start % self._every, None, self._every)
        pairs = zip(scored.y[some], scored.scores[some, 0], kept[some], strict=True)
        self.some += [(float(target), float(value)) for target, value, counts in pairs if counts]

    def result(self) -> dict[str, Any]:
        """All metrics; None for each that the rows do not define."""
        sums = self._sums
        return {
            "n_rows": self._n_rows,
            "weighted": self._weighted,
            "mse": sums.mse(),
            "mae": sums.mae(),
            "r2": sums.r2() if self._n_rows > 1 else None,
        }

    def warnings(self) -> list[str]:
        """The metrics that the rows do not define, for the user."""
        return [] if self._n_rows > 1 else ["R^2 needs at least two rows"]


def join_labels(ours: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(all labels, ascending; index of each of `ours` among them; index of each of `theirs`).

    Numbers are compared exactly.  If one side has strings and the other numbers, both are compared as text.
    """
    if (ours.dtype.kind in "biuf") != (theirs.dtype.kind in "biuf"):
        ours, theirs = ours.astype(str), theirs.astype(str)
    # As Python numbers: NumPy would convert int64 beside float64, which rounds, and may merge two labels.
    labels = sorted({*ours.tolist(), *theirs.tolist()})
    number = {label: i for i, label in enumerate(labels)}
    return (
        np.array(labels, object),
        np.array([number[label] for label in ours.tolist()], np.int64),
        np.array([number[label] for label in theirs.tolist()], np.int64),
    )
