"""What a fit of an estimator leaves for the next one: models and duals, and a fit that starts from them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigsvm.errors import DataError, UsageError
from bigsvm.model.linear_model import Model
from bigsvm.run.api import fit as fit_rows
from bigsvm.run.fit.outcome import FitResult
from bigsvm.store.blocks import RowBlocks


class Kept(NamedTuple):
    """A model, with what it says of the rows it knew; and their duals, float64, (n_models, n_samples), None of none."""

    model: Model
    alpha: np.ndarray | None


def kept_of(results: list[FitResult]) -> list[Kept]:
    """Of results that are not closed yet; arrays of its own, so that it pickles."""
    return [Kept(result.model, _duals(result)) for result in results]


def _duals(result: FitResult) -> np.ndarray | None:
    if not result.alpha:
        return None
    parts = [np.concatenate(list(vector.in_store_order(result.working_row))).T for vector in result.alpha]
    return np.ascontiguousarray(np.concatenate(parts), np.float64)


@contextmanager
def folders(kept: list[Kept] | None, n_problems: int) -> Iterator[list[Path | None]]:
    """For each problem the folder of the model that it may start from, for as long as the fits take; None for none.

    Where the number of problems is another, classes came or went, and none starts from what another one was.
    """
    if kept is None or len(kept) != n_problems:
        yield [None] * n_problems
        return
    scratch = os.environ.get("BIGSVM_SCRATCH")
    if scratch:
        os.makedirs(scratch, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bigsvm-", dir=scratch or None) as folder:
        paths: list[Path | None] = []
        for number, (model, alpha) in enumerate(kept):
            path = Path(folder) / f"{number}.model"
            model.save(
                path, None if alpha is None else _as_file(alpha), alpha_bytes=0 if alpha is None else alpha.nbytes
            )
            paths.append(path)
        yield paths


def _as_file(alpha: np.ndarray) -> Any:
    return lambda file: np.lib.format.write_array(file, alpha, version=(1, 0), allow_pickle=False)


def fit_from(earlier: Path | None, rows: RowBlocks, **options: Any) -> FitResult:
    """`bigsvm.fit` from where an earlier model ended; from 0 where it cannot be: other rows, classes, or solver.

    What is wrong with the rows themselves is said by the fit from 0, in its own words.
    """
    if earlier is not None:
        try:
            return fit_rows(rows, warm_start=str(earlier), **options)
        except (DataError, UsageError):
            pass
    return fit_rows(rows, **options)
