"""The loop of a fit: step, prove when it is due, decide; its state is saved between any two groups of rows.

On rows that stream, a proof rides on the next pass while the tolerance is near or the passes have doubled, and
has a pass of its own only when the solver expects it to succeed.  Once that expectation failed, proofs only ride:
at most one pass is spent on a proof alone, unless a limit ends the run.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

from bigsvm.config import FitConfig
from bigsvm.errors import Interrupted
from bigsvm.events import CertificateMade, CheckpointSaved, Emit, EpochEnd, Warned
from bigsvm.problem.certificate import Certificate
from bigsvm.problem.problem import Problem
from bigsvm.run.checkpoint import Checkpoints
from bigsvm.run.kernel_proofs import KernelProver
from bigsvm.run.proofs import ProofLeft, Prover
from bigsvm.run.signals import Stop
from bigsvm.solvers.base import Context, Solver
from bigsvm.store.state_files import dump, load

_FIRST_CHECK = 4.0  # passes before the first proof rides along; then each time they have doubled
_STALLED = 20  # proofs in a row that find neither a better primal nor a better dual point
_RIDE_BELOW = 6.0  # forecasts above the tolerance by less than this let a proof ride along


@dataclass
class LoopState:
    """Where a loop stands; counters only, but for the seconds spent.

    proving : a proof of its own is due;  ending : why the run ends after it, '' where it goes on
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
    spent_s: float = 0.0


class Loop:
    """Runs a solver until a proof or a limit ends it.  `run` gives the status; Interrupted when it was stopped."""

    def __init__(
        self, problem: Problem, solver: Solver, state: Any, config: FitConfig, ctx: Context,
        prover: Prover | KernelProver, data_bytes: int, stop: Stop, checkpoints: Checkpoints | None, emit: Emit,
    ) -> None:  # fmt: skip
        self.problem, self.solver, self.state, self.config, self.ctx = problem, solver, state, config, ctx
        self.prover, self.data_bytes, self.stop, self.checkpoints, self.emit = (
            prover,
            data_bytes,
            stop,
            checkpoints,
            emit,
        )
        self.at = LoopState()
        self.solving_s = 0.0
        self._began = time.monotonic()
        self._before_s = 0.0
        ctx.stopping = lambda: bool(stop)
        ctx.pause = lambda: bool(stop) or (checkpoints is not None and checkpoints.due())

    def resume(self, tree: dict[str, Any]) -> None:
        """Go on where a checkpoint was taken."""
        self.solver.before_load(self.state, tree["solver"], self.ctx)
        load(self.state, tree["solver"])
        self.prover.load(tree["prover"])
        load(self.at, tree["loop"])
        self.ctx.bytes_read, self._before_s = self.at.bytes_read, self.at.spent_s

    def run(self) -> str:
        """The status that ended it: converged, paper_rule, stopped or stalled."""
        while True:
            if not self.at.proving and self._step():
                return "converged"
            if self.at.proving:
                try:
                    proved = self._report(self.prover.prove())
                except ProofLeft:
                    self._pause()
                    continue
                self.at.proving = False
                if proved and self.config.stop == "gap":
                    return "converged"
                if self.prover.rejected and self.at.ending in ("paper_rule", "kkt", "stalled"):
                    self.at.ending = ""  # the rule does not hold of the rows themselves: the solver goes on
                if self.at.ending:
                    return self.at.ending
                self._pause()

    def _step(self) -> bool:
        """One step of the solver; whether a proof that rode on it met the tolerance.  Decides what comes next."""
        at, ctx, config = self.at, self.ctx, self.config
        n, limit = ctx.data.n_samples, config.max_passes or math.inf
        rides = self.solver.rides and not ctx.resident and ctx.parallel == 1
        ctx.sweeps_left = None if math.isinf(limit) else max(int(limit - self._spent()), 1)
        while True:
            before = time.monotonic()
            info = self.solver.step(self.problem, self.state, ctx)
            self.solving_s += time.monotonic() - before
            if not info.paused:
                break
            self._pause()
        at.visits, at.steps = at.visits + info.visits, at.steps + 1
        epochs, passes = at.visits / n, ctx.bytes_read / self.data_bytes
        self.emit(EpochEnd(epochs, passes, info.n_active, info.gap_estimate, self._seconds()))
        if info.remark:
            self.emit(Warned(info.remark))
        if info.rode and self._report(self.prover.dismount()):
            return True
        # What the next step and the proof after it will cost.
        out_of_passes = self._spent() + (1.0 if ctx.resident else 2.0) > limit
        out_of_time = config.max_time is not None and self._seconds() > config.max_time
        exhausted = info.exhausted or at.fruitless >= _STALLED
        at.ending = "stalled" if exhausted else "stopped" if out_of_passes or out_of_time else ""
        counted = epochs if ctx.resident else at.steps
        due = self.solver.rides and counted >= at.next_check  # the others know their gap
        if due:
            at.next_check = 2.0 * counted
        forecast = self.solver.forecast(self.state)
        hopeful = info.ask_certificate or forecast <= config.tol
        if config.stop == "paper":  # the proof is for the report only
            due = hopeful = False
            if info.rule_met:
                at.ending = "paper_rule"
        if info.rule_met and not self.problem.kernel.positive_semidefinite:
            at.ending = "kkt"  # no gap can be proved
        if at.ending or (hopeful and at.alone) or (not rides and (due or hopeful)):
            at.alone, at.proving = False, True
        elif rides and (due or forecast <= _RIDE_BELOW * config.tol):
            self.prover.mount()
        if not at.proving:
            self._pause()
        return False

    def _report(self, certificate: Certificate) -> bool:
        at, ctx = self.at, self.ctx
        primal, dual = float(certificate.primal.sum()), float(certificate.dual.sum())
        at.fruitless = at.fruitless + 1 if (primal, dual) == (at.primal, at.dual) else 0
        at.primal, at.dual = primal, dual
        if self.checkpoints is not None:
            self.checkpoints.proved()
        passes, epochs = ctx.bytes_read / self.data_bytes, at.visits / ctx.data.n_samples
        self.emit(CertificateMade(epochs, passes, primal, dual, certificate.relative_gap, self._seconds()))
        return certificate.kind == "proved" and certificate.relative_gap <= self.config.tol

    def _spent(self) -> float:
        # Rows in memory are not read again: there the limit counts visits, as it would have counted passes.
        if self.ctx.resident:
            return self.at.visits / self.ctx.data.n_samples
        return self.ctx.bytes_read / self.data_bytes

    def _seconds(self) -> float:
        return self._before_s + time.monotonic() - self._began

    def _pause(self) -> None:
        """Save the state if it is time or the run is to stop.  Raises Interrupted in the second case."""
        if not self.ctx.pause():
            return
        if self.checkpoints is not None:
            self.at.bytes_read, self.at.spent_s = self.ctx.bytes_read, self._seconds()
            tree = {"loop": dump(self.at), "prover": self.prover.dump(), "solver": dump(self.state)}
            self.checkpoints.save(tree)
            self.emit(CheckpointSaved(str(self.checkpoints.folder), self.checkpoints.seconds))
        if self.stop:
            hint = "" if self.checkpoints is None else f"bigsvm resume {self.checkpoints.folder.parent}"
            raise Interrupted(f"stopped by {self.stop.by}", hint=hint)
