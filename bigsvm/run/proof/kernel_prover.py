"""Proofs of kernel models: f made anew from beta and the rows, then the gap as a sum of non-negative terms.

Nothing of the solver is believed but beta and the bias.  f(x_i) = sum_s beta_s K(x_s, x_i) of every row is computed
from its support vectors: in float64, or, of rows that are none, first in float32 with a bound on its error (rbf).  A
row whose bracket is 0 wherever f lies within the bound needs no more: it adds nothing to P, D and gap.  Those that the
bound leaves undecided, near their margin, are computed again in float64.  So P, D and gap are those of float64.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bigsvm.compiled.kernel.parts import best_bias, next_nonzero, part_sums
from bigsvm.compiled.shared.rows import CSR, sqnorms
from bigsvm.errors import DataError
from bigsvm.problem.certificate import Certificate, cost_of_imbalance
from bigsvm.run.proof.kernel_check import quadratic_refutes, refuted
from bigsvm.run.proof.prover import ProofLeft
from bigsvm.solvers.base import Context, Rule
from bigsvm.solvers.kernel.base import KernelSolver
from bigsvm.solvers.kernel.part import Part
from bigsvm.solvers.kernel.state import KernelState, make_part
from bigsvm.solvers.kernel.values.data import KernelData, Rows
from bigsvm.solvers.kernel.values.gram import Gram, Support
from bigsvm.solvers.kernel.values.row_buffer import RowArena, support_rows
from bigsvm.store.blocks import Matrix
from bigsvm.store.state.state_files import dump

_UNIT = 2.0**-24  # of float32
_EXP = 3e-7  # relative error of exp in float32, and of one value's last rounding
_MOST_UNDECIDED = 0.6  # of a block's rows, with which float32 values go on
_MORE = 7  # roundings of a product's terms, of norms and of what is made of them
_LARGEST_ERROR = 2.0**-7  # relative, of float32 values that decide anything: e^x - 1 is x to within 1 %


class KernelProver:
    """Proofs of a running fit; the counterpart of `proofs.Prover`, and of the same use to the loop.

    certificate : of the last proof, of all models;  bias : float64, (n_models,), that it speaks of
    rejected : the rule of a paper was thought to be met and is not: the solver goes on
    kernel : Kernel, with what its dual points have shown of it
    """

    def __init__(self, solver: KernelSolver, state: KernelState, ctx: Context) -> None:
        self._solver, self._state, self._ctx = solver, state, ctx
        self.certificate: Certificate | None = None
        self.kernel = state.problem.kernel
        self.bias = state.bias
        self.violation = np.full(state.n_models, np.inf)
        self.rejected = False
        self.bytes_read = 0
        self.seconds = 0.0
        self.alpha = [state.alpha]

    @property
    def written(self) -> Certificate | None:
        """What is proved of the points that a model written now would have: those of the last proof."""
        return self.certificate

    def prove(self) -> Certificate:
        """All models, now.  Raises ProofLeft where the run is to stop."""
        began, state, ctx = time.monotonic(), self._state, self._ctx
        read, m = ctx.bytes_read, state.n_models
        found, support = np.empty((m, 3)), np.empty(m, np.int64)
        try:
            self._solver.make_room(state)
            for model in range(m):
                part = make_part(state, model)
                known = bool(np.isfinite(state.primal[model]))
                scores_of(part, state.data, float(state.bias[model]) if known else None, state.precise)
                if not known:
                    state.bias[model] = best_bias(part.f, part.lower, part.upper, part.epsilon)
                b = float(state.bias[model])
                sums = part_sums(part.f, part.beta, part.lower, part.upper, part.target, part.epsilon, b)
                gap, loss, beta_f, beta_t, size = sums
                quadratic = beta_f + beta_t
                found[model] = (
                    gap + _unbalanced(part, b, size, quadratic),
                    0.5 * quadratic + loss,
                    beta_t - part.epsilon * size - 0.5 * quadratic,
                )
                self._look_at(part, quadratic, abs(beta_f) + abs(beta_t))
                support[model] = np.count_nonzero(part.beta)
                self.violation[model] = part.violation()
                state.scored = model
        except ProofLeft:
            ctx.bytes_read = read  # limits count what an undisturbed run reads
            raise
        if not np.all(np.isfinite(found[:, 1:])):
            raise DataError(
                "the objective overflows: the values are too large",
                ctx.data.uri,
                "scale the features to about [-1, 1]",
            )
        self.bias = state.bias.copy()
        kind = self.kernel.certificate
        gaps, primal, dual = found.T.copy()
        if kind == "proved":
            # beta = 0 has the dual value 0, whatever this one is worth.
            dual = np.where(gaps < primal, dual, 0.0)
            gaps = np.minimum(gaps, primal)
        else:
            gaps = primal - dual
        self.certificate = Certificate(primal, dual, gaps, ctx.data.n_samples, 0.0, support, kind)
        self._judge()
        self.bytes_read += ctx.bytes_read - read
        self.seconds += time.monotonic() - began
        return self.certificate

    def _look_at(self, part: Part, quadratic: float, size: float) -> None:
        """Take note of a beta that refutes the kernel.  Raises DataError where the user vouches for it.

        quadratic : beta'K beta;  size : of the sums that made it
        """
        kernel = self.kernel
        if kernel.by_construction or kernel.definite.how not in ("undecided", "assumed"):
            return
        squares = float(np.einsum("i,i", part.beta, part.beta))
        why = quadratic_refutes(kernel, quadratic, squares, size)
        if why and kernel.definite.how == "assumed":
            raise refuted(why, self._ctx.data.uri)
        if why:
            self.kernel = kernel.refuted_by(why)

    def _judge(self) -> None:
        """Send models back whose proof shows less than their solver believed."""
        state, solver, certificate = self._state, self._solver, self.certificate
        assert certificate is not None
        self.rejected = False
        if not bool(state.done.all()) or state.final.any():
            return
        tol = self._ctx.tol
        if solver.asked.stop == "paper" or not state.problem.kernel.positive_semidefinite:
            failed = self.violation > solver.rule_factor * tol
        else:
            failed = certificate.relative_gaps > tol
        failed &= state.failures < solver.most_failures
        if failed.any():
            self.rejected = True
            solver.proof_failed(state, np.flatnonzero(failed))

    @property
    def anywhere(self) -> bool:
        """Beta is whole in the middle of a step too, once all labels are known."""
        return self._state.labelled == len(self._state.alpha.values)

    def rule(self) -> Rule | None:
        """The stop rule that holds of the violations that the last proof computed, where a rule ends the fit."""
        return self._solver.rule(self._state, self.violation, self._ctx.tol)

    def mount(self) -> None:
        """Kernel solvers know their gap: no proof rides."""
        raise NotImplementedError("no proof rides on a kernel solver's pass")

    def dismount(self) -> Certificate:
        """As `mount`."""
        raise NotImplementedError("no proof rides on a kernel solver's pass")

    def dump(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "best": dump(self.certificate), "bias": self.bias, "violation": self.violation, "read": self.bytes_read,
            "rejected": self.rejected,
        }  # fmt: skip

    def load(self, tree: dict[str, Any]) -> None:
        """Take over what `dump` gave."""
        if tree["best"] is not None:
            best = tree["best"]
            arrays = {name: np.array(best[name]) for name in ("primal", "dual", "gap", "n_support")}
            self.certificate = Certificate(n_rows=best["n_rows"], drift=best["drift"], kind=best["kind"], **arrays)
        self.bias, self.violation = np.array(tree["bias"]), np.array(tree["violation"])
        self.bytes_read, self.rejected = tree["read"], tree["rejected"]


@dataclass
class _Bound:
    """|float32 value - K(s, x)| <= (per_norm (||x||^2 + largest) + constant) K(s, x), of an rbf kernel.

    That is the error of an exponent: it bounds a value's where it is below `_LARGEST_ERROR`, and nothing else.
    """

    per_norm: float
    largest: float
    constant: float = _EXP


def _unbalanced(part: Part, b: float, size: float, quadratic: float) -> float:
    """What sum beta != 0 adds to the gap: rounding is forgiven at its price, anything else proves nothing."""
    one = [np.array([value]) for value in (b, float(part.beta.sum()), size, quadratic)]
    return float(cost_of_imbalance(*one)[0])


def scores_of(part: Part, data: KernelData, b: float | None, exact: bool) -> None:
    """part.f = K beta - t anew: to float64 wherever the brackets of the gap at bias b are not surely 0.

    exact : all in float64.  Raises ProofLeft where the run is to stop.
    """
    np.negative(part.target, out=part.f)
    arena = RowArena(data)
    support = np.empty(min(arena.capacity, part.n), np.int64)
    found, start = next_nonzero(part.beta, 0, support)
    whole = next_nonzero(part.beta, start, np.empty(1, np.int64))[0] == 0
    approximate = not exact and b is not None and data.kernel.name == "rbf" and whole
    while found:
        which = support[:found]
        numbers = which if part.rows is None else part.rows[which]
        taken = arena.load(numbers, charge=True)
        if taken < found:  # longer rows than planned: the others come with the next
            start, approximate = int(which[taken]), False
            which, numbers = which[:taken], numbers[:taken]
        _add_scores(part, data, _OtherSide(data, arena, numbers, part.beta[which]), b if approximate else None)
        found, start = next_nonzero(part.beta, start, support)


class _OtherSide:
    """Support vectors that are in memory, gathered some at a time in the float type that is wanted."""

    def __init__(self, data: KernelData, arena: RowArena, numbers: np.ndarray, beta: np.ndarray) -> None:
        self._data, self._arena, self._numbers, self._beta = data, arena, numbers, beta
        self._at, self._at_once = arena.at(numbers), support_rows(data.ctx)
        self._kept: dict[str, list[tuple[Support, np.ndarray]]] = {}

    def parts(self, gram: Gram) -> Iterable[tuple[Support, np.ndarray]]:
        """(rows, their beta) in `gram`'s type; few rows are gathered once."""
        if len(self._beta) > self._at_once:
            return self._gathered(gram)
        return self._kept.setdefault(gram.dtype.name, []) or self._keep(gram)

    def _keep(self, gram: Gram) -> list[tuple[Support, np.ndarray]]:
        self._kept[gram.dtype.name] = list(self._gathered(gram))
        return self._kept[gram.dtype.name]

    def _gathered(self, gram: Gram) -> Iterator[tuple[Support, np.ndarray]]:
        for start in range(0, len(self._beta), self._at_once):
            these = slice(start, start + self._at_once)
            support = self._data.support(self._arena.X, self._at[these], self._numbers[these], gram)
            yield support, self._beta[these]

    def bound(self) -> _Bound:
        """Of float32 values: an exponent is off by at most gamma c u (||x||^2 + ||s||^2), c counting the roundings."""
        entries, largest = 0, 0.0
        for support, _ in self.parts(self._data.exact):
            S = support.S
            entries = max(entries, int(np.diff(S.indptr).max(initial=0)) if isinstance(S, CSR) else S.shape[1])
            largest = max(largest, float(support.sq.max(initial=0.0)))
        return _Bound(1.2 * self._data.kernel.gamma * (entries + _MORE) * _UNIT, largest)


def _add_scores(part: Part, data: KernelData, side: _OtherSide, b: float | None) -> None:
    """Add to f what some support vectors make; with a bias b all of it, in float32 where the bound decides."""
    bound = None if b is None else side.bound()
    for rows in data.blocks():
        mine, own = of_part(part, rows)
        if len(own):
            f = np.ascontiguousarray(part.f[mine])[None, :]
            where = np.arange(len(own))
            if bound is not None and b is not None:
                zero = np.flatnonzero(part.beta[mine] == 0.0)
                where = _undecided(part, mine, _nearly(data, rows, own[zero], side), zero, b, bound, f[0])
                if len(where) > _MOST_UNDECIDED * len(own):
                    bound = None  # it decides too little to be worth its values
            if len(where):
                again = f[:, where]
                for support, beta in side.parts(data.exact):
                    data.exact.add(rows.X, own[where] - rows.offset, support, beta[:, None], again)
                f[0, where] = again[0]
            part.f[mine] = f[0]
        if data.ctx.stopping():
            raise ProofLeft


def of_part(part: Part, rows: Rows) -> tuple[slice, np.ndarray]:
    """(positions in the part, numbers in the data) of a block's rows."""
    if part.rows is None:
        return slice(rows.start, rows.stop), np.arange(rows.start, rows.stop)
    a, b = np.searchsorted(part.rows, [rows.start, rows.stop])
    return slice(a, b), part.rows[a:b]


def _norms(rows: Rows, own: np.ndarray) -> np.ndarray:
    """||x||^2 of some rows of a block."""
    first, last = int(own[0]) - rows.offset, int(own[-1]) + 1 - rows.offset
    X: Matrix = rows.X
    if isinstance(X, CSR):
        part: Matrix = X._replace(indptr=X.indptr[first : last + 1])
    else:
        part = X[first:last]
    found = np.empty(last - first)
    sqnorms(part, found)
    return found[own - rows.offset - first]


class _Nearly(NamedTuple):
    """f + t in float32 values of some rows, the sum of |beta_s| K(s, x) beside it, and their squared norms."""

    scores: np.ndarray
    size: np.ndarray
    sq: np.ndarray


def _nearly(data: KernelData, rows: Rows, own: np.ndarray, side: _OtherSide) -> _Nearly:
    out = np.zeros((2, len(own)))
    for support, beta in side.parts(data.gram):
        data.gram.add(rows.X, own - rows.offset, support, np.stack([beta, np.abs(beta)], axis=1), out)
    return _Nearly(out[0], out[1], _norms(rows, own) if len(own) else np.empty(0))


def _undecided(
    part: Part, mine: slice, found: _Nearly, zero: np.ndarray, b: float, bound: _Bound, f: np.ndarray
) -> np.ndarray:
    """Support vectors, and rows whose bracket might not be 0 for some f within the bound; adds to f of the others.

    zero : rows of beta = 0, those that `found` is of
    """
    # Of the true K; the factor makes it one of the values that were computed.
    error = bound.per_norm * (found.sq + bound.largest) + bound.constant
    slack = np.where(error <= _LARGEST_ERROR, 1.01 * error * found.size, np.inf)
    scores = f[zero] + found.scores
    r = -(scores + b)
    upper, lower, epsilon = part.upper[mine][zero], part.lower[mine][zero], part.epsilon
    decided = ((upper <= 0.0) | (r <= epsilon - slack)) & ((lower >= 0.0) | (r >= slack - epsilon))
    undecided = np.ones(len(f), bool)
    undecided[zero[decided]] = False
    f[zero[decided]] = scores[decided]
    return np.flatnonzero(undecided)
