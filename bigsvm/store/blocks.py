"""Blocks of rows at addresses: the interface by which solvers read data of every format.

The blocks of a store tile its rows.  A block is read by its address, any number of times, by any thread.  There is no
cursor and no `next`: the reader decides the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from bigsvm.csr import CSR
from bigsvm.errors import DataError
from bigsvm.store.identity import Identity

Matrix = np.ndarray | CSR


@dataclass(frozen=True)
class BlockRef:
    """The address of a block: rows [start, stop) in working order."""

    start: int
    stop: int
    nbytes: int  # decoded bytes of X, y and weights; an estimate where row lengths are not known yet
    axis: Literal["rows", "cols"] = "rows"

    @property
    def n_rows(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class BlockGroup:
    """Small blocks from far apart that are read and worked on together, as if they were one block.

    The blocks of a group are drawn anew in every pass.  With a bias, coordinate descent is slow if rows are always
    visited together with the same few others.  Measured on 1.7 M sparse rows, hinge, 60 passes: blocks of 7,280
    neighbours end at a gap of 2.5e-3, groups of 64 random blocks of 256 rows at 1.9e-4, a full reshuffle at 1.4e-4.
    """

    refs: tuple[BlockRef, ...]

    @property
    def start(self) -> int:
        """First row of the first block: the group's part of a random order's key."""
        return self.refs[0].start

    @property
    def n_rows(self) -> int:
        return sum(ref.n_rows for ref in self.refs)


@dataclass(frozen=True)
class Block:
    """The data at an address; every array is read-only or treated so.

    start, stop : rows in working order
    X : float32, float64, int8 or uint8, dense C-contiguous (stop - start, n_features), or CSR
    y : shape (stop - start,); class codes (integers, positions in the store's `classes`) or float64 targets
    sample_weight : float64, shape (stop - start,), each >= 0; None stands for ones
    sqnorm : float64, shape (stop - start,), squared norms of the rows; None where nobody has computed them
    """

    start: int
    stop: int
    X: Matrix
    y: np.ndarray
    sample_weight: np.ndarray | None = None
    sqnorm: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        return self.stop - self.start

    @property
    def nbytes(self) -> int:
        """Decoded bytes of X, y and weights; a row pointer for each row, so that parts add up to the whole."""
        arrays = [self.y, *(self.X if isinstance(self.X, CSR) else (self.X,))]
        if self.sample_weight is not None:
            arrays.append(self.sample_weight)
        first = self.X.indptr.itemsize if isinstance(self.X, CSR) else 0
        return sum(array.nbytes for array in arrays) - first


class CompiledCall(NamedTuple):
    """A compiled loop that `RowBlocks.read` calls.

    kind : name of the loop and its types, so that a process calls it only once for each
    call : calls it with a few invented values of these types, to compile or load it
    """

    kind: tuple[str, ...]
    call: Callable[[], object]


@runtime_checkable
class RowBlocks(Protocol):
    """Rows of a data set, wherever they lie.

    Contract (`bigsvm.testing.RowBlocksContract`): `refs` tile range(n_samples) exactly once, in order, and
    none is empty; `read` is pure, repeatable and safe from several threads; values are finite; an instance
    pickles into something small that reads the same data in another process.
    """

    @property
    def uri(self) -> str:
        """Where the data lies, for messages."""

    @property
    def layout(self) -> Literal["csr", "dense"]: ...

    @property
    def n_samples(self) -> int: ...

    @property
    def n_features(self) -> int: ...

    @property
    def nnz(self) -> int | None:
        """Stored entries; for dense rows n_samples * n_features; None if they are only known after reading all rows."""

    @property
    def dtype(self) -> np.dtype:
        """float32, float64, int8 or uint8, of X as `read` gives it."""

    @property
    def index_dtype(self) -> np.dtype:
        """int32 or int64, of CSR indices as `read` gives them (int32 for dense)."""

    @property
    def has_weights(self) -> bool: ...

    @property
    def classes(self) -> np.ndarray | None:
        """Labels in ascending order, numbers or strings; None for a regression target."""

    @property
    def identity(self) -> Identity:
        """The store, and the selection of its rows.  Everything derived from the rows records it, and is checked."""

    @property
    def fingerprint(self) -> str:
        """A digest of the store's bytes, which changes when any value changes; the first part of the identity."""

    @property
    def content_fingerprint(self) -> str | None:
        """A digest of the content, the same in every layout and chunking; None until all rows have been read."""

    @property
    def row_order(self) -> np.ndarray | None:
        """Store row of each working row; None for the identity."""

    @property
    def working_row(self) -> np.ndarray | None:
        """Working row of each store row, the inverse of `row_order`; None for the identity."""

    @property
    def feature_order(self) -> np.ndarray | None:
        """Store feature of each working feature; None for the identity."""

    def refs(self, block_rows: int) -> Sequence[BlockRef]:
        """Addresses of blocks of `block_rows` rows (the last may be shorter)."""
        ...

    def read(self, ref: BlockRef) -> Block:
        """The data at an address.  Raises DataError naming the chunk or rows that are bad."""
        ...

    # What follows has defaults in `StoreBase`.

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings for the user."""

    @property
    def empty_chunks(self) -> Mapping[str, str]:
        """Array -> a message about its absent chunks, which are read as the fill value."""

    @property
    def content(self) -> Mapping[str, Any]:
        """Known statistics of the content, such as class counts and scales of columns; may be empty."""

    @property
    def recipe(self) -> Mapping[str, Any]:
        """How the rows were made from the stored data (scaling, encoding, ...), so that others can be made alike."""

    @property
    def feature_names(self) -> Sequence[str] | None:
        """Names of the features, in order; None if they have none."""

    @property
    def chunk_nbytes(self) -> int:
        """Decoded bytes of the chunks that a reader holds in addition to a block; 0 if it holds none."""

    @property
    def stored_bytes(self) -> int | None:
        """Bytes on disk; None if not known."""

    @property
    def compiled_calls(self) -> Sequence[CompiledCall]:
        """The compiled loops that `read` calls.  Callers compile them before memory is counted."""

    def refuse_known(self) -> None:
        """Raise DataError for a bad row that is known already, before anything is compiled in order to read rows."""
        ...

    @property
    def raw(self) -> bool:
        """Blocks are stored as `read` returns them, so that many small blocks cost no more than a large one."""

    def will_need(self, ref: BlockRef) -> None:
        """Announce that the block will be read soon."""
        ...

    def release(self, ref: BlockRef) -> None:
        """Allow the block to leave the page cache."""
        ...

    def as_now(self) -> RowBlocks:
        """These rows; or, if the caller's arrays have changed since, rows with a new identity."""
        ...

    def forget(self) -> None:
        """Release what is kept for further reads, because there will be none."""
        ...


class StoreBase:
    """Defaults for the members of `RowBlocks` that have one; stores derive from this class."""

    warnings: Sequence[str] = ()
    empty_chunks: Mapping[str, str] = MappingProxyType({})
    recipe: Mapping[str, Any] = MappingProxyType({})
    feature_names: Sequence[str] | None = None
    row_order: np.ndarray | None = None
    working_row: np.ndarray | None = None
    feature_order: np.ndarray | None = None
    recorded_split: float | None = None
    """The share of rows to train on that the store records (`bigsvm ingest --split`)."""
    label_column: str = ""
    """The name of the column that the labels come from; empty if it is not known."""
    weight_column: str = ""
    """The name of the column that the weights come from; empty if there are none, or it is not known."""
    came_as: str = ""
    """Type of the values as they are stored, where they may be read as another one: messages name it."""
    given: Any = None
    """The `GivenArrays`, if the rows are in arrays of the caller."""

    @property
    def compiled_calls(self) -> Sequence[CompiledCall]:
        return ()

    @property
    def content(self) -> Mapping[str, Any]:
        return {}

    @property
    def chunk_nbytes(self) -> int:
        return 0

    @property
    def stored_bytes(self) -> int | None:
        return None

    @property
    def raw(self) -> bool:
        return False

    def refuse_known(self) -> None: ...
    def will_need(self, ref: BlockRef) -> None: ...
    def release(self, ref: BlockRef) -> None: ...
    def forget(self) -> None: ...

    def as_now(self) -> Any:
        """These rows; or, if the caller's arrays have changed since, rows with a new identity."""
        return self.given.opened_again() if self.given is not None and self.given.changed() else self

    def __copy__(self) -> Self:
        """Another object with the same attributes.

        Without this method `copy.copy` would use `__reduce__`, which returns the object that this process has opened
        already: a change of the copy would change it for all its users.
        """
        found = object.__new__(type(self))
        vars(found).update(vars(self))
        return found


def blocks_of(data: RowBlocks, refs: Sequence[BlockRef]) -> Iterator[Block]:
    """Read blocks one after another.

    All blocks are announced first, and each is released when the next one is wanted.  Otherwise, in a cgroup that is
    full, each page fault would wait for the disk: four passes over 2M x 100 rows with 332 MiB took 10.9 s instead of
    4.5 s of task time.
    """
    for ref in refs:
        data.will_need(ref)
    for ref in refs:
        yield data.read(ref)
        data.release(ref)


def bounds(ref: BlockRef, n_samples: int, uri: str) -> tuple[int, int]:
    """(start, stop) of an address.  Raises DataError if a store of so many rows has no such rows."""
    if not 0 <= ref.start < ref.stop <= n_samples:
        raise DataError(f"no rows {ref.start} to {ref.stop} of {n_samples}", uri)
    return ref.start, ref.stop


def tile(n_samples: int, block_rows: int) -> Iterator[tuple[int, int]]:
    """Half-open row ranges covering range(n_samples) exactly once, in order."""
    for start in range(0, n_samples, block_rows):
        yield start, min(start + block_rows, n_samples)


class Counts(Protocol):
    """The sizes of a data set: those of a store, or of the `DataShape` in a plan."""

    @property
    def n_samples(self) -> int: ...

    @property
    def n_features(self) -> int: ...

    @property
    def nnz(self) -> int | None: ...


def entries(rows: Counts) -> int:
    """Stored entries; if they are not known, at most 128 for each row are assumed."""
    return rows.n_samples * min(rows.n_features, 128) if rows.nnz is None else rows.nnz


def bytes_per_row(rows: Counts, each: float, beside: float = 0.0) -> float:
    """Bytes of a row of mean length, with `each` bytes for every entry and `beside` bytes for the row."""
    return each * entries(rows) / max(rows.n_samples, 1) + beside


def row_bytes(store: RowBlocks) -> float:
    """Mean decoded bytes of a row of X, y and weight, with which block sizes are planned.

    It depends only on counts and dtypes, not on encoded bytes, so that plans do not depend on codecs.  A label counts
    as 8 bytes, and so does a weight.
    """
    fixed = 8 + 8 * store.has_weights
    if store.layout == "dense":
        return store.n_features * store.dtype.itemsize + fixed
    per_entry = store.dtype.itemsize + store.index_dtype.itemsize
    return entries(store) / max(store.n_samples, 1) * per_entry + 8 + fixed


def readonly_view(X: Matrix) -> Matrix:
    """X for compiled loops: read-only views in C order, with an int64 indptr.

    Read-only maps and arrays of the caller then have the same numba type, so that loops are compiled once for each
    dtype, and no loop can write to the data.
    """
    if isinstance(X, CSR):
        indptr = X.indptr if X.indptr.dtype == np.int64 else X.indptr.astype(np.int64)
        return CSR(frozen(X.data), frozen(X.indices), frozen(indptr))
    return frozen(X)


def frozen(array: np.ndarray) -> np.ndarray:
    """A read-only view in C order."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
