"""One pass over all rows for primal solvers: slacks, products with a direction, gradient and Hessian.

Each task has a run of consecutive blocks.  The sums of tasks are added in the order of the rows, so the result does not
depend on the threads or workers that ran them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np

from bigsvm.compiled.linear.hessian import add_hessian
from bigsvm.compiled.linear.hessian_diagonal import add_hessian_diagonal
from bigsvm.compiled.linear.hyperpass import add_binned, row_keys
from bigsvm.compiled.linear.primal import add_rows, signed_margins
from bigsvm.compiled.shared.rows import sqnorms
from bigsvm.problem.problem import Problem
from bigsvm.solvers.gathered import Gathered, picked_rows
from bigsvm.solvers.primal.row_state import RowState
from bigsvm.store.blocks import BlockRef, Matrix, RowBlocks, blocks_of, readonly_view, row_bytes
from bigsvm.store.join import parts_for
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import BLOCKS_PER_TASK, Account, Mapper, over_shares, runs_of

_RESIDENT_BLOCK = 1 << 20  # bytes of a block, if the rows are in memory
_RESIDENT_TASKS = 16  # tasks of a pass, if the rows are in memory


Curvature = Literal["none", "matrix", "change", "arrowhead", "product", "arrowhead and product"]
"""The part of the Hessian of the losses, sum_i h_i x_i x_i' with the curvature h_i of row i, that a pass sums up.

'none'; 'matrix': all of it; 'change': what has to be added to it since `RowState.inside` was set, for losses whose
curvature is 0 or that of their quadratic part; 'arrowhead': its diagonal and its last column, which belongs to the
bias; 'product': its product with the direction d; 'arrowhead and product': both, one after the other."""


class Weights(Protocol):
    """Value, alpha and curvature of a loss, from slacks and costs.  Implementations are pure and can be pickled."""

    def value(self, s: np.ndarray) -> np.ndarray: ...
    def alpha(self, s: np.ndarray, C: np.ndarray) -> np.ndarray: ...
    def curvature(self, s: np.ndarray, C: np.ndarray) -> np.ndarray: ...


class Bins(NamedTuple):
    """Bins of step lengths, into which rows are sorted by where they cross their hyperplane.

    edges : float64, (n_models, n_bins - 1)
    reach : float64, (n_models,)   rows that cross before this length are left out
    """

    edges: np.ndarray
    reach: np.ndarray

    def whole(self, m: int, length: float) -> int:
        """The number of bins that end at or before `length`."""
        return int(np.searchsorted(self.edges[m], length, side="right"))


@dataclass
class BinnedSums:
    """Bins, with the sums over their rows: float64, (n_models, n_bins, n_features + 1)."""

    bins: Bins
    sums: np.ndarray


class PassShare(NamedTuple):
    """The input of a task: a run of blocks, and what to compute.

    Arrays with an entry for each row belong to the rows of the run.  Tasks in this process write into them; tasks
    elsewhere get None.

    w, d : compute slacks at w, and products with d;  s, p : outputs of these
    cost, y : outputs of costs, and of class codes or targets
    weights : sum alpha_i y_i x_i at the slacks (those in `s` if w is None)
    curvature : part of the Hessian to sum up; with 'product' V is the product, not the sum of alpha_i y_i x_i
    shape : shape of w
    inside : uint8   1 for rows whose curvature was not 0, for the curvature 'change'
    wanted : int64   rows of the run, ascending, that are to be returned
    keys : uint64, (n_rows, 1)    output of hashes of the rows;  with_keys : compute them
    norms : float64, (n_rows, 1)  output of squared norms of the rows;  with_norms : compute them
    bins : sum rows by where they cross their hyperplane
    """

    data: RowBlocks
    refs: tuple[BlockRef, ...]
    problem: Problem
    w: np.ndarray | None
    d: np.ndarray | None
    s: np.ndarray | None
    p: np.ndarray | None
    cost: np.ndarray | None
    y: np.ndarray | None
    weights: Weights | None
    curvature: Curvature
    shape: tuple[int, ...]
    inside: np.ndarray | None = None
    wanted: np.ndarray | None = None
    keys: np.ndarray | None = None
    with_keys: bool = False
    norms: np.ndarray | None = None
    with_norms: bool = False
    bins: Bins | None = None


class PassSums(NamedTuple):
    """The result of a task.

    V : float64, shape of w   sum_i alpha_i y_i [x_i, bias], or the product of the Hessian with d
    H : by `curvature`.  'matrix': float64, (n_models, n_features + 1, n_features + 1), upper triangles; 'change': the
        same, or None if no row has changed.  'arrowhead': float64, (2, *shape of w), diagonals, and last columns over
        the constant feature (0 without one).  'arrowhead and product': (3, *shape of w), with the product as a third
        array.  Otherwise None
    rows : (s, p, cost, y) of the rows, for a caller in another process
    gathered : the rows of `wanted`, block by block
    keys, norms, S : None unless asked for
    """

    V: np.ndarray
    H: np.ndarray | None
    rows: tuple[np.ndarray | None, ...]
    bytes_read: int
    gathered: tuple[Matrix, ...] = ()
    keys: np.ndarray | None = None
    norms: np.ndarray | None = None
    S: np.ndarray | None = None


def pass_task(share: PassShare) -> PassSums:
    """Task: the sums of a run of blocks.  Pure, but for writing its rows into the arrays that it was given."""
    problem, m = share.problem, share.problem.n_models
    bias, width = problem.constant_feature, share.shape[0]
    product = share.curvature == "product"
    n = share.refs[-1].stop - share.refs[0].start

    def rows_of(given: np.ndarray | None, wanted: bool, columns: int, dtype: type) -> np.ndarray | None:
        if given is not None and (given.flags.writeable or not wanted):
            return given
        return np.empty((n, columns), dtype) if wanted else None

    s, p = rows_of(share.s, share.w is not None, m, np.float64), rows_of(share.p, share.d is not None, m, np.float64)
    cost = rows_of(share.cost, True, 1, np.float64)
    y = rows_of(share.y, True, 1, np.float64 if problem.regression else np.int32)
    assert cost is not None
    assert y is not None
    V = np.zeros(share.shape)
    H = _zero_hessian(share.curvature, problem, share.shape)
    first = bytes_read = 0
    gathered: list[Matrix] = []
    S = None if share.bins is None else np.zeros((m, share.bins.edges.shape[1] + 1, width))
    keys = rows_of(share.keys, share.with_keys, 1, np.uint64)
    norms = rows_of(share.norms, share.with_norms, 1, np.float64)
    for block in parts_for(blocks_of(share.data, share.refs), m):
        X, (block_y, block_cost) = readonly_view(block.X), problem.y_and_cost(block)
        rows = slice(first, first + block.n_rows)
        cost[rows, 0], y[rows, 0] = block_cost, block_y
        if share.w is not None:
            assert s is not None
            signed_margins(X, block_y, problem.sides, share.w, bias, 1.0, -1.0, s[rows])
        if share.d is not None:
            assert p is not None
            signed_margins(X, block_y, problem.sides, share.d, bias, 0.0, 1.0, p[rows])
        if share.bins is not None and S is not None:
            assert s is not None
            assert p is not None
            edges, reach = share.bins
            add_binned(
                X, block_y, problem.sides, block_cost, problem.C, s[rows], p[rows], bias, edges, reach, S
            )  # fmt: skip
        if share.weights is not None:
            assert s is not None
            C = block_cost[:, None] * problem.C
            if not product:
                add_rows(X, block_y, problem.sides, share.weights.alpha(s[rows], C), bias, V)
            if share.curvature != "none":
                h = share.weights.curvature(s[rows], C)
                if share.inside is not None:
                    h -= (C / problem.loss.diag_factor) * share.inside[rows]
                    if H is None and h.any():
                        H = _zero_hessian("matrix", problem, share.shape)
                _add_curvature(share.curvature, X, block_y, problem, h, p, rows, V, H)
        if keys is not None:
            row_keys(X, keys[rows, 0])
        if norms is not None:
            sqnorms(X, norms[rows, 0])
        if share.wanted is not None:
            a, b = np.searchsorted(share.wanted, [first, first + block.n_rows])
            if b > a:
                gathered.append(picked_rows(X, share.wanted[a:b] - first))
        first += block.n_rows
        bytes_read += block.nbytes
    return PassSums(V, H, (s, p, cost, y), bytes_read, tuple(gathered), keys, norms, S)


def _zero_hessian(curvature: Curvature, problem: Problem, shape: tuple[int, ...]) -> np.ndarray | None:
    """Zeros for the sums of `PassSums.H`, or None."""
    if curvature == "matrix":
        return np.zeros((problem.n_models, shape[0], shape[0]))
    if curvature in ("arrowhead", "arrowhead and product"):
        return np.zeros((2 + (curvature == "arrowhead and product"), *shape))
    return None


def _add_curvature(
    curvature: Curvature, X: Matrix, y: np.ndarray, problem: Problem, h: np.ndarray, p: np.ndarray | None, rows: slice,
    V: np.ndarray, H: np.ndarray | None,
) -> None:  # fmt: skip
    """Add the part of some rows, with curvature h, (n_rows, n_models), to H; a product without arrowhead to V."""
    bias = problem.constant_feature
    if curvature in ("product", "arrowhead and product"):
        assert p is not None
        add_rows(X, y, problem.sides, h * p[rows], bias, V if H is None else H[-1])
    if H is None:
        return
    if curvature in ("matrix", "change"):
        for k in range(problem.n_models):
            add_hessian(X, np.ascontiguousarray(h[:, k]), bias, H[k])
        return
    add_hessian_diagonal(X, h, bias, H[0])
    if bias != 0.0:
        add_rows(X, y, problem.sides, h * problem.signs(y), bias, H[1])  # the signs cancel those of add_rows


def _of_centred(problem: Problem, curvature: Curvature, H: np.ndarray) -> np.ndarray:
    """H for centred rows, from H for stored rows; H itself if rows do not count as centred."""
    centre = problem.centre
    if centre is None:
        return H
    if curvature in ("matrix", "change"):
        return centre.hessian(H)
    return np.stack([*centre.arrowhead(H[0], H[1]), *(centre.summed(product) for product in H[2:])])


class Reads(Account, Protocol):
    """What a pass needs of its caller: a `Context`, or the part that a shard has (`solvers/shard_reading.py`)."""

    @property
    def data(self) -> RowBlocks: ...
    @property
    def proof_refs(self) -> Sequence[BlockRef]: ...
    @property
    def resident(self) -> bool: ...
    @property
    def mapper(self) -> Mapper: ...
    @property
    def pass_workers(self) -> int: ...


def pass_refs(ctx: Reads) -> Sequence[BlockRef]:
    """Blocks in the order of the store: those of proofs, or small ones if the rows are in memory."""
    if not ctx.resident:
        return ctx.proof_refs
    return ctx.data.refs(max(int(_RESIDENT_BLOCK // row_bytes(ctx.data)), 1))


def pass_runs(ctx: Reads) -> Iterator[tuple[BlockRef, ...]]:
    """The runs of blocks of a pass, one for each task, in the order of the store."""
    refs = pass_refs(ctx)
    return runs_of(refs, -(-len(refs) // _RESIDENT_TASKS) if ctx.resident else BLOCKS_PER_TASK)


def put_back(run: Sequence[BlockRef], vectors: Sequence[RowVector | None], found: Sequence[np.ndarray | None]) -> None:
    """Write the arrays that a task in another process returned into the vectors; a pair with None is left out."""
    for vector, values in zip(vectors, found, strict=True):
        if vector is not None and values is not None:
            vector.between(run[0].start, run[-1].stop)[:] = values


def row_pass(
    ctx: Reads,
    problem: Problem,
    rows: RowState,
    shape: tuple[int, ...],
    w: np.ndarray | None = None,
    d: np.ndarray | None = None,
    weights: Weights | None = None,
    curvature: Curvature = "none",
    gather: Gathered | None = None,
    keys: RowVector | None = None,
    norms: RowVector | None = None,
    bins: BinnedSums | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Read all rows once: write slacks at w and products with d into `rows`, and return V and H (`PassSums`).

    If rows count as centred, all sums are over centred rows; gathered rows, keys and norms are those of stored rows.

    Parameters
    ----------
    rows : RowState   s, p, cost and y are written
    shape : shape of w
    w, d : float64, `shape`   compute slacks at w, products with d; None: do not
    weights : sum alpha_i y_i x_i at the slacks; None: V is 0
    curvature : part of the Hessian to sum up; the result of 'product' is V
    gather : receives the rows that it names
    keys, norms : receive hashes, and squared norms, of the rows
    bins : rows are summed by where they cross along d, and added to `bins.sums`

    Raises
    ------
    PassLeft : the run is to stop.  What was computed for single rows has been written; sums are lost.
    """
    in_process = ctx.mapper.in_process
    met_w, met_d = (None if a is None else problem.met(a) for a in (w, d))
    needs_s = w is not None or weights is not None or bins is not None
    V = np.zeros(shape)
    H = _zero_hessian("matrix" if curvature == "change" else curvature, problem, shape)
    inside = rows.inside if curvature == "change" else None

    def share(run: tuple[BlockRef, ...]) -> PassShare:
        start, stop = run[0].start, run[-1].stop
        return PassShare(
            ctx.data, run, problem, met_w, met_d,
            rows.s.between(start, stop) if needs_s and (in_process or w is None) else None,
            rows.p.between(start, stop) if d is not None and in_process else None,
            rows.cost.between(start, stop) if in_process else None,
            rows.y.between(start, stop) if in_process else None,
            weights, curvature, shape,
            None if inside is None else inside.between(start, stop),
            None if gather is None else gather.between(start, stop),
            keys.between(start, stop) if keys is not None and in_process else None, keys is not None,
            norms.between(start, stop) if norms is not None and in_process else None, norms is not None,
            None if bins is None else bins.bins,
        )  # fmt: skip

    of_rows = (None if w is None else rows.s, None if d is None else rows.p, rows.cost, rows.y, keys, norms)
    for run, sums in over_shares(
        ctx.mapper, pass_task, pass_runs(ctx), share, ctx.pass_workers, account=ctx, may_leave=True
    ):
        V += sums.V
        if H is not None and sums.H is not None:
            H += sums.H
        if gather is not None:
            gather.add(sums.gathered)
        if bins is not None and sums.S is not None:
            bins.sums += sums.S
        if not in_process:
            put_back(run, of_rows, (*sums.rows, sums.keys, sums.norms))
    if H is not None:
        H = _of_centred(problem, curvature, H)
    if problem.centre is not None and bins is not None:
        problem.centre.sums(bins.sums)
    return problem.summed(V), H
