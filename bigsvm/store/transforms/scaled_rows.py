"""The rows of a store, scaled as they are read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from bigsvm.errors import UsageError
from bigsvm.files.sealed_json import read_sealed
from bigsvm.store.blocks import Matrix, RowBlocks, row_bytes
from bigsvm.store.identity import digest_of
from bigsvm.store.precompile_reading import precompile_reading
from bigsvm.store.remembered import places, recall, remember
from bigsvm.store.transforms.moments import Moments, column_moments, dense_rows
from bigsvm.store.transforms.scaling import MOST_COLUMNS, Scale, Scaling, add_largest
from bigsvm.store.transforms.transformed_rows import TransformedRows, changed_otherwise
from bigsvm.units import MIB

_BLOCK = 2 * MIB


class ScaledRows(TransformedRows):
    """RowBlocks over a store with scaled values; the scales are part of the identity."""

    def __init__(self, store: RowBlocks, scaling: Scaling) -> None:
        document = scaling.document()
        said = f"{scaling.kind} {digest_of(document)}" if scaling.largest is not None else scaling.kind
        super().__init__(store, scaling.dtype(store.dtype), {"scale": said}, {"scale": document})
        self._scaling = scaling

    def __reduce__(self) -> tuple[Callable[..., ScaledRows], tuple[Any, ...]]:
        if self._scaling.largest is None or self._store.uri == "memory":
            return ScaledRows, (self._store, self._scaling)
        # Many numbers are passed by the name of their file, because a worker may have another cache folder.
        return _reopen, (self._store, _file_of(self._scaling.document()))

    def __repr__(self) -> str:
        return f"ScaledRows({self._store!r}, {self._scaling.kind})"

    @property
    def chunk_nbytes(self) -> int:
        """Bytes as of the store, and those of the scales."""
        columns = 0 if self._scaling.largest is None else self._scaling.largest.nbytes
        # The recipe holds them once more as a list of Python numbers, 32 bytes each.
        return self._store.chunk_nbytes + columns * (2 + 4 if self._scaling.mean is None else 3 + 8)

    def over(self, store: RowBlocks) -> ScaledRows:
        return ScaledRows(store, self._scaling)

    def change(self, X: Matrix, first_row: int) -> Matrix:
        return self._scaling.apply(X)


def scaled(store: RowBlocks, scale: Scale | None, like: Mapping[str, Any] | None) -> RowBlocks:
    """The store with the scaling that was asked for, or with that of a model's rows (`like`).

    A store whose rows `ingest` has scaled is returned unchanged.

    Raises
    ------
    UsageError : the rows are scaled already, and another scaling is asked for; or there are too many columns.
    DataError : the rows are scaled in another way than a model's rows.
    """
    there, wanted = Scaling.of(store.recipe), Scaling.of(like or {})
    if wanted is not None:
        if there is not None and there.document() != wanted.document():
            raise changed_otherwise("the rows are scaled in another way than those of the model", store.uri)
        return store if there is not None else cast(RowBlocks, ScaledRows(store, wanted))
    if like is not None or scale in (None, "none"):
        return store
    if there is not None:
        raise UsageError(f"the rows are scaled already, by {there.kind}", store.uri, "leave out --scale")
    if scale == "unit-norm":
        return cast(RowBlocks, ScaledRows(store, Scaling(scale)))
    most = MOST_COLUMNS[str(scale)]
    if store.n_features > most:
        what = f"--scale {scale} keeps numbers for each column, of at most {most}, but there are {store.n_features}"
        raise UsageError(what, store.uri, "use --scale unit-norm, which keeps none")
    if scale == "standard":
        (mean, std), centred = _known(store, ("mean", "std"), _standard), store.layout == "dense"
        return cast(RowBlocks, ScaledRows(store, Scaling("standard", std, mean, centred)))
    (largest,) = _known(store, ("largest",), _largest)
    return cast(RowBlocks, ScaledRows(store, Scaling("maxabs", largest)))


def _known(
    store: RowBlocks, names: tuple[str, ...], find: Callable[[RowBlocks], Sequence[np.ndarray]]
) -> Sequence[np.ndarray]:
    """Arrays (n_features,), by name: found in one pass, and cached while the rows stay the same."""
    name = f"{'-'.join(names) if names != ('largest',) else 'scales'}-of-{store.identity.digest}.json"

    def arrays(document: Any) -> list[np.ndarray] | None:
        kept = [np.array(document[each], np.float64) for each in names]
        return kept if all(each.shape == (store.n_features,) for each in kept) else None

    kept = recall(name, arrays)
    if kept is not None:
        return kept
    precompile_reading(store)
    found = find(store)
    store.forget()
    if store.uri != "memory":
        remember(name, {each: array.tolist() for each, array in zip(names, found, strict=True)})
    return found


def _largest(store: RowBlocks) -> tuple[np.ndarray]:
    """The largest |value| of each column; 1 for a column of zeros."""
    largest = np.zeros(store.n_features)
    for ref in store.refs(_rows_together(store)):
        add_largest(store.read(ref).X, largest)
    largest[largest == 0] = 1.0
    return (largest,)


def _standard(store: RowBlocks) -> Moments:
    """Means and standard deviations of the columns."""
    rows = dense_rows(store.n_features) if store.layout == "dense" else _rows_together(store)
    return column_moments((store.read(ref).X for ref in store.refs(rows)), store.n_features, store.uri)


def _rows_together(store: RowBlocks) -> int:
    return max(1, min(65536, int(_BLOCK / max(row_bytes(store), 1))))


def _file_of(document: dict[str, Any]) -> str:
    """The path of a file in the cache that holds the numbers of a scaling; it is written if it is missing."""
    name = f"scales-{digest_of(document)}.json"
    path = next((path for path in places(name) if path.exists()), None) or remember(name, document)
    return str(path.absolute())


@functools.lru_cache(maxsize=8)
def _scaling(path: str) -> Scaling:
    found = Scaling.of({"scale": read_sealed(Path(path))})
    assert found is not None
    return found


def _reopen(store: RowBlocks, path: str) -> ScaledRows:
    """Rebuild a pickled ScaledRows."""
    return ScaledRows(store, _scaling(path))
