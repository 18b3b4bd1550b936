"""Rows of text and of arrays, normalized and scaled on their way into a store, each by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Mapping
from typing import Any

from bigsvm.errors import UsageError
from bigsvm.store.checks import check_finite
from bigsvm.store.ingest.row_source import Rows, RowSource
from bigsvm.store.labels import n_labels
from bigsvm.store.transforms.normalize import Normalizing
from bigsvm.store.transforms.recipe import Recipe
from bigsvm.store.transforms.scaling import Scaling


def recipe_asked(scale: str | None, normalize: str | None, like: Mapping[str, Any] | None) -> Recipe:
    """What is done to each row: as asked, or as with the rows of the store that these join (`like`).

    Raises UsageError for scales that would have to be known of all rows before the first is written.
    """
    if like:
        return Recipe.of(like)
    if scale not in (None, "none", "unit-norm"):
        what = f"--scale {scale} needs a pass over all rows first, which this kind of source is not read in"
        raise UsageError(what, hint=f"ingest without it, then fit with --scale {scale}; unit-norm goes row by row")
    return Recipe(
        None if normalize is None else Normalizing.parse(normalize), Scaling(scale) if scale == "unit-norm" else None
    )


def changed_rows(source: RowSource, recipe: Recipe) -> RowSource:
    """The rows of a source, changed; the store says how.  Errors name the row."""
    if recipe.nothing:
        return source
    dtype, said = source.dtype, dict(source.recipe)
    if recipe.normalizing is not None:
        dtype, said["normalize"] = recipe.normalizing.dtype(dtype), str(recipe.normalizing)
    if recipe.scaling is not None:
        dtype, said["scale"] = recipe.scaling.dtype(dtype), recipe.scaling.document()

    def rows() -> Generator[Rows, None, None]:
        row, parts = 0, source.rows()
        try:
            for part in parts:
                X = recipe.apply(part.X, source.where, row)
                check_finite(X, source.where, row)
                yield part._replace(X=X)
                row += n_labels(part.labels)
        finally:
            parts.close()

    return dataclasses.replace(source, dtype=dtype, recipe=said, rows=rows)
