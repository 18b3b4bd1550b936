"""Training the models of a search: one for each candidate and fold, on as few passes over the rows as possible.

`dcd` trains all models in one fit, on the same passes: they differ in C, in the rows that take part, and in class
weights (`problem/axis.py`).  There are exceptions:

* If the rows are in memory, the models of large C are trained by the solver that a single fit would use.
* So are models that `dcd` turns out not to solve in reasonable time (`hard.py`).
* Other linear solvers take the folds one after another, all values of C together; `newton-cg` on rows in memory takes
  them one by one, each from the weights of the last.
* Kernel models share no passes.
* If the budget cannot hold all models of `dcd`, the candidates are trained in several parts.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigsvm.config import JOINT_LOSS, FitConfig
from bigsvm.errors import DataError, PlanRefused
from bigsvm.events import Emit, Warned
from bigsvm.files.temporary import temporary_folder
from bigsvm.machine import memory_limit, trim_heap
from bigsvm.model.linear_model import Model
from bigsvm.problem.folded import FoldedModels
from bigsvm.problem.problem import make_problem
from bigsvm.run.apply.evaluate import MATRICES
from bigsvm.run.apply.metrics import least_of_rankings
from bigsvm.run.apply.scoring import least_of_rows
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store
from bigsvm.run.fit.outcome import FitResult
from bigsvm.run.fit.plan import Plan, make_plan
from bigsvm.run.path import fit_path_store, part_of_path
from bigsvm.run.tune.folds import Folds, OfFold, class_counts
from bigsvm.run.tune.grid import Candidate
from bigsvm.run.tune.hard import (
    hard_in_memory,
    one_after_another,
    others_wait,
    starts_from_the_last,
    together_as_alone,
)
from bigsvm.run.tune.kept_fits import KeptFits
from bigsvm.run.tune.memory import Part
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.transforms.withheld import WithheldRows
from bigsvm.units import MIB, show_bytes

_COPIES = 2
"""Copies of all weights that are held: the models', and the scorer's."""
_LITTLE = 32
"""1 / the part of the budget that trained models may use beside a fit; plans of fits leave this much free."""
_SHARED_BIASES = ("augmented", "none")


class Cell(NamedTuple):
    """The model of one candidate that was trained without one fold.

    candidate, fold : indices;  model : with its certificate in `about`
    """

    candidate: int
    fold: int
    model: Model

    @property
    def status(self) -> str:
        """The status as of a fit: 'converged' if its own gap is proved to be within the tolerance."""
        return str(self.model.about["status"])

    @property
    def relative_gap(self) -> float:
        """The largest relative gap of its models."""
        return max(self.model.about["certificate"]["relative_gap"])

    @property
    def objective(self) -> float:
        """The objective P, summed over its models."""
        return math.fsum(self.model.about["certificate"]["objective"])


class Trained(NamedTuple):
    """All models of a search, and their cost.

    form : 'shared' (all on the same passes), 'by fold', 'shared, the hard ones by fold' or 'one by one'
    solver : names of the solvers of the fits, each once
    memory : of each fit (`memory.py`)
    bytes_read, data_bytes : bytes of X, y and weights that were read; bytes of one pass
    """

    cells: list[Cell]
    form: str
    solver: str
    bytes_read: int
    data_bytes: int
    seconds: float
    memory: list[Part]


class _Work(NamedTuple):
    """One fit of a search.

    name : its folder in that of the search;  cells : (candidate, fold) of each of its results, in their order
    fit : the function that runs it;  in_memory : the rows do not stream
    """

    name: str
    cells: list[tuple[int, int]]
    fit: Callable[[Checkpoints | None, bool], list[FitResult]]
    in_memory: bool = False


def train(
    store: RowBlocks, config: FitConfig, grid: Sequence[Candidate], folds: Folds, emit: Emit, run: Path | None
) -> Trained:
    """Train every candidate without each fold; fits that are finished in the `run` folder are loaded.

    Raises what `bigsvm.fit` raises; DataError if a fold has all rows of a class.
    """
    counts = None
    if store.classes is not None:
        counts = class_counts(store, folds)
        _check_classes(store, folds, counts)
    budget = config.memory_bytes(memory_limit().nbytes)
    beside = _beside_fits(store, config, len(grid) * folds.n_folds, budget)
    if beside:
        config = dataclasses.replace(config, memory=budget - beside)
    form = form_of(store, config, grid)
    fits = _Fits(run)
    if form == "shared":
        hard = hard_in_memory(store, config, grid)
        easy = [number for number in range(len(grid)) if number not in hard]
        waiting = bool(easy) and others_wait(store, config, [grid[number] for number in easy])
        failed: list[tuple[int, int]] = []
        for work in _shared(store, config, grid, easy, folds, counts, emit, waiting) if easy else ():
            fits.run([work])
            failed += _failed(work, fits, config) if waiting else []
        fits.run(
            _by_fold(store, config, grid, _cells(hard, folds, False), folds, emit, fits, "fold", together_as_alone)
        )
        if failed:
            emit(Warned(_said_of(failed, grid)))
        fits.run(_by_fold(store, config, grid, failed, folds, emit, fits, "again", together_as_alone))
        if hard or failed:
            form = "shared, the hard ones by fold" if easy else "by fold"
    elif form == "by fold":
        fits.run(_by_fold(store, config, grid, _cells(range(len(grid)), folds, False), folds, emit, fits))
    else:
        fits.run(_one_by_one(store, config, grid, folds, emit))
    return fits.trained(form)


class _Fits:
    """The fits of a search that have run, with their costs and the best model of each cell.

    run : the folder of the search, or None
    """

    def __init__(self, run: Path | None) -> None:
        self._kept = KeptFits(run)
        self._cells: dict[tuple[int, int], Cell] = {}
        self._figures: list[dict[str, Any]] = []
        self._memory: list[Part] = []

    def run(self, works: Iterable[_Work]) -> None:
        """Run some fits, one after another, or load those that are finished."""
        for work in works:
            here = not self._kept.has(work.name, work.cells)
            figures, models = self._kept.done(work.name, work.cells, work.fit)
            trim_heap()  # what the fit has freed must not count as memory of the next one
            self._figures.append(figures)
            self._memory.append(Part.of(figures["memory"], here))
            for where, model in zip(work.cells, models, strict=True):
                cell, former = Cell(*where, model), self._cells.get(where)
                if former is None or cell.relative_gap <= former.relative_gap:
                    self._cells[where] = cell

    @contextmanager
    def on_disk(self, where: tuple[int, int]) -> Iterator[str]:
        """A folder with the model of a cell, for the duration of the block.  Its bytes do not depend on where it is."""
        with temporary_folder() as folder:
            self._cells[where].model.save(folder / "model")
            yield str(folder / "model")

    def unproved(self, work: _Work) -> list[Cell]:
        """The cells of a fit that has run whose gap is not within the tolerance."""
        return [cell for cell in map(self._cells.__getitem__, work.cells) if cell.status != "converged"]

    def trained(self, form: str) -> Trained:
        """All of it, once every fit has run.  form : as in `Trained`"""
        every = self._figures
        return Trained(
            cells=[self._cells[where] for where in sorted(self._cells)],
            form=form,
            solver=", ".join(dict.fromkeys(figures["solver"] for figures in every)),
            bytes_read=sum(figures["bytes_read"] for figures in every),
            data_bytes=every[-1]["data_bytes"],
            seconds=sum(figures["seconds"] for figures in every),
            memory=self._memory,
        )


def form_of(store: RowBlocks, config: FitConfig, grid: Sequence[Candidate]) -> str:
    """How the models of a search will be trained: 'shared', 'by fold' or 'one by one'."""
    if config.of_kernel or config.loss == JOINT_LOSS:
        return "one by one"
    centred = store.layout == "csr" and (store.recipe.get("scale") or {}).get("kind") == "standard"
    able = config.bias in _SHARED_BIASES and config.multi_class != "ovo" and not centred
    if not able or config.solver not in ("auto", "dcd"):
        return "by fold"
    return "shared"


def check_room(store: RowBlocks, config: FitConfig, grid: Sequence[Candidate], folds: Folds) -> None:
    """Check, before anything is read, that the linear models of a search fit the budget beside the fits and the scores.

    Raises PlanRefused with the smallest memory that would do.
    """
    if config.of_kernel:
        return
    n_cells = len(grid) * folds.n_folds
    each, weights = _models_each(store), _weights_bytes(store, n_cells)
    scoring = _COPIES * weights + least_of_rows(store, n_cells * each)
    if store.classes is not None:
        rows = folds.sizes(store.n_samples).tolist()
        scoring += len(grid) * sum(least_of_rankings(n, each) for n in rows)
        scoring += n_cells * MATRICES * 8 * len(store.classes) ** 2
    budget = config.memory_bytes(memory_limit().nbytes)
    fit = _least_of_fit(store, config, grid, folds) + _beside_fits(store, config, n_cells, budget)
    least = -(-max(scoring, fit) // MIB)
    if least * MIB > budget:
        raise PlanRefused(
            f"{show_bytes(budget)} of memory cannot hold the weights of {n_cells * each} models "
            f"and {'their scores' if scoring > fit else 'a fit'}; {least} MiB would do",
            store.uri,
            f"use --memory {least}MiB, or a coarser grid",
            min_memory_bytes=least * MIB,
        )


def _models_each(store: RowBlocks) -> int:
    """Number of linear models for each candidate and fold."""
    return 1 if store.classes is None or len(store.classes) == 2 else len(store.classes)


def _weights_bytes(store: RowBlocks, n_cells: int) -> int:
    """Bytes of the weights of all linear models of a search."""
    return 8 * n_cells * _models_each(store) * (store.n_features + 1)


def _beside_fits(store: RowBlocks, config: FitConfig, n_cells: int, budget: int) -> int:
    """Bytes of the budget that models take which are already trained while later fits run; 0 if they are small."""
    weights = _weights_bytes(store, n_cells)
    return 0 if config.of_kernel or weights * _LITTLE <= budget else weights


def _least_of_fit(store: RowBlocks, config: FitConfig, grid: Sequence[Candidate], folds: Folds) -> int:
    """Smallest budget in bytes for one of the fits: all folds of a candidate, or all candidates of a fold."""
    shared = form_of(store, config, grid) == "shared"
    costs = [grid[0].C] * folds.n_folds if shared else [candidate.C for candidate in grid]
    if config.loss == JOINT_LOSS:  # such models are trained one cell at a time
        own = grid[0].config(config)
    elif shared:
        own = _of_shared(config, costs)
    else:
        own = dataclasses.replace(grid[0].config(config), C=max(costs), C_path=costs, no_dual=True)
    try:
        make_plan(store, dataclasses.replace(own, memory=MIB), folded=shared)
    except PlanRefused as error:
        return error.min_memory_bytes or 0
    return MIB


def _of_shared(config: FitConfig, costs: list[float]) -> FitConfig:
    """The options of a fit of models that differ in C, in the rows that take part, and in class weights."""
    return dataclasses.replace(
        config, solver="dcd", lam=None, class_weight=None, C=max(costs), C_path=costs, no_dual=True
    )


def _check_classes(store: RowBlocks, folds: Folds, counts: np.ndarray) -> None:
    """Raise DataError if a fold has all rows of a class, so that the model trained without it would lack the class."""
    assert store.classes is not None
    alone = np.argwhere((counts == counts.sum(axis=0)) & (counts > 0))
    if len(alone):
        fold, code = alone[0]
        name = folds.names[fold] if folds.names else int(fold)
        hint = "use fewer folds, or other groups: each class must be in at least two folds"
        raise DataError(f"all rows of class {store.classes[code]} are in fold {name}", store.uri, hint)


def _shared(
    store: RowBlocks, config: FitConfig, grid: Sequence[Candidate], numbers: Sequence[int], folds: Folds,
    counts: np.ndarray | None, emit: Emit, waiting: bool,
) -> Iterator[_Work]:  # fmt: skip
    """The fits of some candidates: one for all cells, or several if the budget is too small for that.

    waiting : other solvers train the models that `dcd` does not solve in reasonable time
    """

    def asked(cells: Sequence[tuple[int, int]]) -> FitConfig:
        return _of_shared(config, [grid[number].C for number, _ in cells])

    def planned(part: Sequence[int]) -> Plan | None:
        try:
            return make_plan(store, asked(_cells(part, folds, False)), folded=True)
        except PlanRefused:
            if len(part) == 1:
                raise
            return None

    parts: list[Sequence[int]] = [numbers]
    while not all(plans := [planned(part) for part in parts]):
        parts = [half for part in parts for half in (part[: len(part) // 2], part[len(part) // 2 :]) if len(half)]
    for place, (part, plan) in enumerate(zip(parts, plans, strict=True)):
        assert plan is not None
        cells = _cells(part, folds, plan.resident)
        weight = np.array([_weights(store, config, grid[number], fold, counts) for number, fold in cells])
        held_out = np.array([fold for _, fold in cells], np.int32)
        folded = FoldedModels(folds.of, held_out, weight, folds.document(), waiting)
        own = asked(cells)

        def fit(
            checkpoints: Checkpoints | None, resume: bool, own: FitConfig = own, folded: FoldedModels = folded
        ) -> list[FitResult]:
            assert own.C_path is not None
            whole = fit_store(store, own, emit, checkpoints, resume, folded)
            return [part_of_path(whole, number, own) for number in range(len(own.C_path))]

        yield _Work(f"{'alike' if plan.resident else 'shared'}-{place}", cells, fit, plan.resident)


def _cells(part: Sequence[int], folds: Folds, in_memory: bool) -> list[tuple[int, int]]:
    """(candidate, fold) in the order of training.

    If rows stream, each block is used for all models, which two threads share; the order gives easy and hard models to
    both.  In memory the models of one C are neighbours, because they need the same rows
    (`dual_cd_state.groups_of_models`).
    """
    if not in_memory:
        return [(number, fold) for fold in range(folds.n_folds) for number in part]
    return [(number, fold) for number in part for fold in range(folds.n_folds)]


def _weights(
    store: RowBlocks, config: FitConfig, candidate: Candidate, fold: int, counts: np.ndarray | None
) -> np.ndarray:  # fmt: skip
    """Class weights of a cell; 'balanced' counts its training rows."""
    if counts is None:
        make_problem(candidate.config(config), store)  # raises an error for class weights of a regression
        return np.ones(1)
    training = counts.sum(axis=0) - counts[fold]
    return make_problem(candidate.config(config), store, training).class_weight


def _failed(work: _Work, fits: _Fits, config: FitConfig) -> list[tuple[int, int]]:
    """The cells of a finished fit that another solver is to train: those that `dcd` did not solve.

    A limit that the user set for the reading of rows, or for the time, ends the search, too.
    """
    limited = config.max_time is not None or not work.in_memory
    return [cell[:2] for cell in fits.unproved(work) if cell.status == "stalled" or not limited]


def _said_of(failed: Sequence[tuple[int, int]], grid: Sequence[Candidate]) -> str:
    """The warning that other solvers train some cells."""
    costs = ", ".join(f"{C:g}" for C in sorted({grid[number].C for number, _ in failed}))
    return f"dcd did not reach the tolerance for C = {costs}: the solver of a single fit trains these models"


def _by_fold(
    store: RowBlocks, config: FitConfig, grid: Sequence[Candidate], cells: Sequence[tuple[int, int]], folds: Folds,
    emit: Emit, fits: _Fits, name: str = "fold",
    parts_of: Callable[[RowBlocks, FitConfig, Sequence[Candidate], list[int]], list[list[int]]] = one_after_another,
) -> Iterator[_Work]:  # fmt: skip
    """The fits of some cells: one for each fold and class weight, with all values of C.

    fits : holds the models from which later fits start
    parts_of : cuts the candidates of a fold and class weight into parts, each of which has a fit of its own
    """
    weights = dict.fromkeys(repr(grid[number].class_weight) for number, _ in cells)
    for group, weight in enumerate(weights):
        for fold in range(folds.n_folds):
            found = [n for n, held_out in cells if held_out == fold and repr(grid[n].class_weight) == weight]
            last: tuple[int, int] | None = None
            for place, part in enumerate(parts_of(store, config, grid, found)):
                chained = len(part) == 1 and starts_from_the_last(store, config, grid, part[0])

                def fit(
                    checkpoints: Checkpoints | None, resume: bool, part: list[int] = part, fold: int = fold,
                    start: tuple[int, int] | None = last if chained else None,
                ) -> list[FitResult]:  # fmt: skip
                    rows: Any = WithheldRows(store, OfFold(folds, fold))
                    costs, own = [grid[number].C for number in part], grid[part[0]].config(config)
                    if start is None:
                        return fit_path_store(rows, costs, own, emit, checkpoints, resume)
                    with fits.on_disk(start) as earlier:
                        own = dataclasses.replace(own, warm_start=earlier)
                        return fit_path_store(rows, costs, own, emit, checkpoints, resume)

                of_part = f"-{place}" if place else ""
                yield _Work(f"{name}-{group}-{fold}{of_part}", [(number, fold) for number in part], fit)
                last = (part[0], fold) if len(part) == 1 else None


def _one_by_one(
    store: RowBlocks, config: FitConfig, grid: Sequence[Candidate], folds: Folds, emit: Emit
) -> Iterator[_Work]:  # fmt: skip
    """The fits of all candidates: one for each cell."""
    for number, candidate in enumerate(grid):
        for fold in range(folds.n_folds):

            def fit(
                checkpoints: Checkpoints | None, resume: bool, candidate: Candidate = candidate, fold: int = fold
            ) -> list[FitResult]:
                rows: Any = WithheldRows(store, OfFold(folds, fold))
                own = dataclasses.replace(candidate.config(config), no_dual=True)
                return [fit_store(rows, own, emit, checkpoints, resume)]

            yield _Work(f"cell-{number}-{fold}", [(number, fold)], fit)
