"""The content fingerprint of rows, and the scales of their columns, computed while the rows are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from bigsvm.compiled.shared.fingerprint import content_hash
from bigsvm.compiled.shared.rows import CSR, n_rows_of
from bigsvm.store.blocks import frozen, readonly_view
from bigsvm.store.labels import label_bits

SCALE_LIMIT = 1_000_000
"""Number of columns beyond which no scales are computed, because they take 4 bytes a column."""

_SLOW_RATIO = 30.0  # ratio of scales from which coordinate descent takes ten times as long, often hundreds of times
_BAD_RATIO = 1e3  # scale of a column, relative to the usual one, from which it is named in a warning


class ContentHash:
    """Sum mod 2^128 of the hashes of rows (`compiled/shared/fingerprint.py`); blocks may come in any order.

    `merge` adds the hash of other rows.
    """

    def __init__(self) -> None:
        self.total = 0

    def add(self, X: np.ndarray | CSR, labels: np.ndarray, weights: np.ndarray | None, first_row: int) -> None:
        """Add rows whose first is row `first_row` of the store.  labels : numbers or strings, (n_rows,)."""
        self.add_bits(X, label_bits(labels), weights, first_row)

    def add_bits(self, X: np.ndarray | CSR, bits: np.ndarray, weights: np.ndarray | None, first_row: int) -> None:
        """`add` where the labels' bits are known already (uint64, shape (n_rows,))."""
        ones = np.ones(n_rows_of(X)) if weights is None else np.ascontiguousarray(weights, np.float64)
        low, high = content_hash(readonly_view(X), bits, frozen(ones), first_row)
        self.total = (self.total + int(low) + (int(high) << 64)) % (1 << 128)

    def merge(self, other: ContentHash) -> None:
        self.total = (self.total + other.total) % (1 << 128)

    def hexdigest(self) -> str:
        """32 hex digits."""
        return f"{self.total:032x}"


class ColumnScales:
    """The largest |value| of every column.  Beyond `limit` columns it gives up (`largest` is None), to bound memory."""

    def __init__(self, limit: int = SCALE_LIMIT) -> None:
        self.largest: np.ndarray | None = np.zeros(0, np.float32)
        self.limit = limit

    def add(self, X: np.ndarray | CSR) -> None:
        if self.largest is None:
            return
        if isinstance(X, CSR):
            if len(X.data) == 0:
                return
            n_features = int(X.indices.max()) + 1
        else:
            n_features = X.shape[1]
        if n_features > self.limit:
            self.largest = None
            return
        if n_features > len(self.largest):
            self.largest = np.pad(self.largest, (0, max(n_features, len(self.largest) * 5 // 4) - len(self.largest)))
        with np.errstate(over="ignore"):  # a float64 beyond float32 becomes inf: large all the same
            if isinstance(X, CSR):
                np.maximum.at(self.largest, X.indices, np.abs(X.data.astype(np.float32, copy=False)))
            elif len(X):
                # Widened first: -(-128) is no int8, and uint8 has no negatives.
                peak = np.maximum(X.max(axis=0).astype(np.float32), -X.min(axis=0).astype(np.float32))
                np.maximum(self.largest[:n_features], peak, out=self.largest[:n_features])

    def merge(self, largest: np.ndarray | None) -> None:
        """Include other rows.  largest : that of their ColumnScales"""
        if self.largest is None or largest is None:
            self.largest = None
            return
        width = max(len(self.largest), len(largest))
        if len(self.largest) < width:
            self.largest = np.pad(self.largest, (0, width - len(self.largest)))
        np.maximum(self.largest[: len(largest)], largest, out=self.largest[: len(largest)])

    def summary(self) -> dict[str, object]:
        """Statistics of the scales and the worst columns, as JSON; empty if unknown or if all values are 0."""
        if self.largest is None or not np.any(self.largest):
            return {}
        columns = np.flatnonzero(self.largest)
        scales = self.largest[columns]
        # Compared with the lower quartile, not the median: a quarter of columns of usual scale is enough for the others
        # to count as badly scaled.
        quartile, median = float(np.quantile(scales, 0.25, method="lower")), float(np.median(scales))
        ratio = scales / np.float32(quartile) if np.isfinite(quartile) else np.ones_like(scales)
        bad = np.flatnonzero(ratio > _BAD_RATIO)
        worst = bad[np.argsort(-ratio[bad], kind="stable")[:10]]
        finite = np.minimum(scales, np.finfo(np.float32).max)
        return {
            "min": float(finite.min()), "quartile": quartile if np.isfinite(quartile) else float(finite.max()),
            "median": median if np.isfinite(median) else float(finite.max()),
            "max": float(finite.max()), "n_badly_scaled": len(bad), "badly_scaled": columns[worst].tolist(),
        }  # fmt: skip


def badness(summary: dict[str, Any]) -> tuple[int, float]:
    """What the worse of two summaries is decided by: the number of badly scaled columns, then the ratio of scales."""
    usual = summary.get("quartile", summary.get("median", 0.0))
    return summary.get("n_badly_scaled", 0), summary.get("max", 0.0) / usual if usual > 0 else 0.0


Minding = Literal["no", "maybe", "yes", "more"]
"""How much a fit minds columns of different scale; maybe: it is not known which fit; more: ratios above 30, too."""


def scale_warning(
    summary: dict[str, object], minding: Minding = "maybe", names: Sequence[str] | None = None
) -> str | None:
    """The warning that names badly scaled columns and the remedy; None where there are none.

    summary : as of `ColumnScales.summary`; `rows` are the first row that it is of, and the one after the last, if it is
        not of all rows
    names : of the features, if they have names
    """
    if minding == "no":
        return None
    worst, count = summary.get("badly_scaled"), summary.get("n_badly_scaled")
    rows = summary.get("rows")
    of = f"in rows {rows[0]} to {rows[1] - 1}, " if isinstance(rows, list) else ""
    largest, usual = summary.get("max"), summary.get("quartile", summary.get("median"))
    if not isinstance(worst, list) or not worst:
        ratio = largest / usual if isinstance(largest, float) and isinstance(usual, float) and usual > 0 else 0.0
        if minding != "more" or ratio <= _SLOW_RATIO:
            return None
        return (
            f"{of}columns differ in scale by {ratio:.0f}: dual coordinate descent will take many times as long, or "
            "stall; scale the features to about [-1, 1] (fit --scale maxabs does)"
        )
    shown = ", ".join(str(column) if names is None else repr(str(names[column])) for column in worst[:3])
    shown += " (counted from 0)" if names is None else ""
    by = f" by {largest / usual:.0e}" if isinstance(largest, float) and isinstance(usual, float) and usual > 0 else ""
    exceed = "1 column exceeds" if count == 1 else f"{count} columns exceed"
    return (
        f"badly scaled columns: {of}columns differ in scale{by}; {exceed} the usual scale {_BAD_RATIO:g} times, "
        f"such as {shown}; scale the features to about [-1, 1] (fit --scale maxabs does) "
        f"or training {'may' if minding == 'maybe' else 'will'} be slow"
    )
