"""Learning curves: the same grid is searched on growing shares of the rows, and scored on the same held-out rows.

A row is in a share if the hash of its number is below the share, so smaller shares are contained in larger ones.
Neither layout nor order of reading matters, and two points of the curve differ only in the added rows.
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
from bigsvm.run.tune.folder import CURVE, SIZES, claim_for_curve
from bigsvm.run.tune.folds import Folds, class_counts
from bigsvm.run.tune.result import Row
from bigsvm.run.tune.search import Asked, tune_store
from bigsvm.run.tune.train import check_room
from bigsvm.store.blocks import RowBlocks, tile
from bigsvm.store.transforms.withheld import HashedShare, WithheldRows

_PIECE = 1 << 18  # rows


@dataclass(frozen=True)
class BeyondShare:
    """The rows outside of a share, as a `withheld.Which`; they shrink as the share grows."""

    share: float
    seed: int

    @property
    def said(self) -> str:
        """See `Which.said`."""
        return f"all but {self.share!r} by seed {self.seed}"

    def withheld(self, start: int, stop: int) -> np.ndarray:
        """See `Which.withheld`."""
        return ~HashedShare(self.share, self.seed).withheld(start, stop)


@dataclass(frozen=True)
class Point:
    """A point of a learning curve: the best candidate on one share of the rows.

    n_rows : number of training rows, averaged over the folds;  row : the candidate, scored on all held-out rows
    """

    share: float
    n_rows: float
    row: Row


@dataclass(frozen=True)
class LearningCurve:
    """The best candidates of a grid for ascending shares of the rows."""

    metric: str
    points: list[Point]
    figures: dict[str, Any]
    warnings: list[str]

    @property
    def status(self) -> str:
        """'converged' if every model of the best candidates is proved to its tolerance."""
        return next((point.row.status for point in self.points if point.row.status != "converged"), "converged")

    def exit_code(self, allow_unconverged: bool = False) -> int:
        """0 if every gap is proved to the tolerance, else 4 (or 0 if that is allowed)."""
        return exit_code(self.status, allow_unconverged)

    def document(self) -> dict[str, Any]:
        """The curve as JSON."""
        points = [{"share": p.share, "n_rows": p.n_rows, **p.row.document()} for p in self.points]
        return {"metric": self.metric, "sizes": points, **self.figures}


def parse_shares(text: str) -> list[float]:
    """Parse '0.1,0.3,1': shares of the rows, above 0 and at most 1; sorted, without repeats.  Raises UsageError."""
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
    """Search the grid on each share of the rows; if `run` holds an unfinished curve, continue it.

    Every pass reads all rows; those outside of the share weigh 0.

    Raises DataError if a share leaves a class without rows, and what `tune_store` raises.
    """
    if asked.refit:
        raise UsageError("a learning curve cannot refit a model", hint="leave out --refit or --sizes")
    points, warnings = [], []
    figures: dict[str, Any] = {"n_samples": store.n_samples, "n_features": store.n_features, "bytes_read": 0}
    seconds = 0.0
    kept = [_kept(store, share, config.seed) for share in shares]
    check_room(store, config, asked.grid, asked.folds)
    if run is not None:  # after all that may refuse this curve: a search may go
        claim_for_curve(run, asked.overwrite)
    for share, rows in zip(shares, kept, strict=True):
        folder = None if run is None else run / SIZES / f"{share:g}"
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
    """The document of a learning curve, from the folder of its search.  Raises MissingInput, DataError."""
    try:
        return dict(read_sealed(run / CURVE))
    except OSError as error:
        raise MissingInput(f"no learning curve here: {error.strerror}", str(run)) from error
    except (ValueError, TypeError) as error:
        raise DataError(
            f"the learning curve is damaged: {error}", str(run / CURVE), "repeat the same `bigsvm tune`"
        ) from error


def _n_rows(n_samples: int, share: float, seed: int) -> int:
    """Number of rows in a share."""
    if share == 1.0:
        return n_samples
    which = BeyondShare(share, seed)
    return n_samples - sum(int(which.withheld(a, b).sum()) for a, b in tile(n_samples, _PIECE))


def _kept(store: RowBlocks, share: float, seed: int) -> RowBlocks:
    """The store with weight 0 outside of the share.  Raises DataError if a class has no row in the share."""
    if share == 1.0:
        return store
    rows: Any = WithheldRows(store, BeyondShare(share, seed))
    if store.classes is not None:
        for name, count in zip(store.classes, class_counts(rows, Folds(1, "rows"))[0], strict=True):
            if count == 0:
                raise DataError(f"a share of {share:g} has no row of class {name}", store.uri, "use larger --sizes")
    return rows
