"""What a solver may know of data: blocks of rows at addresses, the same in every format.

A store tiles its rows; a block is read by its address, any number of times, by any thread.  There is no
cursor and no `next`: the order of reading belongs to whoever reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from bigsvm.csr import CSR
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

    Which blocks meet is drawn anew in every pass.  With a bias, rows that always meet the same few others
    hold coordinate descent up: measured on 1.7 M sparse rows, hinge, 60 passes, blocks of 7,280 neighbours
    end at a gap of 2.5e-3, groups of 64 random blocks of 256 rows at 1.9e-4, a full reshuffle at 1.4e-4.
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
    """A compiled loop that `read` of a store calls.

    kind : the loop and its types, by which a process knows that it has called it
    call : calls it with a few made-up values of these types
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
        """Stored entries; None where only reading everything would tell.  Dense: n_samples * n_features."""

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
        """Whose rows these are, and what was selected: what everything that is derived from them is held against."""

    @property
    def fingerprint(self) -> str:
        """Of the store's bytes: changes when any value changes.  The first part of the identity."""

    @property
    def content_fingerprint(self) -> str | None:
        """Of the content, the same in every layout and chunking; None until somebody has read everything."""

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
        """What the user should know of the store."""

    @property
    def empty_chunks(self) -> Mapping[str, str]:
        """Array -> what is said of its chunks that are not there and are read as the fill value."""

    @property
    def content(self) -> Mapping[str, Any]:
        """What somebody has already found out of the content: counts, scales of columns; may be empty."""

    @property
    def recipe(self) -> Mapping[str, Any]:
        """How rows are made of what lies there, for the model to keep: other rows are then made alike; may be empty."""

    @property
    def feature_names(self) -> Sequence[str] | None:
        """Names of the features, in order; None where they have none."""

    @property
    def chunk_nbytes(self) -> int:
        """Decoded bytes of the chunks that one reader holds besides a block; 0 where it holds none."""

    @property
    def stored_bytes(self) -> int | None:
        """Bytes on disk; None where nobody has counted."""

    @property
    def compiled_calls(self) -> Sequence[CompiledCall]:
        """The compiled loops that `read` calls: whoever reads has them compiled before memory is counted."""

    @property
    def raw(self) -> bool:
        """Blocks lie on disk as `read` gives them, so that many small ones cost no more than a large one."""

    def will_need(self, ref: BlockRef) -> None:
        """The data at an address is read soon."""
        ...

    def release(self, ref: BlockRef) -> None:
        """The data at an address may leave the page cache."""
        ...

    def as_now(self) -> RowBlocks:
        """These rows, or others with another identity where the arrays that they lie in have changed meanwhile."""
        ...

    def forget(self) -> None:
        """All that is to be read has been read: let go of what is kept for the next read."""
        ...


class StoreBase:
    """The members of `RowBlocks` that have a default: a store derives from this, and says what is different."""

    warnings: Sequence[str] = ()
    empty_chunks: Mapping[str, str] = MappingProxyType({})
    recipe: Mapping[str, Any] = MappingProxyType({})
    feature_names: Sequence[str] | None = None
    recorded_split: float | None = None
    """The share of its rows that a store says fits shall train on (`bigsvm ingest --split`)."""
    came_as: str = ""
    """Type of the values as they lie, where they may be read as another one: messages name it."""
    given: Any = None
    """The `GivenArrays` of rows that lie in arrays of a caller."""

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

    def will_need(self, ref: BlockRef) -> None: ...
    def release(self, ref: BlockRef) -> None: ...
    def forget(self) -> None: ...

    def as_now(self) -> Any:
        """These rows, or others with another identity where the arrays that they lie in have changed meanwhile."""
        return self.given.opened_again() if self.given is not None and self.given.changed() else self

    def __copy__(self) -> Self:
        """Another object with the same attributes.

        `copy.copy` would go by `__reduce__`, which gives the one that this process has opened: what is changed in such
        a copy is changed for everybody.
        """
        found = object.__new__(type(self))
        vars(found).update(vars(self))
        return found


def blocks_of(data: RowBlocks, refs: Sequence[BlockRef]) -> Iterator[Block]:
    """Blocks one after another; a copy's pages are asked for together, and let go when the next block is wanted.

    Where each page fault waits for the disk, in a cgroup that is full, a pass takes twice as long (2M x 100 rows, 332
    MiB: 10.9 s of tasks in four passes, 4.5 so).
    """
    for ref in refs:
        data.will_need(ref)
    for ref in refs:
        yield data.read(ref)
        data.release(ref)


def tile(n_samples: int, block_rows: int) -> Iterator[tuple[int, int]]:
    """Half-open row ranges covering range(n_samples) exactly once, in order."""
    for start in range(0, n_samples, block_rows):
        yield start, min(start + block_rows, n_samples)


class Counts(Protocol):
    """Rows of which it is known how many there are: a store, or what a plan knows of one."""

    @property
    def n_samples(self) -> int: ...

    @property
    def n_features(self) -> int: ...

    @property
    def nnz(self) -> int | None: ...


def entries(rows: Counts) -> int:
    """Stored entries; where only reading everything would tell, up to 128 a row are assumed."""
    return rows.n_samples * min(rows.n_features, 128) if rows.nnz is None else rows.nnz


def bytes_per_row(rows: Counts, each: float, beside: float = 0.0) -> float:
    """Bytes that a row of mean length takes somewhere: `each` for every entry, and `beside` whatever its length."""
    return each * entries(rows) / max(rows.n_samples, 1) + beside


def row_bytes(store: RowBlocks) -> float:
    """Mean decoded bytes of a row of X, y and weight: what a block's size is planned with.

    A function of logical metadata only (counts and dtypes, never encoded bytes), so that plans do not
    depend on codecs.  A label counts 8 bytes and so does a weight.
    """
    fixed = 8 + 8 * store.has_weights
    if store.layout == "dense":
        return store.n_features * store.dtype.itemsize + fixed
    per_entry = store.dtype.itemsize + store.index_dtype.itemsize
    return entries(store) / max(store.n_samples, 1) * per_entry + 8 + fixed


def readonly_view(X: Matrix) -> Matrix:
    """X as compiled kernels take it: read-only views, C order, int64 indptr.

    One numba type for each dtype, whether the arrays are a read-only map or belong to the caller: kernels
    are compiled once, and no kernel can write to the data.
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
