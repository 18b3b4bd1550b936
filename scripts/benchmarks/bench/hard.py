"""The hard regime: large C and mostly few features, bigsvm out of core against LIBLINEAR and snapml in memory.

bigsvm runs by its command line, for each solver once to each gap, the tightest first: a run proves its gap where it
expects it, so the way to the tightest tells late, or not at all, when the others were met.  Every finished run goes
into the record at once, and a run that is recorded is not done again: a problem is made only when some run of it is
missing.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.evaluate import objectives
from bench.hard_record import Record
from bench.jobs import Job
from bench.plan import CAGE_ROOM, PEERS, plan_of, say
from bench.problems import Problem
from bench.runs import Cage, Run, measure
from bigsvm.errors import BigSVMError, Unsupported

OWN = ("auto", "newton-ws", "dcd")
COSTS, TOLS = (1.0, 10.0, 100.0), (1e-2, 1e-3, 1e-5)
PROBLEMS = ("kddcup99", "mnist", "dense", "w8a", "20news", "sparse")
LADDERS: dict[str, tuple[float, ...]] = {"liblinear": (1e-1, 1e-2, 1e-3), "snapml": (10, 50, 250, 1000)}
SMOKE_LADDERS: dict[str, tuple[float, ...]] = {"liblinear": (1e-1,), "snapml": (20,)}
_METHODS = {"hinge": ("3",), "squared_hinge": ("2", "1")}  # LIBLINEAR's -s
_OVERTIME, _GRACE_S = 3.0, 120.0  # a child is ended after so many limits, and what loading and staging may take


@dataclass(frozen=True)
class HardSettings:
    """What the command line asked of the suite."""

    costs: tuple[float, ...]
    losses: tuple[str, ...]
    tols: tuple[float, ...]
    limit_s: float
    peers: tuple[str, ...]
    ladders: dict[str, tuple[float, ...]]
    memory: int | None = None  # None: a tenth of the data
    each_tol: bool = True
    cores: int = 1
    own: tuple[str, ...] = OWN

    @property
    def own_tols(self) -> tuple[float, ...]:
        """Tolerances that bigsvm is asked for, the tightest first."""
        return tuple(sorted(self.tols)) if self.each_tol else (min(self.tols),)

    @property
    def timeout_s(self) -> float:
        """When a child is ended that does not end by itself."""
        return _OVERTIME * self.limit_s + _GRACE_S


@dataclass
class Source:
    """A problem by name, made in `work` when it is first needed."""

    name: str
    make: Callable[[Path], Problem]
    work: Path
    made: Problem | None = None

    def problem(self) -> Problem:
        """The problem, with its store."""
        if self.made is None:
            say(f"{self.name}: making it")
            self.work.mkdir(parents=True)
            self.made = self.make(self.work)
        return self.made

    def drop(self) -> None:
        """Give the disk back."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.made = None


def run_suite(sources: list[Source], settings: HardSettings, record: Record) -> None:
    """All runs that the record does not have yet."""
    for source in sources:
        try:
            for loss in settings.losses:
                Series(source, loss, settings, record).run()
        except (OSError, ValueError, subprocess.CalledProcessError) as error:  # of making the problem
            say(f"{source.name} is left out: {error}")
            record.left_out[source.name] = str(error)
        finally:
            source.drop()
        record.save()


class Series:
    """The runs of one problem and loss, for every C."""

    def __init__(self, source: Source, loss: str, settings: HardSettings, record: Record) -> None:
        self.source, self.loss, self.settings, self.record = source, loss, settings, record
        self.scratch = source.work / f"scratch-{loss}"
        self._ready: set[str] = set()  # solvers whose working copy and kernels are there

    def run(self) -> None:
        """In this order: the peers' ladders end by a gap that bigsvm's dual values prove."""
        for C in self.settings.costs:
            for job in self._own_jobs(C):
                reached = 0.0
                for tol in self.settings.own_tols:
                    if reached <= tol:  # else the limit came before: it would come again
                        reached = self._measure(replace(job, rung=tol)).get("proven_gap", reached)
            for peer in self.settings.peers:
                for method in _METHODS[self.loss] if peer == "liblinear" else ("",):
                    self._climb(
                        Job(
                            peer,
                            "",
                            0,
                            self.loss,
                            C,
                            "none",
                            0.0,
                            self.settings.cores,
                            self.settings.limit_s,
                            method=method,
                        )
                    )
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _own_jobs(self, C: float) -> Iterator[Job]:
        """A job for each solver that suits; what `auto` stands for is not run again under its own name."""
        taken = ""
        for method in self.settings.own:
            plan = self.record.plan(self.source.name, self.loss, C, method, lambda m=method: self._plan(m, C))
            if "refused" in plan or plan["solver"] == taken:
                continue
            taken = taken or plan["solver"]
            yield Job(
                "bigsvm-cli", "", 0, self.loss, C, "none", 0.0, self.settings.cores, self.settings.limit_s,
                memory=plan["budget"], scratch=str(self.scratch), method=method,
            )  # fmt: skip

    def _plan(self, method: str, C: float) -> dict[str, Any]:
        """Solver and budget that a fit would have, or why it is refused."""
        problem = self.source.problem()
        try:
            budget, note, plan = plan_of(
                problem,
                self.settings.memory,
                solver=method,
                loss=self.loss,
                C=C,
                bias="none",
                threads=self.settings.cores,
            )
        except Unsupported as error:
            return {"refused": str(error)}
        except BigSVMError as error:
            return {"refused": f"no plan: {error}"}
        return {"solver": plan.solver.name, "budget": budget, "note": note}

    def _climb(self, job: Job) -> None:
        """A peer's ladder, up to the tightest gap or the limit."""
        for rung in self.settings.ladders[job.solver]:
            found = self._measure(replace(job, rung=rung))
            # At its cap -s 3 is where it was: a tighter -e ends there again.
            at_its_end = found.get("capped") and not found.get("went_on")
            gap = self.record.gap(found)
            if "error" in found or at_its_end or found["seconds"] > job.limit_s:
                return
            if gap is not None and gap <= min(self.settings.tols):
                return

    def _measure(self, job: Job) -> dict[str, Any]:
        """A run, from the record or done now."""
        name = f"bigsvm, {job.method}" if job.solver == "bigsvm-cli" else PEERS[job.solver]
        name += f" -s {job.method}" if job.solver == "liblinear" else ""
        which = {
            "problem": self.source.name, "loss": self.loss, "C": job.C, "solver": name, "rung": job.rung,
            "limit_s": job.limit_s, "memory_asked": self.settings.memory,
        }  # fmt: skip
        known = self.record.find(which)
        if known is not None:
            return known
        problem = self.source.problem()
        self.record.learn_problem(self.source.name, problem)
        self.scratch.mkdir(exist_ok=True)
        job = replace(job, folder=str(problem.folder), n_features=problem.n_features)
        own = job.solver == "bigsvm-cli"
        if own:
            self._prepare(job)
        say(f"{self.source.name}, {self.loss}, C={job.C:g}: {name}, {job.rung:g}")
        cage = Cage(memory=job.memory + CAGE_ROOM) if own else None
        run = measure(job, cage, (self.scratch, problem.store) if own else (), self.settings.timeout_s)
        found = self.record.add(which, self._figures(run, problem, job.C))
        say(f"  {found['error']}" if "error" in found else f"  {found['seconds']:.2f} s")
        return found

    def _prepare(self, job: Job) -> None:
        """Working copy and compiled kernels, by a short fit outside the cage: neither is training."""
        if job.method in self._ready:
            return
        say(f"{self.source.name}, {self.loss}: preparing {job.method}")
        run = measure(replace(job, rung=0.9, limit_s=1.0), timeout_s=self.settings.timeout_s)
        say(f"  {run.error or 'ready after {:.1f} s'.format(run.about['load_s'])}")
        self._ready.add(job.method)

    def _figures(self, run: Run, problem: Problem, C: float) -> dict[str, Any]:
        if run.error:
            return {"error": run.error, "overtime": run.overtime, "cage": run.about["cage"]}
        (primal,) = objectives(problem, run.weights, self.loss, C)
        (point,) = run.about["points"]
        about = {key: value for key, value in run.about.items() if key not in ("points", "job")}
        return {"seconds": point["seconds"], "passes": point["passes"], "primal": primal.tolist(), **about}
