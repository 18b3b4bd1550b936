"""Warm starts of estimators: the models and dual variables that a fit keeps, and a fit that starts from them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigsvm.errors import DataError, UsageError
from bigsvm.files.plain_arrays import write_array
from bigsvm.files.temporary import temporary_folder
from bigsvm.model.linear_model import Model
from bigsvm.run.api import fit as fit_rows
from bigsvm.run.fit.outcome import FitResult
from bigsvm.store.blocks import RowBlocks


class Kept(NamedTuple):
    """A model, which identifies its training rows, and their alpha, float64, (n_models, n_samples), or None."""

    model: Model
    alpha: np.ndarray | None


def kept_of(results: list[FitResult]) -> list[Kept]:
    """The models and alphas of results that are not closed yet, as arrays, which can be pickled."""
    return [Kept(result.model, _duals(result)) for result in results]


def _duals(result: FitResult) -> np.ndarray | None:
    if not result.alpha:
        return None
    parts = [np.concatenate(list(vector.in_store_order(result.working_row))).T for vector in result.alpha]
    return np.ascontiguousarray(np.concatenate(parts), np.float64)


@contextmanager
def folders(kept: list[Kept] | None, n_problems: int) -> Iterator[list[Path | None]]:
    """Save the kept models for the duration of the block: for each problem the folder of its model, or None.

    If the number of problems has changed, the classes have, and no problem starts from an earlier model.
    """
    if kept is None or len(kept) != n_problems:
        yield [None] * n_problems
        return
    scratch = os.environ.get("BIGSVM_SCRATCH")
    if scratch:
        os.makedirs(scratch, exist_ok=True)
    with temporary_folder(scratch) as folder:
        paths: list[Path | None] = []
        for number, (model, alpha) in enumerate(kept):
            path = folder / f"{number}.model"
            model.save(
                path, None if alpha is None else _as_file(alpha), alpha_bytes=0 if alpha is None else alpha.nbytes
            )
            paths.append(path)
        yield paths


def _as_file(alpha: np.ndarray) -> Any:
    return lambda file: write_array(file, alpha)


def fit_from(earlier: Path | None, rows: RowBlocks, **options: Any) -> FitResult:
    """`bigsvm.fit`, started from an earlier model if its rows, classes and solver allow that, otherwise from 0.

    Errors in the rows themselves are raised by the second attempt.
    """
    if earlier is not None:
        try:
            return fit_rows(rows, warm_start=str(earlier), **options)
        except (DataError, UsageError):
            pass
    return fit_rows(rows, **options)
