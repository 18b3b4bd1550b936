"""The fits of a search that are done, each in a folder of its own: a search that was killed goes on after them.

    RUN/fits/NAME/000/ ...   the model of each cell of a fit, with its proof
    RUN/fits/NAME/fit.json   what the fit read, and its solver; sealed
    RUN/checkpoint/          of the fit that is going on

A fit is there whole or not at all.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bigsvm.errors import DataError
from bigsvm.files.atomic import new_directory
from bigsvm.files.sealed_json import read_sealed, write_sealed
from bigsvm.model.linear_model import Model, load_model
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.outcome import FitResult

_FILE = "fit.json"
_CHECKPOINT_EVERY_S = 60.0


class KeptFits:
    """In a run's folder; without one nothing is kept on disk."""

    def __init__(self, run: Path | None) -> None:
        self._run = run

    def done(
        self, name: str, fit: Callable[[Checkpoints | None, bool], list[FitResult]]
    ) -> tuple[dict[str, Any], list[Model]]:
        """(figures, models) of a fit that was done before, or is done now.

        fit : (checkpoints, whether to go on from the newest) -> its results

        Raises what `fit` raises; DataError where what lies there is damaged.
        """
        if self._run is None:
            results = fit(None, False)
            return _figures(results), _models(results)
        folder = self._run / "fits" / name
        if folder.is_dir():
            return _read(folder)
        checkpoints = Checkpoints(self._run / "checkpoint" / name, {}, _CHECKPOINT_EVERY_S)
        results = fit(checkpoints, True)
        figures, models = _figures(results), _models(results)
        folder.parent.mkdir(exist_ok=True)
        with new_directory(folder, marks=(_FILE,), kind="fit") as made:
            for number, model in enumerate(models):
                model.save(made / f"{number:03d}")
            write_sealed(made / _FILE, {**figures, "n_models": len(models)})
        checkpoints.clear()
        shutil.rmtree(self._run / "checkpoint", ignore_errors=True)
        # As they lie there: a search that goes on sees the same numbers.
        return _read(folder)


def _figures(results: list[FitResult]) -> dict[str, Any]:
    """Of a fit whose results share their readings."""
    figures = results[0].figures
    found = {name: figures[name] for name in ("bytes_read", "data_bytes", "solver", "passes")}
    return {**found, "seconds": results[0].seconds["total"], "memory": results[0].memory}


def _models(results: list[FitResult]) -> list[Model]:
    for result in results:
        result.close()
    return [result.model for result in results]


def _read(folder: Path) -> tuple[dict[str, Any], list[Model]]:
    try:
        figures = read_sealed(folder / _FILE)
        numbers = range(figures["n_models"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"a fit of the search is damaged: {error}", str(folder), "delete it: it is made anew"
        ) from error
    return figures, [load_model(folder / f"{number:03d}") for number in numbers]
