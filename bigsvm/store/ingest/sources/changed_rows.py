"""Normalization and scaling of rows of text and of arrays, row by row, on their way into a store."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Mapping
from typing import Any

from bigsvm.errors import UsageError
from bigsvm.store.checks import check_finite
from bigsvm.store.ingest.sources.row_source import Rows, RowSource
from bigsvm.store.labels import n_labels
from bigsvm.store.transforms.normalize import Normalizing
from bigsvm.store.transforms.recipe import Recipe
from bigsvm.store.transforms.scaling import Scaling


def recipe_asked(scale: str | None, normalize: str | None, like: Mapping[str, Any] | None) -> Recipe:
    """The steps for each row: as asked, or as in the store to which the rows are appended (`like`).

    Raises UsageError for scales that require knowledge of all rows before the first is written.
    """
    if like:
        return Recipe.of(like)
    if scale not in (None, "none", "unit-norm"):
        what = f"--scale {scale} needs a pass over all rows first, but this kind of source is read only once"
        raise UsageError(
            what, hint=f"ingest without it, then fit with --scale {scale}; or use unit-norm, which needs no pass"
        )
    return Recipe(
        None if normalize is None else Normalizing.parse(normalize), Scaling(scale) if scale == "unit-norm" else None
    )


def changed_rows(source: RowSource, recipe: Recipe) -> RowSource:
    """The rows of a source with these steps applied; the store records them.  Errors name the row."""
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
