"""Certificates of solvers with weights w: in a separate pass, or deferred to the next training pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bigsvm.errors import DataError
from bigsvm.machine import trim_heap
from bigsvm.model.linear_model import LinearModel
from bigsvm.problem.certificate import (
    NOTHING,
    Accumulator,
    Certificate,
    Proof,
    RowsShare,
    certify_blocks,
    joined,
    keep_best,
    of_written,
    part_of,
)
from bigsvm.problem.deferred import DEFERRED_ALPHA, DeferredCertificate
from bigsvm.problem.problem import Problem
from bigsvm.run.proof.prover import ProofLeft, Prover
from bigsvm.solvers.base import Point, Solver
from bigsvm.solvers.block_order import groups_in_order
from bigsvm.solvers.context import Context
from bigsvm.store.blocks import Block, BlockGroup, BlockRef, RowBlocks, blocks_of
from bigsvm.store.read_ahead import ReadAhead
from bigsvm.store.state.state_files import dump
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import BLOCKS_PER_TASK, PassLeft, over_shares, runs_of, side_by_side

Prepare = Callable[[Block, BlockRef | BlockGroup], None]
"""Changes the alpha of the rows of a block before they are used."""


class LinearProver(Prover):
    """Keeps the best certificate, its weights, and the alpha of the last proof.

    w, scale : one array for each group of models, and a factor for each model: the primal points of `certificate`
    """

    def __init__(self, solver: Solver, state: Any, ctx: Context) -> None:
        super().__init__(solver, state, ctx)
        self.w: list[np.ndarray] = []
        self.scale = np.ones(0)
        self._written: Certificate | None = None
        self._former: list[RowVector] = []
        self._prepare: Prepare | None = None

    @property
    def written(self) -> Certificate | None:
        """The certificate of `w` and `alpha`: the best primal points with the dual points of the last proof."""
        return self._written

    def prove_start(self, prepare: Prepare) -> Certificate:
        """As `prove`, for a point whose alpha `prepare` first clips to its bounds, block by block."""
        self._prepare = prepare
        try:
            return self.prove()
        finally:
            self._prepare = None

    def _prove(self) -> Certificate:
        points = self._solver.last_points(self._state) if self.at_limit else self._solver.points(self._state)
        streams = not self._ctx.resident and self._ctx.shards == 1
        try:
            proofs = self._stream(points) if streams else self._in_tasks(points)
            self.alpha = [point.alpha for point in points if point.alpha is not None]
            best = self._take(proofs, [point.w for point in points])
            if self.at_limit and self._ctx.resident and self._as_nothing():
                best = self._from_nothing(points, best)
            return best
        except PassLeft as left:
            raise ProofLeft from left

    def _as_nothing(self) -> bool:
        """Whether the weights of a model are as good as w = 0: it is 0, or P rises along it from there."""
        moved = np.concatenate([np.atleast_1d(w.any(axis=0)) for w in self.w])
        return bool(np.any((self.scale < NOTHING) | ~moved))

    def _from_nothing(self, points: Sequence[Point], best: Certificate) -> Certificate:
        """The best certificate (so far `best`) once multiples of the steepest descent from w = 0 are tried, too.

        Steps of `pegasos` lead uphill at first, and a solver may not have reached the last of many models.  The rows
        are read twice, so this is for rows in memory only.
        """
        for_descent = [point._replace(w=np.zeros(point.w.shape), alpha=None) for point in points]
        downhill = [point._replace(w=self._tasks(start).v) for point, start in zip(points, for_descent, strict=True)]
        proofs = self._in_tasks(downhill)
        if not all(np.isfinite(proof.certificate.primal).all() for proof in proofs):  # squares overflow
            return best
        return self._keep_better(proofs, [point.w for point in downhill])

    def schedule(self) -> None:
        """Defer the certificate of the current point to the next step."""
        with self._timed():
            points = self._solver.points(self._state)
            unheld = [point for point in points if point.kept is None]
            if [_width(former.values) for former in self._former] != [_width(point.w) for point in unheld]:
                for former in self._former:
                    former.close()
                self._former = [self._copy_of(point) for point in unheld]
            unkept = iter(self._former)
            deferred = []
            for point in points:
                if point.kept is None:
                    assert point.alpha is not None
                    w, alpha = point.w.copy(), next(unkept)
                    alpha.values[:] = point.alpha.values
                else:
                    w, alpha = point.kept
                deferred.append(DeferredCertificate(point.problem, w, alpha, point.rescaled))
            self._ctx.deferred[:] = deferred

    def collect(self) -> Certificate:
        """The deferred certificate, of the point before the step."""
        with self._timed():
            deferred = list(self._ctx.deferred)
            self._ctx.deferred.clear()
            self.alpha = [proof.alpha for proof in deferred]
            return self._take([proof.finish() for proof in deferred], [proof.w for proof in deferred])

    def model(self, problem: Problem, data: RowBlocks, about: dict[str, Any]) -> LinearModel:
        """The model of the best weights that were proved."""
        self._solver.finish(self._state)
        return linear_model(problem, self.w, self.scale, data, about)

    def _dump(self) -> dict[str, Any]:
        deferred = [proof.dump() for proof in self._ctx.deferred]
        former = [vector.values for vector in self._former] if deferred else []
        written = None if self._written is None else dump(self._written)
        return {"w": self.w, "scale": self.scale, "written": written, "deferred": deferred, "former": former}

    def _load(self, tree: dict[str, Any]) -> None:
        self.w, self.scale = [np.array(w) for w in tree["w"]], np.array(tree["scale"])
        self._written = Certificate.of(tree["written"]) if tree.get("written") else None
        if tree["deferred"]:
            self.schedule()
            for vector, values in zip(self._former, tree["former"], strict=True):
                vector.values[:] = values
            for proof, saved in zip(self._ctx.deferred, tree["deferred"], strict=True):
                proof.load(saved)

    def _take(self, proofs: Sequence[Proof], points: Sequence[np.ndarray]) -> Certificate:
        """As `_keep_better`, and tell the solver what was found."""
        best = self._keep_better(proofs, points)
        self._solver.learn(self._state, best, [proof.v for proof in proofs], points)
        if not self._ctx.resident:
            trim_heap()  # return memory to the system: sums of many models leave holes that grow from proof to proof
        return best

    def _keep_better(self, proofs: Sequence[Proof], points: Sequence[np.ndarray]) -> Certificate:
        """Keep, for each model, the better of its new and its best primal point; returns the best certificate."""
        found = joined([proof.certificate for proof in proofs])
        scale = np.concatenate([proof.scale for proof in proofs])
        if found.n_rows != self._ctx.data.n_samples:
            raise DataError(f"only {found.n_rows} of {self._ctx.data.n_samples} rows were seen, so nothing is proved")
        self._refuse_overflow(found.primal)
        best, better = keep_best(found, self.certificate)
        self._written = of_written(found, best, better)
        if self.certificate is None:
            self.w, self.scale = [w.copy() for w in points], scale
        else:
            first = 0
            self.w = _grouped_as(points, self.w)
            # Keep the dtype of the points: another solver may use float64, and rounding w would change the point.
            pairs = zip(self.w, points, strict=True)
            self.w = [kept.astype(np.result_type(kept, w), copy=False) for kept, w in pairs]
            for kept, w in zip(self.w, points, strict=True):
                n_models = _width(w)
                np.copyto(kept, w, where=better[first : first + n_models])
                first += n_models
            self.scale = np.where(better, scale, self.scale)
        self.certificate = best
        return best

    def _stream(self, points: Sequence[Point]) -> list[Proof]:
        """The proofs of all points from one reading of rows that stream."""
        ctx = self._ctx
        deferred = []
        for point in points:
            assert point.alpha is not None
            deferred.append(DeferredCertificate(point.problem, point.w, point.alpha, *self._tries(point)))
        with ReadAhead(ctx.data, groups_in_order(ctx), ctx.read_depth, ctx.buffers) as source:
            for group, block in source:
                ctx.charge(block.nbytes)
                if self._prepare is not None:
                    self._prepare(block, group)
                for proof in deferred:
                    proof.add(block, group)
                if ctx.stopping():
                    raise ProofLeft
        ctx.reads.waited_s += source.waited_s
        return [proof.finish() for proof in deferred]

    def _in_tasks(self, points: Sequence[Point]) -> list[Proof]:
        """The proofs of all points, each by tasks over blocks: for rows in memory, and rows on shards.

        Raises PassLeft if the run is to stop.
        """
        if self._prepare is not None:  # the function works in this process, which has alpha
            refs = self._ctx.proof_refs
            for ref, block in zip(refs, blocks_of(self._ctx.data, refs), strict=True):
                self._ctx.charge(block.nbytes)
                self._prepare(block, ref)
        if all(point.on_shards is not None for point in points):
            return [self._from_shards(point) for point in points]

        def proof(point: Point, known: Proof | None) -> Proof:
            return known or self._tasks(point)

        both = list(zip(points, self._known(points), strict=True))
        return side_by_side(lambda one: proof(*one), both, self._ctx.threads, "bigsvm-proof")

    def _known(self, points: Sequence[Point]) -> list[Proof | None]:
        """The last result for each point whose alpha has not changed since; None for the others, and at the end."""
        found: list[Proof | None] = []
        first = 0
        for point in points:
            models = slice(first, first + _width(point.w))
            first = models.stop
            if not point.still or self._written is None or self.at_limit:
                found.append(None)
            else:
                v = point.w.astype(np.float64)
                found.append(Proof(part_of(self._written, models), v, self.scale[models]))
        return found

    def _from_shards(self, point: Point) -> Proof:
        """The proof of a point whose alpha stays with the shards, which compute the terms."""
        assert point.on_shards is not None
        tries = self._tries(point)
        total = Accumulator(point.problem, point.w, *tries)
        for terms in point.on_shards(point.w, *tries):
            self._ctx.charge(terms.bytes_read)
            total.add(terms)
        return total.proof()

    def _tasks(self, point: Point) -> Proof:
        """The proof of a point from tasks over runs of blocks."""
        ctx, alpha = self._ctx, point.alpha

        def share(run: tuple[BlockRef, ...]) -> RowsShare:
            rows = None if alpha is None else alpha.between(run[0].start, run[-1].stop)
            own = point.problem.of_rows(run[0].start, run[-1].stop)
            return RowsShare(ctx.data, run, own, total.met, rows, scales=total.scales)

        tries = self._tries(point) if self.at_limit else (False, False)
        total, runs = Accumulator(point.problem, point.w, *tries), runs_of(ctx.proof_refs, BLOCKS_PER_TASK)
        for _, terms in over_shares(
            ctx.mapper, certify_blocks, runs, share, ctx.pass_workers, account=ctx, may_leave=True
        ):
            total.add(terms)
        return total.proof()

    def _tries(self, point: Point) -> tuple[bool, bool]:
        """Whether multiples of w are tried, and much shorter ones: w may be too long where a limit ends the fit."""
        return point.rescaled or self.at_limit, self.at_limit

    def _copy_of(self, point: Point) -> RowVector:
        """A vector of zeros, as large as the point's alpha, which is copied to it later."""
        assert point.alpha is not None
        n_rows, width = point.alpha.values.shape
        return self._ctx.vector(DEFERRED_ALPHA, width, n_rows=n_rows)


def linear_model(
    problem: Problem, w: Sequence[np.ndarray], scale: np.ndarray, data: RowBlocks, about: dict[str, Any]
) -> LinearModel:
    """The model of proved weights, with features in the order of the store.

    w : for each group of models (n_features + 1,) or (n_features + 1, n_models), features in working order
    scale : float64, (n_models,)   the weights of each model are its scale times its w
    """
    coef, intercept = np.empty((problem.n_models, data.n_features)), np.empty(problem.n_models)
    order = slice(None) if data.feature_order is None else data.feature_order
    first = 0
    for group in w:
        # A model adds its intercept to products with stored rows: for centred rows the means are part of it.
        met = problem.met(group)
        columns = met if met.ndim == 2 else met[:, None]
        for m in range(columns.shape[1]):
            t = scale[first + m]
            coef[first + m][order] = t * columns[:-1, m].astype(np.float64)
            intercept[first + m] = problem.constant_feature * (t * float(columns[-1, m]))
        first += columns.shape[1]
    return LinearModel(
        coef=coef,
        intercept=intercept,
        classes=problem.classes,
        positive=problem.positive,
        negative=problem.negative,
        about=about,
    )


def _width(array: np.ndarray) -> int:
    """Number of models of an array, whose model axis is absent for a single model."""
    return 1 if array.ndim == 1 else array.shape[1]


def _grouped_as(points: Sequence[np.ndarray], weights: list[np.ndarray]) -> list[np.ndarray]:
    """Weights regrouped like the groups of models in `points`, because another solver may have taken over."""
    if [_width(w) for w in points] == [_width(w) for w in weights]:
        return weights
    whole = np.hstack([w.reshape(len(w), -1) for w in weights])
    ends = np.cumsum([_width(w) for w in points])
    return [part.reshape(w.shape).copy() for part, w in zip(np.split(whole, ends[:-1], axis=1), points, strict=True)]
