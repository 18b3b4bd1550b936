"""The finished fits of a search, each in its own folder, so that a search that was killed can continue.

RUN/fits/NAME/000/ ...   the model of each cell of a fit, with its proof
RUN/fits/NAME/fit.json   the cells and the solver of the fit, and what the fit read; with a digest
RUN/checkpoint/          checkpoint of the fit that is in progress

The folder of a fit is complete or absent.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bigsvm.errors import DataError
from bigsvm.files.atomic import new_directory
from bigsvm.files.sealed_json import read_sealed, write_sealed
from bigsvm.model.linear_model import Model, load_model
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.outcome import FitResult
from bigsvm.run.tune.folder import CHECKPOINT, FIT, FITS

_CHECKPOINT_EVERY_S = 60.0
Cells = Sequence[tuple[int, int]]


class KeptFits:
    """The finished fits in the folder of a run; without a run folder nothing is saved."""

    def __init__(self, run: Path | None) -> None:
        self._run = run

    def has(self, name: str, cells: Cells) -> bool:
        """Whether the fit `name` of these cells was finished before, so that `done` loads it.

        An earlier version may have trained other cells in the fit of that name.  Raises DataError if it is damaged.
        """
        if self._run is None or not (folder := self._run / FITS / name).is_dir():
            return False
        figures = _figures_of(folder)
        if "cells" not in figures:  # earlier versions did not write them
            return bool(figures["n_models"] == len(cells))
        return bool(figures["cells"] == [list(cell) for cell in cells])

    def done(
        self, name: str, cells: Cells, fit: Callable[[Checkpoints | None, bool], list[FitResult]]
    ) -> tuple[dict[str, Any], list[Model]]:
        """(figures, models) of the fit `name`, loaded if it was finished before, otherwise computed now.

        cells : (candidate, fold) of each model
        fit : a function of (checkpoints, whether to resume from the newest) that returns the results

        Raises what `fit` raises; DataError if a saved fit is damaged.
        """
        if self._run is None:
            results = fit(None, False)
            results[0].heed_a_late_stop()  # or the next fit would begin
            return _figures(results), _models(results)
        folder = self._run / FITS / name
        if self.has(name, cells):
            return _read(folder)
        checkpoints = Checkpoints(self._run / CHECKPOINT / name, {}, _CHECKPOINT_EVERY_S)
        results = fit(checkpoints, True)
        figures, models = _figures(results), _models(results)
        folder.parent.mkdir(exist_ok=True)
        with new_directory(folder, overwrite=True, marks=(FIT,), kind="fit") as made:
            for number, model in enumerate(models):
                model.save(made / f"{number:03d}")
            write_sealed(made / FIT, {**figures, "n_models": len(models), "cells": list(map(list, cells))})
        checkpoints.clear()
        shutil.rmtree(self._run / CHECKPOINT, ignore_errors=True)
        results[0].heed_a_late_stop(checkpoints.goes_on)  # the fit is kept
        # Return what was saved, so that a search that is continued gets exactly the same numbers.
        return _read(folder)


def _figures(results: list[FitResult]) -> dict[str, Any]:
    """The figures of a fit whose results share their passes."""
    figures = results[0].figures
    found = {name: figures[name] for name in ("bytes_read", "data_bytes", "solver", "passes")}
    seconds = results[0].seconds
    memory = {**results[0].memory, "loaded_bytes": results[0].loaded_bytes}
    return {**found, "seconds": seconds["total"] - seconds["compile"], "memory": memory}


def _models(results: list[FitResult]) -> list[Model]:
    for result in results:
        result.close()
    return [result.model for result in results]


def _read(folder: Path) -> tuple[dict[str, Any], list[Model]]:
    figures = _figures_of(folder)
    return figures, [load_model(folder / f"{number:03d}") for number in range(figures["n_models"])]


def _figures_of(folder: Path) -> dict[str, Any]:
    try:
        figures = read_sealed(folder / FIT)
        range(figures["n_models"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"a fit of the search is damaged: {error}", str(folder), "delete it, and it will be computed again"
        ) from error
    return figures
