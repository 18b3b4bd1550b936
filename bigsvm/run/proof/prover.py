"""Proofs of a running fit: from a pass of their own, or riding on the next training pass."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from bigsvm.errors import DataError
from bigsvm.problem.certificate import (
    Accumulator,
    Certificate,
    Proof,
    RowsShare,
    certify_blocks,
    joined,
    keep_best,
    of_written,
)
from bigsvm.problem.riding import RidingProof
from bigsvm.solvers.base import Context, Point, Rule, Solver
from bigsvm.solvers.block_order import groups_in_order
from bigsvm.store.blocks import BlockRef
from bigsvm.store.read_ahead import ReadAhead
from bigsvm.store.state.state_files import dump
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import BLOCKS_PER_TASK, over_shares, runs_of


class ProofLeft(Exception):
    """A proof of its own was left because the run is to stop: it changes nothing, and is begun again later."""


class Prover:
    """Keeps the best that is proved, the weights that it speaks of, and the alpha of the last proof.

    certificate : Certificate or None, the best that is known of the optimum
    written : Certificate or None, of the points that a model written now would have: `w` and `alpha`
    w, scale : one array a group of models, and a factor for each model: the primal points of `certificate`
    alpha : RowVectors whose dual value was proved last
    rejected : False; see `kernel_proofs.KernelProver`
    """

    rejected = False
    anywhere = False
    """A proof may be made of a point in the middle of a step."""

    def rule(self) -> Rule | None:
        """The stop rule that the last proof computed anew, and that holds; None: there is none to compute."""
        return None

    def __init__(self, solver: Solver, state: Any, ctx: Context, workers: int) -> None:
        self._solver, self._state, self._ctx, self._workers = solver, state, ctx, workers
        self.certificate: Certificate | None = None
        self.written: Certificate | None = None
        self.w: list[np.ndarray] = []
        self.scale = np.ones(0)
        self.alpha: list[RowVector] = []
        self._former: list[RowVector] = []
        self.bytes_read = 0
        self.seconds = 0.0

    def prove(self) -> Certificate:
        """A pass of its own over all rows, now."""
        began, read = time.monotonic(), self._ctx.bytes_read
        points = self._solver.points(self._state)
        streams = not self._ctx.resident and self._ctx.parallel == 1
        proofs = self._stream(points) if streams else self._in_tasks(points)
        self.alpha = [point.alpha for point in points if point.alpha is not None]
        certificate = self._take(proofs, [point.w for point in points])
        self.bytes_read += self._ctx.bytes_read - read
        self.seconds += time.monotonic() - began
        return certificate

    def mount(self) -> None:
        """Let a proof of the present point ride on the next step."""
        began = time.monotonic()
        points = self._solver.points(self._state)
        unheld = [point for point in points if point.kept is None]
        if [_width(former.values) for former in self._former] != [_width(point.w) for point in unheld]:
            for former in self._former:
                former.close()
            self._former = [self._copy_of(point) for point in unheld]
        unkept = iter(self._former)
        riding = []
        for point in points:
            if point.kept is None:
                assert point.alpha is not None
                w, alpha = point.w.copy(), next(unkept)
                alpha.values[:] = point.alpha.values
            else:
                w, alpha = point.kept
            riding.append(RidingProof(point.problem, w, alpha, point.rescaled))
        self._ctx.riding = riding
        self.seconds += time.monotonic() - began

    def dismount(self) -> Certificate:
        """The certificate of the proof that rode: of the point before the step."""
        began = time.monotonic()
        riding, self._ctx.riding = self._ctx.riding, ()
        self.alpha = [proof.alpha for proof in riding]
        certificate = self._take([proof.finish() for proof in riding], [proof.w for proof in riding])
        self.seconds += time.monotonic() - began
        return certificate

    def dump(self) -> dict[str, Any]:
        """For a checkpoint: the best that is proved, and proofs that are riding."""
        riding = [proof.dump() for proof in self._ctx.riding]
        former = [vector.values for vector in self._former] if riding else []
        return {
            "best": dump(self.certificate),
            "w": self.w,
            "scale": self.scale,
            "riding": riding,
            "former": former,
            "read": self.bytes_read,
        }

    def load(self, tree: dict[str, Any]) -> None:
        """Take over what `dump` gave."""
        if tree["best"] is not None:
            best = tree["best"]
            arrays = {name: np.array(best[name]) for name in ("primal", "dual", "gap", "n_support")}
            self.certificate = Certificate(n_rows=best["n_rows"], drift=best["drift"], kind=best["kind"], **arrays)
        self.w, self.bytes_read = [np.array(w) for w in tree["w"]], tree["read"]
        self.scale = np.array(tree["scale"])
        if tree["riding"]:
            self.mount()
            for vector, values in zip(self._former, tree["former"], strict=True):
                vector.values[:] = values
            for proof, saved in zip(self._ctx.riding, tree["riding"], strict=True):
                proof.load(saved)

    def _take(self, proofs: Sequence[Proof], points: Sequence[np.ndarray]) -> Certificate:
        found = joined([proof.certificate for proof in proofs])
        scale = np.concatenate([proof.scale for proof in proofs])
        if found.n_rows != self._ctx.data.n_samples:
            raise DataError(f"{found.n_rows} rows seen of {self._ctx.data.n_samples}: nothing is proved")
        if not np.all(np.isfinite(found.primal)):
            raise DataError(
                "the objective overflows: the values are too large",
                self._ctx.data.uri,
                "scale the features to about [-1, 1]",
            )
        best, better = keep_best(found, self.certificate)
        self.written = of_written(found, best, better)
        if self.certificate is None:
            self.w, self.scale = [w.copy() for w in points], scale
        else:
            first = 0
            self.w = _grouped_as(points, self.w)
            for kept, w in zip(self.w, points, strict=True):
                n_models = _width(w)
                np.copyto(kept, w, where=better[first : first + n_models])
                first += n_models
            self.scale = np.where(better, scale, self.scale)
        self.certificate = best
        self._solver.learn(self._state, best, [proof.v for proof in proofs], points)
        return best

    def _stream(self, points: Sequence[Point]) -> list[Proof]:
        ctx = self._ctx
        riding = []
        for point in points:
            assert point.alpha is not None
            riding.append(RidingProof(point.problem, point.w, point.alpha, point.rescaled))
        before = ctx.bytes_read
        with ReadAhead(ctx.data, groups_in_order(ctx), ctx.read_depth, ctx.buffers) as source:
            for group, block in source:
                ctx.charge(block.nbytes)
                for proof in riding:
                    proof.add(block, group)
                if ctx.stopping():
                    ctx.bytes_read = before  # limits count what an undisturbed run reads
                    raise ProofLeft
        ctx.io_wait_s += source.waited_s
        return [proof.finish() for proof in riding]

    def _in_tasks(self, points: Sequence[Point]) -> list[Proof]:
        with ThreadPoolExecutor(min(len(points), self._ctx.threads), "bigsvm-proof") as pool:
            return list(pool.map(self._tasks, points))

    def _tasks(self, point: Point) -> Proof:
        ctx, alpha = self._ctx, point.alpha

        def share(run: tuple[BlockRef, ...]) -> RowsShare:
            rows = None if alpha is None else alpha.between(run[0].start, run[-1].stop)
            return RowsShare(ctx.data, run, point.problem, point.w, rows)

        total, runs = Accumulator(point.problem, point.w), runs_of(ctx.proof_refs, BLOCKS_PER_TASK)
        for _, terms in over_shares(ctx.mapper, certify_blocks, runs, share, self._workers, account=ctx):
            total.add(terms)
        return total.proof()

    def _copy_of(self, point: Point) -> RowVector:
        assert point.alpha is not None
        n_rows, width = point.alpha.values.shape
        return self._ctx.vector("alpha of a riding proof", width, n_rows=n_rows)


def _width(array: np.ndarray) -> int:
    """Models of an array that has an axis of them where there are several."""
    return 1 if array.ndim == 1 else array.shape[1]


def _grouped_as(points: Sequence[np.ndarray], weights: list[np.ndarray]) -> list[np.ndarray]:
    """Weights in the groups of models that points come in: another solver may have taken over."""
    if [_width(w) for w in points] == [_width(w) for w in weights]:
        return weights
    whole = np.hstack([w.reshape(len(w), -1) for w in weights])
    ends = np.cumsum([_width(w) for w in points])
    return [part.reshape(w.shape).copy() for part, w in zip(np.split(whole, ends[:-1], axis=1), points, strict=True)]
