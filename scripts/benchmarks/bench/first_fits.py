"""Common first fits, for which a wheel has all compiled code: `cold_start.py` runs them, and none may compile.

Rows are those of a table of numbers (CSV, Parquet) or of svmlight text, of two classes, of ten, or with targets.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

_ROWS, _FEATURES = 400, 16
_Signatures = set[tuple[str, str]]


class First(NamedTuple):
    """First fits of a file.

    rows : "two", "ten" or "targets";  form : "csv", "parquet", "svm", or "float32", a Zarr store of such numbers
    options : those of the fits, but for C, for which there is a fit each
    """

    rows: str
    form: str
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """A name for people."""
        return " ".join([self.form, self.rows, *self.options])

    def commands(self) -> list[list[str]]:
        """What is run, in a folder with the files: fits with C = 1 and 100, and what uses the last model."""
        source = f"{self.rows}.{'csv' if self.form == 'float32' else self.form}"
        store, before = source, list[list[str]]()
        if self.form in ("svm", "float32"):
            store, how = f"{self.rows}-{self.form}.zarr", ["--label", "label", "--dtype", "float32"]
            task = ["--task", "regression"] if self.rows == "targets" else []
            before = [["ingest", source, store, "--overwrite", *(how if self.form == "float32" else []), *task]]
        label = ["--label", "label"] if store == source else []
        fit, model = ["fit", store, *label, *self.options, "-o", "first.model", "--overwrite"], ["first.model", store]
        uses = [["evaluate", *model], ["certify", *model]]
        return [
            *before,
            *([*fit, "-c", C] for C in ("1", "100")),
            *uses,
            ["predict", *model, "-o", "first.csv", "--overwrite"],
        ]


HINGE, TUBE = ("--loss", "hinge"), ("--loss", "epsilon_insensitive")
RBF, LINEAR, FINE = ("--kernel", "rbf"), ("--kernel", "linear"), ("--tol", "1e-6")
DEMO = [
    *[First(rows, form, options) for form in ("csv", "parquet")
      for rows, options in (("two", ()), ("two", HINGE), ("ten", ()), ("targets", TUBE))],
    First("two", "svm"), First("two", "svm", HINGE), First("ten", "svm"),
]  # fmt: skip
"""Of a wheel with what is usual, which `pip install .` builds."""
ALL = [
    *DEMO,
    *[First("ten", form, HINGE) for form in ("csv", "svm", "float32")],
    *[First(rows, "float32", options) for rows, options in (("two", ()), ("two", HINGE), ("ten", ()))],
    *[First("targets", form, TUBE) for form in ("svm", "float32")],
    *[First("two", form, RBF) for form in ("csv", "svm", "float32")],
    First("targets", "csv", (*TUBE, *RBF)),
    First("two", "csv", LINEAR),
    First("two", "csv", (*HINGE, *FINE)),
    First("ten", "csv", (*HINGE, *FINE)),
]
"""Of a wheel with everything."""


def write_rows(folder: Path) -> None:
    """The files: rows of two classes, of ten, and with targets, in each form."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    X = rng.standard_normal((_ROWS, _FEATURES)).round(4)
    score = X[:, 0] + 0.5 * X[:, 1] + rng.standard_normal(_ROWS).round(4)
    rank = np.argsort(np.argsort(score))
    for name, y in {"two": rank * 2 // _ROWS, "ten": rank * 10 // _ROWS, "targets": score}.items():
        table = pa.table({"label": y, **{f"x{j}": X[:, j] for j in range(_FEATURES)}})
        pyarrow.csv.write_csv(table, folder / f"{name}.csv")
        pyarrow.parquet.write_table(table, folder / f"{name}.parquet")
        rows = (" ".join(f"{j + 1}:{value}" for j, value in enumerate(row)) for row in X)
        (folder / f"{name}.svm").write_text("".join(f"{label} {row}\n" for label, row in zip(y, rows, strict=True)))


def missing_of_ten_classes(folder: Path) -> list[str]:
    """Functions, with their types, that a first fit of a table with ten classes calls and a wheel does not have.

    The real thing compiles for half a minute.  So this takes what is compiled from the cache of whoever calls, and
    compares which functions the commands call with those that building a wheel calls.
    """
    from bigsvm.cli.main import run
    from bigsvm.run.warm import CASES, warm

    def built() -> None:
        warm(["demo"], cases=[case for case in CASES if case.layout == "dense" and (case.classes > 2 or case.table)])

    def used() -> None:
        os.chdir(folder)
        for command in First("ten", "csv").commands():
            assert run(command) in (0, 4), command

    write_rows(folder)
    return sorted(f"{name} {signature}" for name, signature in _called_by(used) - _called_by(built))


def _called_by(work: Callable[[], None]) -> _Signatures:
    """The signatures of all compiled functions that a forked process calls, which has called nothing before."""
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                work()
            with open(here, "w") as pipe:
                json.dump(sorted(_signatures()), pipe)
            status = 0
        finally:
            os._exit(status)
    os.close(here)
    with open(there) as pipe:
        said = pipe.read()
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise SystemExit("a first fit failed")
    return {(name, signature) for name, signature in json.loads(said)}


def _signatures() -> _Signatures:
    import sys

    from numba.core.dispatcher import Dispatcher

    modules = [module for name, module in sys.modules.items() if name.startswith("bigsvm.compiled.")]
    functions = [found for module in modules for found in vars(module).values() if isinstance(found, Dispatcher)]
    return {(found.py_func.__qualname__, str(signature)) for found in functions for signature in found.overloads}
