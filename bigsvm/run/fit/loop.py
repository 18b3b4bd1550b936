"""The loop of a fit: take a step, prove the gap when a proof is due, decide whether to go on.

The state can be saved between any two groups of rows.

If rows stream, a certificate is usually deferred: it is computed during the next pass, and costs no reading.  That is
done near the tolerance, and whenever the number of passes has doubled.  A proof gets a pass of its own when the solver
expects it to succeed.  If it fails, all later ones are deferred, so at most one pass is spent on a proof that fails,
unless a limit ends the run.

Every fit ends.  Without --max-passes two limits of `solvers/pace.py` apply.  The first is far more work than any
reasonable fit needs.  The second ends a fit earlier, if its gap, falling as fast as during most of the run, would not
reach the tolerance within the first limit.  Both count work, not time.  Kernel solvers apply them to each of their
models (`solvers/kernel/base.py`).
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bigsvm.config import FitConfig
from bigsvm.errors import Interrupted
from bigsvm.events import CertificateMade, CheckpointSaved, Emit, EpochEnd, TrafficCounted, Warned
from bigsvm.problem.certificate import Certificate
from bigsvm.problem.problem import Problem
from bigsvm.run.execute.pass_progress import PassProgress
from bigsvm.run.execute.signals import Stop
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.proof.prover import ProofLeft, Prover
from bigsvm.solvers.base import Rule, Solver, StepInfo
from bigsvm.solvers.context import Context
from bigsvm.solvers.pace import (
    IN_MEMORY,
    IN_MEMORY_IF_OTHERS_WAIT,
    SCANNED,
    SCANNED_BYTES,
    STREAMED,
    STREAMED_IF_OTHERS_WAIT,
    Pace,
)
from bigsvm.store.state.state_files import dump, load

_FIRST_CHECK = 4.0  # passes after which the first certificate is deferred; the next one when they have doubled
# Epochs over rows in memory after which another proof is due at the latest.  `_hopeless` judges by proofs, and one that
# finds rows wrongly shrunk shows a larger gap than the one before; a proof costs as much as two epochs.
_EPOCHS_A_PROOF = 50.0
_STALLED = 20  # proofs in a row without a better primal or dual point after which the fit has stalled
_PRECISION = 2.0**-52  # relative gaps below this are less than the rounding error of P
_DEFER_BELOW = 6.0  # certificates are deferred from a forecast of this many times the tolerance


@dataclass
class LoopState:
    """The state of the loop, for checkpoints.  Except for the seconds, nothing in it depends on clocks.

    visits, steps : row visits and steps so far
    next_check : passes (in memory: epochs) at which the next certificate is due: twice as many as at the last one, or
        in memory `_EPOCHS_A_PROOF` more
    alone : a proof may still have a pass of its own
    primal, dual, relative : sums of the last certificate, and its relative gap
    fruitless : certificates in a row that found neither a better primal nor a better dual point
    proving : a proof must be made before the next step
    ending : the status with which the run ends after that proof; '' if it goes on
    bytes_read, row_bytes, rows_asked, spent_s : `ReadAccount` and seconds when the state was saved
    work : passes, as self-paced solvers report them
    began : passes (in memory: epochs) before the step that was left; -1 between two steps
    longest : passes of the longest step of a self-paced solver so far, if rows stream
    pace : how fast the gap of each model falls;  primals : P of each model, which makes its gap relative
    rule : the stop rule that ended the run, as [name, value, tolerance]; empty if none did
    changed : passes (in memory: epochs) at which the solver went over to another method
    """

    visits: int = 0
    steps: int = 0
    next_check: float = field(default_factory=lambda: _FIRST_CHECK)
    alone: bool = True
    primal: float = math.inf
    dual: float = -math.inf
    fruitless: int = 0
    proving: bool = False
    ending: str = ""
    bytes_read: int = 0
    row_bytes: int = 0
    rows_asked: int = 0
    spent_s: float = 0.0
    work: float = 0.0
    began: float = -1.0
    longest: float = 0.0
    pace: Pace = field(default_factory=lambda: Pace.of(1))
    primals: np.ndarray = field(default_factory=lambda: np.ones(1))
    relative: float = math.inf
    rule: list[Any] = field(default_factory=list)
    changed: float = 0.0


class Loop:
    """Runs a solver until a proof or a limit ends the fit.

    most_steps : a limit of steps, which ends the fit as --max-passes does
    """

    def __init__(
        self, problem: Problem, solver: Solver, state: Any, config: FitConfig, ctx: Context,
        prover: Prover, data_bytes: int, stop: Stop, checkpoints: Checkpoints | None, emit: Emit,
        most_steps: float = math.inf,
    ) -> None:  # fmt: skip
        self.problem, self.solver, self.state, self.config, self.ctx = problem, solver, state, config, ctx
        self.prover, self.data_bytes, self.stop = prover, data_bytes, stop
        self.checkpoints, self.emit = checkpoints, emit
        self.most_steps = most_steps
        self.at = LoopState(pace=Pace.of(problem.n_proofs), primals=np.full(problem.n_proofs, np.inf))
        self.limits = IN_MEMORY if ctx.resident else STREAMED
        self.solving_s = 0.0
        self._others_wait = False
        self._began = time.monotonic()
        self._before_s = 0.0
        self._moved = None if ctx.mapper.traffic is None else ctx.mapper.traffic.copy()
        control = ctx.control
        control.stopping = lambda: bool(stop)
        control.pause = lambda: bool(stop) or (checkpoints is not None and checkpoints.due())
        control.expired = _weakly_bound(self._expired)
        control.read_enough = _weakly_bound(self._read_enough)
        self._progress = PassProgress(ctx.reads, data_bytes, emit)

    def resume(self, tree: dict[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.solver.before_load(self.state, tree["solver"], self.ctx)
        load(self.state, tree["solver"])
        self.prover.load(tree["prover"])
        load(self.at, tree["loop"])
        self.ctx.uncharge(self.at.bytes_read)
        self.ctx.reads.row_bytes, self.ctx.reads.rows_asked = self.at.row_bytes, self.at.rows_asked
        self._before_s = self.at.spent_s

    def begin_at(self, start: Certificate, visits: int) -> bool:
        """Take over a certificate of the starting point.  True if it meets the tolerance already."""
        self.at.visits += visits
        return self._report(start) and self.config.stop == "gap"

    def give_up_soon(self) -> None:
        """End as stalled after less work, whatever --max-passes allows: other solvers train models without a proof."""
        self._others_wait = True
        self.limits = IN_MEMORY_IF_OTHERS_WAIT if self.ctx.resident else STREAMED_IF_OTHERS_WAIT

    @contextmanager
    def shown(self) -> Iterator[None]:
        """In the block, events tell how far the current pass has come.  The pass ends with the block at the latest."""
        self.ctx.control.advanced = self._progress.look
        try:
            yield
        finally:
            self.ctx.control.advanced = lambda: None
            self._progress.close()

    def run(self) -> str:
        """Run to the end; returns the status: converged, paper_rule, kkt, stopped or stalled.

        Raises Interrupted if the run was asked to stop.
        """
        while True:
            if not self.at.proving and self._step():
                return "converged"
            if self.at.proving:
                self.prover.at_limit = self.at.ending in ("stopped", "stalled")
                try:
                    proved = self._report(self.prover.prove())
                except ProofLeft:
                    self._pause()
                    continue
                self.at.proving = False
                if proved and self.config.stop == "gap":
                    return "converged"
                if self.prover.rejected and self.at.ending in ("paper_rule", "kkt", "stalled"):
                    self.at.ending = ""  # the proof found that the rule is not met after all
                if self.at.ending:
                    return self._judged()
                self._pause()

    def _step(self) -> bool:
        """One step of the solver, then the decision what comes next.

        Returns True if a certificate that was deferred to this step met the tolerance.
        """
        info = self._advance()
        self._tell(info)
        if info.collectable and self._report(self.prover.collect()):
            return True
        if info.gaps is not None and info.primal is not None:
            self._see(info.gaps, info.primal)
        self._judge(info)
        self._choose_proof(info)
        if not self.at.proving:
            self._pause()
        return False

    def _advance(self) -> StepInfo:
        """One whole step of the solver: a step that was left early goes on after a checkpoint."""
        at, limit = self.at, self._limit
        if at.began < 0.0:
            at.began = self._spent()
        self.ctx.control.sweeps_left = None if math.isinf(limit) else max(int(limit - at.began), 1)
        while True:
            before = time.monotonic()
            info = self.solver.step(self.problem, self.state, self.ctx)
            self.solving_s += time.monotonic() - before
            if not info.paused or (self._expired() and self.prover.anywhere):
                break
            self._pause()
        began, at.began = at.began, -1.0
        at.visits, at.steps = at.visits + info.visits, at.steps + 1
        if not math.isnan(info.work):
            at.work = info.work
        if self.solver.self_paced and not self.ctx.resident:
            at.longest = max(at.longest, self._spent() - began)
        return info

    def _tell(self, info: StepInfo) -> None:
        """Emit the events of a step."""
        self._progress.ended()
        epochs, passes = self.at.visits / self.ctx.data.n_samples, self.ctx.bytes_read / self.data_bytes
        objective = None if info.primal is None else float(info.primal.sum())
        self.emit(EpochEnd(epochs, passes, info.n_active, info.gap_estimate, self._seconds(), objective))
        if self.ctx.mapper.traffic is not None:
            self._count_traffic(passes)
        if info.message:
            self.emit(Warned(info.message))

    def _judge(self, info: StepInfo) -> None:
        """Decide whether the run ends after the next proof, and with which status (`ending`)."""
        at, config = self.at, self.config
        # The next step would exceed the limit.
        out_of_passes = self._spent() + max(info.readings, at.longest) > self._limit - self._proof
        out_of_passes = out_of_passes or at.steps >= self.most_steps
        exhausted = info.exhausted or at.fruitless >= _STALLED or config.tol < at.relative <= _PRECISION
        unlimited = config.max_passes is None or self._others_wait
        exhausted = exhausted or (unlimited and self._hopeless() and not self._changed())
        over = self._expired() and at.steps > self.solver.looks_first
        at.ending = "stalled" if exhausted else "stopped" if out_of_passes or over else ""
        if info.rule is not None and (config.stop == "paper" or not self.problem.kernel.positive_semidefinite):
            at.ending, at.rule = "paper_rule" if config.stop == "paper" else "kkt", list(info.rule)

    def _choose_proof(self, info: StepInfo) -> None:
        """Decide when the next proof is made: now, in a pass of its own; during the next step; or not yet."""
        at, tol = self.at, self.config.tol
        counted = at.visits / self.ctx.data.n_samples if self.ctx.resident else at.steps
        due = self.solver.can_defer and counted >= at.next_check  # solvers that cannot defer know their gap
        if due:
            at.next_check = min(2.0 * counted, counted + _EPOCHS_A_PROOF) if self.ctx.resident else 2.0 * counted
        forecast = self.solver.forecast(self.state)
        hopeful = info.ask_certificate or forecast <= tol
        defers = self.solver.can_defer and not self.ctx.resident
        now = (hopeful and at.alone) or (not defers and (due or hopeful))
        later = defers and (due or forecast <= _DEFER_BELOW * tol)
        if self.config.stop == "paper":  # the only proof is the one for the report, at the end
            now = later = False
        if at.ending or now:
            at.alone, at.proving = False, True
        elif later:
            self.prover.schedule()

    @property
    def _limit(self) -> float:
        """The passes that --max-passes allows."""
        return self.config.max_passes or math.inf

    @property
    def _proof(self) -> int:
        """The passes that a proof counts for."""
        return 0 if self.ctx.resident else self.solver.proof_readings(self.state)

    def _count_traffic(self, passes: float) -> None:
        """Emit what moved between processes since the last step."""
        traffic = self.ctx.mapper.traffic
        self.emit(TrafficCounted(passes, **traffic.since(self._moved).document()))
        self._moved = traffic.copy()

    def _report(self, certificate: Certificate) -> bool:
        """Emit a certificate and tell solver and pace of it.  True if the gap is proved to meet the tolerance."""
        self._progress.ended()
        at, ctx = self.at, self.ctx
        primal, dual = float(certificate.primal.sum()), float(certificate.dual.sum())
        at.fruitless = at.fruitless + 1 if (primal, dual) == (at.primal, at.dual) else 0
        at.primal, at.dual, at.relative = primal, dual, certificate.relative_gap
        if not self.solver.self_paced:
            self._see(certificate.gap, certificate.primal)
        if self.checkpoints is not None:
            self.checkpoints.proved()
        passes, epochs = ctx.bytes_read / self.data_bytes, at.visits / ctx.data.n_samples
        self.emit(CertificateMade(epochs, passes, primal, dual, certificate.relative_gap, self._seconds()))
        written = self.prover.written
        assert written is not None
        if self.config.stop == "gap":
            self.solver.take_proved(self.state, written.relative_gaps <= self.config.tol)
        # `certificate` may have the dual value of an earlier alpha.  Only the point that would be written counts, since
        # `bigsvm certify` must be able to prove the gap again.
        return certificate.kind == "proved" and written.relative_gap <= self.config.tol

    def _judged(self) -> str:
        """The status at the end, after the last proof."""
        at = self.at
        at.ending, rule = self.prover.judged(at.ending, Rule(*at.rule) if at.rule else None)
        at.rule = [] if rule is None else list(rule)
        return at.ending

    def _see(self, gaps: np.ndarray, primals: np.ndarray) -> None:
        """Note the gap and P of each model, for `_hopeless`."""
        at = self.at
        at.primals[:] = primals
        at.pace.see(self._spent(), gaps)

    def _hopeless(self) -> bool:
        """Whether the fit exceeds the limits of `solvers/pace.py`; see the docstring of this file."""
        at, spent = self.at, self._spent()
        if self.solver.self_paced:
            return self._read_enough()
        targets, too_long = self.config.tol * at.primals, spent - at.changed > self.limits.most
        hopeless = at.pace.hopeless(targets, self.limits, self._others_wait)
        if self.problem.axis is not None:  # a search goes on as long as any of its models is not hopeless
            hopeless = hopeless[at.pace.least > targets]
            return too_long or (len(hopeless) > 0 and bool(hopeless.all()))
        return too_long or bool(hopeless.any())

    def _changed(self) -> bool:
        """Whether the solver goes on by another method, of which the rate so far tells nothing."""
        message = self.solver.change(self.state)
        if message:
            self.emit(Warned(message))
            self.at.pace = Pace.of(len(self.at.pace.least))
            self.at.fruitless, self.at.changed = 0, self._spent()
        return bool(message)

    def _read_enough(self) -> bool:
        """Whether a self-paced solver has read streamed rows as often as the limit allows."""
        if not self.solver.self_paced or self.ctx.resident:
            return False
        if self.config.max_passes is not None:
            return self._spent() >= self.config.max_passes - self._proof
        return self._spent() >= max(SCANNED, SCANNED_BYTES / self.data_bytes)

    def _spent(self) -> float:
        """The work so far, in passes: what --max-passes and the other limits count."""
        # Rows in memory are not read again.  There row visits count, or the work that self-paced solvers report (the
        # kernel values that they asked for).
        if self.ctx.resident:
            return self.at.work if self.solver.self_paced else self.at.visits / self.ctx.data.n_samples
        return self.ctx.reads.without_cache(self.data_bytes, self.ctx.data.n_samples)

    def _expired(self) -> bool:
        return self.config.max_time is not None and self._seconds() > self.config.max_time

    def _seconds(self) -> float:
        return self._before_s + time.monotonic() - self._began

    def _pause(self) -> None:
        """Save the state if a checkpoint is due or the run was asked to stop; then raise Interrupted in that case."""
        if not self.ctx.pause():
            return
        if self.checkpoints is not None:
            reads = self.ctx.reads
            self.at.bytes_read, self.at.spent_s = reads.bytes_read, self._seconds()
            self.at.row_bytes, self.at.rows_asked = reads.row_bytes, reads.rows_asked
            tree = {"loop": dump(self.at), "prover": self.prover.dump(), "solver": dump(self.state)}
            self.checkpoints.save(tree)
            self.emit(CheckpointSaved(str(self.checkpoints.folder), self.checkpoints.seconds))
        if self.stop:
            hint = "" if self.checkpoints is None else self.checkpoints.goes_on
            raise Interrupted(f"stopped by {self.stop.by}", hint=hint)


def _weakly_bound(ask: Callable[[], bool]) -> Callable[[], bool]:
    """A bound method that does not keep its object alive; returns False once the object is gone.

    The loop holds the context, and the context would hold the loop: the rows of a finished fit would stay in memory
    until Python's garbage collector finds the cycle.
    """
    method = weakref.WeakMethod(ask)
    return lambda: (found := method()) is not None and found()
