"""A learning curve: the search of a grid on more and more of the rows, each model scored on the same held-out rows.

The rows of a smaller share are among those of each larger one: a row takes part where the hash of its number lies below
the share.  So neither layout nor order of reading matters, and points of the curve differ by rows that were added.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.config import FitConfig
from bigsvm.errors import DataError, MissingInput, UsageError
from bigsvm.events import Emit, silent
from bigsvm.files.sealed_json import read_sealed, write_sealed
from bigsvm.run.fit.outcome import exit_code
from bigsvm.run.tune.folds import Folds, class_counts
from bigsvm.run.tune.result import Row
from bigsvm.run.tune.search import Asked, tune_store
from bigsvm.store.blocks import RowBlocks, tile
from bigsvm.store.withheld import HashedShare, WithheldRows

CURVE = "curve.json"
_PIECE = 1 << 18  # rows


@dataclass(frozen=True)
class BeyondShare:
    """The rows beyond a share, as `withheld.Which`; those of a larger share are among those of a smaller one."""

    share: float
    seed: int

    @property
    def said(self) -> str:
        """As `Which` has it."""
        return f"all but {self.share!r} by seed {self.seed}"

    def withheld(self, start: int, stop: int) -> np.ndarray:
        """As `Which` has it."""
        return ~HashedShare(self.share, self.seed).withheld(start, stop)


@dataclass(frozen=True)
class Point:
    """The best candidate on one share of the rows.

    n_rows : rows trained on, the mean over the folds;  row : the candidate with its scores on all held-out rows
    """

    share: float
    n_rows: float
    row: Row


@dataclass(frozen=True)
class LearningCurve:
    """What a grid reaches on shares of the rows, ascending."""

    metric: str
    points: list[Point]
    figures: dict[str, Any]
    warnings: list[str]

    @property
    def status(self) -> str:
        """'converged' where every model of the best candidates is proved to its tolerance."""
        return next((point.row.status for point in self.points if point.row.status != "converged"), "converged")

    def exit_code(self, allow_unconverged: bool = False) -> int:
        """0 where every gap is proved to the tolerance, 4 where one is not (0 if that is allowed)."""
        return exit_code(self.status, allow_unconverged)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        points = [{"share": p.share, "n_rows": p.n_rows, **p.row.document()} for p in self.points]
        return {"metric": self.metric, "sizes": points, **self.figures}


def parse_shares(text: str) -> list[float]:
    """`0.1,0.3,1` : shares of the rows, each above 0 and at most 1; ascending, none twice.  Raises UsageError."""
    try:
        shares = sorted({float(part) for part in text.split(",")})
    except ValueError:
        raise UsageError(f"sizes must be numbers between commas, not {text!r}", hint="such as 0.1,0.3,1") from None
    if not (shares and shares[0] > 0 and shares[-1] <= 1):
        raise UsageError(f"sizes are shares of the rows, above 0 and at most 1, not {text!r}", hint="such as 0.1,0.3,1")
    return shares


def learning_curve(
    store: RowBlocks, config: FitConfig, asked: Asked, shares: Sequence[float], emit: Emit = silent,
    run: Path | None = None,
) -> LearningCurve:  # fmt: skip
    """Search the grid on each share of the rows; with a `run` folder go on with what is done there.

    Every pass reads all rows, of which those that are left out weigh 0.

    Raises DataError where a share leaves a class without rows; and what `tune_store` raises.
    """
    if asked.refit:
        raise UsageError("a learning curve has no model to refit", hint="leave --refit or --sizes out")
    points, warnings = [], []
    figures: dict[str, Any] = {"n_samples": store.n_samples, "n_features": store.n_features, "bytes_read": 0}
    seconds = 0.0
    kept = [_kept(store, share, config.seed) for share in shares]
    for share, rows in zip(shares, kept, strict=True):
        folder = None if run is None else run / "sizes" / f"{share:g}"
        found = tune_store(rows, config, asked, emit, folder, held_out_of=store)
        trained = _n_rows(store.n_samples, share, config.seed) * (1.0 - 1.0 / asked.folds.n_folds)
        points.append(Point(share, trained, found.rows[found.chosen]))
        warnings += [message for message in found.warnings if message not in warnings]
        figures["bytes_read"] += found.figures["bytes_read"]
        seconds += found.figures["seconds"]["training"]
        figures.update(data_bytes=found.figures["data_bytes"], solver=found.figures["solver"])
    figures["seconds"] = {"training": seconds}
    curve = LearningCurve(asked.metric, points, figures, warnings)
    if run is not None:
        write_sealed(run / CURVE, json.loads(json.dumps(curve.document())))
    return curve


def read_curve(run: Path) -> dict[str, Any]:
    """The document of a learning curve in the folder of its search.  Raises MissingInput, DataError."""
    try:
        return dict(read_sealed(run / CURVE))
    except OSError as error:
        raise MissingInput(f"no learning curve here: {error.strerror}", str(run)) from error
    except (ValueError, TypeError) as error:
        raise DataError(f"the learning curve is damaged: {error}", str(run / CURVE), "make it again") from error


def _n_rows(n_samples: int, share: float, seed: int) -> int:
    """Rows of a share."""
    if share == 1.0:
        return n_samples
    which = BeyondShare(share, seed)
    return n_samples - sum(int(which.withheld(a, b).sum()) for a, b in tile(n_samples, _PIECE))


def _kept(store: RowBlocks, share: float, seed: int) -> RowBlocks:
    """The rows of a share.  Raises DataError where a class has none of them."""
    if share == 1.0:
        return store
    rows: Any = WithheldRows(store, BeyondShare(share, seed))
    if store.classes is not None:
        for name, count in zip(store.classes, class_counts(rows, Folds(1, "rows"))[0], strict=True):
            if count == 0:
                raise DataError(f"a share of {share:g} has no row of class {name}", store.uri, "larger --sizes")
    return rows
