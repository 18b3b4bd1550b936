"""`bigsvm cache warm`: compile ahead of time the code that common fits, proofs and predictions call.

Each case does what a user would do with a few rows: plan, fit, save the model, prove it and use it.  For data that are
too large to make, only their sizes are declared, since a plan reads no row.  So nothing here lists compiled functions.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse

from bigsvm.config import FitConfig
from bigsvm.errors import UsageError
from bigsvm.events import COMPILING, WAITING, CompileStarted, Emit, Event, WorkAdvanced, WorkEnded, WorkStarted, silent
from bigsvm.files.temporary import temporary_folder
from bigsvm.model.linear_model import load_model
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.apply.scoring import precompile_scoring
from bigsvm.run.fit.fit import fit_store
from bigsvm.run.fit.plan import make_plan
from bigsvm.run.fit.precompile import precompile
from bigsvm.run.proof.certify import certify_model
from bigsvm.solvers.kernel.whole_numbers import precompile_pairs
from bigsvm.store.blocks import readonly_view
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.demo_rows import N_FEATURES, write_problem
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.ingest.usual_tables import write_table
from bigsvm.store.precompile_reading import precompile_reading

USES = ("demo", "fit", "predict", "certify")
_FEW, _MANY = 12, N_FEATURES  # numbers of features for which `--solver auto` chooses different solvers
_ROWS = 96
_DECLARED_ROWS = 400_000
_MEMORY = "32MiB"


@dataclasses.dataclass(frozen=True)
class Case:
    """A common kind of fit.

    uses : the USES that need it
    streamed : the rows do not fit in memory.  Their number is only declared, and the code of the fit is compiled
        without running it
    table : kind of a table (`usual_tables.py`).  Only reading it is compiled: fits of the same rows are other cases
    """

    uses: tuple[str, ...]
    layout: Literal["csr", "dense"]
    dtype: Literal["float32", "float64"]
    features: int = _FEW
    classes: int = 2  # 0: a regression
    streamed: bool = False
    table: str = ""
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """A description for people."""
        rows = f"{'sparse' if self.layout == 'csr' else 'dense'} {self.dtype} rows"
        many = ", many features" if self.features == _MANY else ""
        classes = f", {self.classes} classes" if self.classes > 2 else "" if self.classes else ", a regression"
        where = ", streamed" if self.streamed else f", {self.table}" if self.table else ""
        return f"{rows}{many}{classes}{where}" + "".join(f", {_in_words(*option)}" for option in self.options)


def _in_words(option: str, value: Any) -> str:
    return f"{value} kernel" if option == "kernel" else value if isinstance(value, str) else f"{option} {value}"


_USED: tuple[str, ...] = ("fit", "predict", "certify")
_FIRST = ("demo", *_USED)
_FINE = ("tol", 1e-6)  # that of LinearSVC with this loss, for which w is float64
_HINGE, _RBF, _TUBE = (("loss", "hinge"),), (("kernel", "rbf"),), (("loss", "epsilon_insensitive"),)
CASES = (
    Case(("demo", "fit"), "csr", "float32", _MANY, streamed=True),
    Case(_FIRST, "csr", "float32", _MANY),
    Case(_FIRST, "csr", "float32"),
    Case(_FIRST, "csr", "float32", classes=3),
    Case(_FIRST, "csr", "float32", options=_HINGE),
    Case(_FIRST, "dense", "float64"),
    Case(_FIRST, "dense", "float64", classes=3),
    Case(_FIRST, "dense", "float64", options=_HINGE),
    Case(_FIRST, "dense", "float64", classes=0, options=_TUBE),
    Case(_USED, "dense", "float64", classes=3, options=_HINGE),
    Case(_USED, "dense", "float64", options=(*_HINGE, _FINE)),
    Case(_USED, "dense", "float64", classes=3, options=(*_HINGE, _FINE)),
    Case(_USED, "dense", "float32"),
    Case(_USED, "dense", "float32", classes=3),
    Case(_USED, "dense", "float32", options=_HINGE),
    Case(_USED, "dense", "float32", classes=3, options=_HINGE),
    Case(_USED, "dense", "float32", classes=0, options=_TUBE),
    Case(_USED, "csr", "float64"),
    Case(_USED, "csr", "float64", _MANY),
    Case(_USED, "csr", "float32", classes=3, options=_HINGE),
    Case(_USED, "csr", "float32", classes=0, options=_TUBE),
    Case(("fit",), "csr", "float32", streamed=True),
    Case(("fit",), "dense", "float32", streamed=True),
    Case(_USED, "csr", "float32", options=_RBF),
    Case(_USED, "dense", "float32", options=_RBF),
    Case(_USED, "dense", "float64", options=_RBF),
    Case(_FIRST, "dense", "float64", table="numbers in CSV"),
    Case(_USED, "csr", "float64", table="text in CSV"),
    Case(_USED, "dense", "float32", table="columns in Parquet"),
    Case(_USED, "dense", "float32", table="lists of one length in Parquet"),
    Case(_USED, "dense", "float64", table="lists of one length in Parquet"),
    Case(_USED, "csr", "float32", table="lists in Parquet"),
    Case(_USED, "csr", "float32", table="lists of 64 bits in Parquet"),
    Case(_USED, "csr", "float64", table="lists of 64 bits in Parquet"),
    Case(_USED, "csr", "float64", table="vectors in Parquet"),
)
"""Common rows: text as `ingest` reads it, arrays of NumPy and SciPy, tables, and those of the demonstration.

Those of `demo` are in every wheel that `pip install .` builds: the demonstration, and first fits of svmlight text and
of tables of numbers.  `scripts/benchmarks/cold_start.py` checks that these compile nothing.
"""


def warm(uses: Collection[str], emit: Emit = silent, cases: Collection[Case] | None = None) -> dict[str, Any]:
    """Compile, into the user's cache, the functions that `uses` call and that are in no cache yet.

    uses : some of USES
    cases : the cases to choose from; None: CASES

    Returns the numbers of cases and of functions compiled, and seconds.  Raises UsageError for an unknown use.
    """
    unknown = sorted(set(uses) - set(USES))
    if unknown:
        raise UsageError(f"unknown use {unknown[0]!r}", hint=f"one of {', '.join(USES)}")
    began, compiled = time.monotonic(), 0
    chosen = [case for case in (CASES if cases is None else cases) if set(uses) & set(case.uses)]
    with temporary_folder() as folder:
        for number, case in enumerate(chosen):
            what = f"{number + 1} of {len(chosen)}: {case.name}"
            counter = _Counter(what, emit)
            emit(WorkStarted(what, 0, "functions"))
            since = time.monotonic()
            _warm_one(case, set(uses), folder / str(number), counter)
            compiled += counter.n
            emit(WorkEnded(what, time.monotonic() - since))
    return {"cases": len(chosen), "compiled": compiled, "seconds": time.monotonic() - began}


class _Counter:
    """An Emit that turns counts of compiled functions into progress of the case, and passes on what is waited for."""

    def __init__(self, what: str, emit: Emit) -> None:
        self.n, self._before = 0, 0
        self._what, self._emit = what, emit

    def __call__(self, event: Event) -> None:
        if isinstance(event, CompileStarted):
            self._before = self.n
        elif isinstance(event, WorkAdvanced) and event.what == COMPILING:
            self.n = self._before + int(event.done)
            self._emit(WorkAdvanced(self._what, self.n))
        elif isinstance(event, WorkStarted | WorkEnded) and event.what.startswith(WAITING):
            self._emit(event)


def _warm_one(case: Case, uses: set[str], folder: Path, emit: Emit) -> None:
    folder.mkdir()
    config = FitConfig.of(memory=_MEMORY, scratch=str(folder), threads=1, **dict(case.options))
    if case.streamed:
        declared = _Declared(case)
        precompile(declared, make_plan(declared, config), config, emit)
        return
    if case.table:
        precompile_reading(open_store(write_table(case.table, *_arrays(case), folder)), emit)
        return
    store = _store(case, folder)
    model = folder / "model"
    fitted = fit_store(store, config, emit)
    fitted.save_model(model)
    fitted.close()
    if config.kernel == "rbf":  # code for many rows of whole numbers in memory, which these few rows do not reach
        precompile_pairs(readonly_view(store.read(store.refs(_ROWS)[0]).X), emit)
    if uses & {"certify", "demo"} & {*case.uses}:
        certify_model(model, store, config, emit)
    if uses & {"predict", "demo"} & {*case.uses}:
        loaded = load_model(model)
        evaluate(loaded, store, config, emit)
        # The code for many rows.  Text is read with int32 indices, whatever the store has.
        for indices in {store.index_dtype, np.dtype(np.int32)}:
            precompile_scoring(store.layout, store.dtype, indices, loaded, emit)


def _store(case: Case, folder: Path) -> Any:
    """The rows of a case: those of the demonstration, ingested text, or arrays."""
    if case.features == _MANY and case.dtype == "float32":
        write_problem(folder / "demo.zarr", _ROWS)
        return open_store(str(folder / "demo.zarr"))
    X, y = _arrays(case)
    if case.layout == "csr" and case.dtype == "float32":
        entries = (" ".join(f"{j + 1}:{value:.4f}" for j, value in enumerate(row)) for row in X)
        text = "".join(f"{label} {row}\n" for label, row in zip(y, entries, strict=True))
        (folder / "rows.svm").write_text(text)
        ingest(str(folder / "rows.svm"), folder / "rows.zarr", task=_task(case))
        return open_store(str(folder / "rows.zarr"))
    return _array_rows(case, X, y)


def _arrays(case: Case) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((_ROWS, _FEW))
    score = X[:, 0] + 0.5 * rng.standard_normal(_ROWS)
    classes = np.argsort(np.argsort(score)) * case.classes // _ROWS
    return X.astype(case.dtype), classes if case.classes else score


def _task(case: Case) -> Literal["classification", "regression"]:
    return "classification" if case.classes else "regression"


def _array_rows(case: Case, X: np.ndarray, y: np.ndarray) -> ArrayRows:
    if case.layout == "dense":
        return ArrayRows(X, y, task=_task(case))
    rows = scipy.sparse.csr_array(X)
    rows.resize((len(X), case.features))
    return ArrayRows(rows, y, task=_task(case))


class _Declared(ArrayRows):
    """Rows that declare many more of them than there are; a plan reads only their sizes."""

    def __init__(self, case: Case) -> None:
        X, y = _arrays(case)
        of = _array_rows(case, X, y)
        super().__init__(of._X, y, n_features=of.n_features)
        assert self.nnz is not None
        self.nnz = self.nnz * _DECLARED_ROWS // self.n_samples
        self.n_samples = _DECLARED_ROWS
