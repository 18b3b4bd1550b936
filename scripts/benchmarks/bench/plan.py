"""Which runs a problem gets, and in what order: rounds over all solvers, so that a busy minute hits everybody."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bench.evaluate import gap, objectives
from bench.jobs import Job
from bench.machine_speed import Speed, machine_speed
from bench.problems import Problem, excerpt
from bench.runs import Cage, Run, measure
from bigsvm.config import FitConfig
from bigsvm.errors import PlanRefused
from bigsvm.run.fit.plan import Plan, make_plan
from bigsvm.store.formats.opener import open_store

CAGE_ROOM = 256 << 20  # interpreter, libraries and compiled kernels beside the budget
PEERS = {"liblinear": "LIBLINEAR", "snapml": "snapml", "sgd": "SGDClassifier, streamed"}
_MODULES = {"liblinear": "liblinear", "snapml": "snapml", "sgd": "sklearn"}
IN_MEMORY, OUT_OF_CORE, THROTTLED = "bigsvm, in memory", "bigsvm, out of core", "bigsvm, out of core, throttled"


@dataclass(frozen=True)
class Settings:
    """What the command line asked of every problem."""

    C: float
    bias: str
    tols: tuple[float, ...]
    cores: tuple[int, ...]
    repeats: int
    limit_s: float
    read_rate: int | None
    peers: tuple[str, ...]
    ladders: dict[str, tuple[float, ...]]
    budget: int | None  # of the out-of-core runs; None: a tenth of the data

    @property
    def first_tol(self) -> float:
        """Tolerance of the first fit."""
        return 1e-3 if 1e-3 in self.tols else self.tols[-1]


@dataclass(frozen=True)
class Measured:
    """A point that some run reached: what tables and plots are made of."""

    solver: str
    cores: int
    rung: float
    repeat: int
    seconds: float
    passes: float | None
    primal: np.ndarray  # P(w) of every model, by the evaluator
    about: dict[str, Any]
    cpu_seconds: float | None = None


@dataclass
class Findings:
    """All runs of one problem and loss."""

    problem: Problem
    loss: str
    budget: int
    note: str
    points: list[Measured] = field(default_factory=list)
    first_fits: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    speeds: list[Speed] = field(default_factory=list)  # of the machine, before and after each round
    errors: dict[tuple[str, int], str] = field(default_factory=dict)
    dual: np.ndarray | None = None  # the best that any bigsvm run proved, of every model
    raw_throttled: dict[str, Any] = field(default_factory=dict)

    def gap(self, point: Measured) -> float:
        """(P - best D) / P; infinite where no run proved a dual value."""
        return math.inf if self.dual is None else gap(point.primal, self.dual)


def missing_peers(asked: Iterable[str]) -> list[str]:
    """Peers that are not installed."""
    return [name for name in asked if find_spec(_MODULES[name]) is None]


def ladders(loss: str, smoke: bool) -> dict[str, tuple[float, ...]]:
    """Settings of the peers from loose to tight; the first that meets a gap counts."""
    eps = (1.0, 0.3, 0.1, 0.03, 0.01) if loss == "hinge" else (0.3, 0.1, 0.01, 0.001)
    found = {"liblinear": eps, "snapml": (5, 10, 20, 40, 80, 150), "sgd": (64,)}
    return {"liblinear": (0.1,), "snapml": (20,), "sgd": (4,)} if smoke else found


def budget_of(problem: Problem, loss: str, settings: Settings) -> tuple[int, str]:
    """(bytes, note) of the out-of-core runs: a tenth of the data, or the least that a plan takes."""
    budget, note, _ = plan_of(problem, settings.budget, loss=loss, C=settings.C, bias=settings.bias)
    return budget, note


def plan_of(problem: Problem, memory: int | None, **options: Any) -> tuple[int, str, Plan]:
    """(bytes, note, plan) of a fit out of core.  Raises Unsupported where the solver asked for does not suit."""
    asked, store = memory or problem.data_bytes // 10, open_store(problem.store)
    try:
        return (
            asked,
            "as asked" if memory else "a tenth of the data",
            make_plan(store, FitConfig.of(memory=asked, **options)),
        )
    except PlanRefused as error:
        least = error.min_memory_bytes
        if not least:
            raise
        return (
            least,
            f"the least that would do; asked for {asked} bytes",
            make_plan(store, FitConfig.of(memory=least, **options)),
        )


def run_problem(problem: Problem, loss: str, settings: Settings, work: Path) -> Findings:
    """All runs of a problem with a loss, in rounds."""
    findings = Findings(problem, loss, *budget_of(problem, loss, settings))
    scratch = work / "scratch"
    rooms = _Rooms(problem, loss, settings, findings.budget, scratch)
    _compile(problem, rooms, work)
    useful: set[tuple[str, int, float]] = set()
    findings.speeds.append(machine_speed(problem.store))
    for repeat in range(settings.repeats):
        for cores in settings.cores:
            _own_round(findings, rooms, cores, repeat)
        for cores in settings.cores:
            for peer in settings.peers:
                if repeat == 0:
                    useful |= _climb(findings, rooms, peer, cores)
                    continue
                for rung in (r for s, c, r in sorted(useful) if (s, c) == (peer, cores)):
                    _take(findings, rooms.peer(peer, cores, rung), PEERS[peer], repeat)
        findings.speeds.append(machine_speed(problem.store))
    shutil.rmtree(scratch, ignore_errors=True)
    return findings


class _Rooms:
    """Jobs of one problem and loss."""

    def __init__(self, problem: Problem, loss: str, settings: Settings, budget: int, scratch: Path) -> None:
        self.problem, self.loss, self.settings, self.budget, self.scratch = problem, loss, settings, budget, scratch

    def peer(self, solver: str, cores: int, rung: float) -> Job:
        s = self.settings
        return Job(
            solver, str(self.problem.folder), self.problem.n_features, self.loss, s.C, s.bias, rung, cores, s.limit_s,
            scratch=str(self.scratch),
        )  # fmt: skip

    def own(self, cores: int, tol: float, memory: int) -> Job:
        job = self.peer("bigsvm", cores, tol)
        return Job(**{**job.__dict__, "memory": memory})

    @property
    def plenty(self) -> int:
        """A budget that holds the data and all that goes with it."""
        return 4 * self.problem.data_bytes + (1 << 30)


def _compile(problem: Problem, rooms: _Rooms, work: Path) -> None:
    """Fill the kernel cache with a small excerpt of the same types, so that no measured run compiles."""
    small = excerpt(problem, work)
    rooms.scratch.mkdir(exist_ok=True)
    for memory in (1 << 30, rooms.budget):
        job = Job(**{**rooms.own(1, 0.5, memory).__dict__, "folder": str(small.folder), "scratch": str(work / "warm")})
        measure(job)
    shutil.rmtree(small.folder)
    shutil.rmtree(work / "warm", ignore_errors=True)


def _own_round(findings: Findings, rooms: _Rooms, cores: int, repeat: int) -> None:
    """bigsvm in memory, its first fit out of core, and the finished copy at every tolerance."""
    settings, store = rooms.settings, rooms.problem.store
    cage = Cage(memory=rooms.budget + CAGE_ROOM)
    for tol in settings.tols:
        _take(findings, rooms.own(cores, tol, rooms.plenty), IN_MEMORY, repeat)
    shutil.rmtree(rooms.scratch, ignore_errors=True)
    rooms.scratch.mkdir()
    first = measure(rooms.own(cores, settings.first_tol, rooms.budget), cage, cold=(store,))
    if first.error:
        findings.errors[OUT_OF_CORE, cores] = first.error
        return
    findings.first_fits.setdefault(cores, []).append(first.about)
    _learn_dual(findings, first)
    for tol in settings.tols:
        _take(findings, rooms.own(cores, tol, rooms.budget), OUT_OF_CORE, repeat, cage, (rooms.scratch,))
    if settings.read_rate is None:
        return
    slow = Cage(memory=rooms.budget + CAGE_ROOM, read_rate=settings.read_rate)
    if not findings.raw_throttled:
        raw = measure(rooms.peer("read", cores, 0), slow, cold=(rooms.scratch,))
        findings.raw_throttled = {"error": raw.error} if raw.error else raw.about
    for tol in settings.tols:
        _take(findings, rooms.own(cores, tol, rooms.budget), THROTTLED, repeat, slow, (rooms.scratch,))


def _climb(findings: Findings, rooms: _Rooms, peer: str, cores: int) -> set[tuple[str, int, float]]:
    """A peer's ladder, up to the tightest tolerance or the time limit; the rungs that were the first to meet one."""
    useful, open_tols = set(), list(rooms.settings.tols)
    for rung in rooms.settings.ladders[peer]:
        taken = _take(findings, rooms.peer(peer, cores, rung), PEERS[peer], 0)
        if not taken:
            break
        reached = min(findings.gap(point) for point in taken)
        met = [tol for tol in open_tols if reached <= tol]
        if met:
            useful.add((peer, cores, rung))
        open_tols = [tol for tol in open_tols if tol not in met]
        if not open_tols or taken[-1].seconds > rooms.settings.limit_s:
            break
    # Its best is shown where it met nothing; a second look at it is as good as one at any other.
    return useful or {(peer, cores, rung)}


def _take(
    findings: Findings, job: Job, name: str, repeat: int, cage: Cage | None = None, cold: tuple[Path, ...] = ()
) -> list[Measured]:
    """Measure, evaluate and keep; the points of this run."""
    say(f"{findings.problem.name}, {findings.loss}: {name}, {job.cores} core(s), {job.rung:g}, round {repeat + 1}")
    run = measure(job, cage, cold)
    if run.error:
        findings.errors[name, job.cores] = run.error
        say(f"  {run.error}")
        return []
    _learn_dual(findings, run)
    values = objectives(findings.problem, run.weights, findings.loss, job.C)
    taken = [
        Measured(name, job.cores, p["rung"], repeat, p["seconds"], p["passes"], primal, run.about, p["cpu_seconds"])
        for p, primal in zip(run.about["points"], values, strict=True)
    ]
    findings.points += taken
    return taken


def _learn_dual(findings: Findings, run: Run) -> None:
    if "dual" in run.about:
        dual = np.array(run.about["dual"])
        findings.dual = dual if findings.dual is None else np.maximum(findings.dual, dual)


def say(line: str) -> None:
    """Progress, on standard error."""
    print(line, file=sys.stderr, flush=True)


def lines_of(findings: Findings) -> Iterator[tuple[str, int]]:
    """(solver, cores) in the order of the table."""
    seen = dict.fromkeys((point.solver, point.cores) for point in findings.points)
    names = list(dict.fromkeys([IN_MEMORY, OUT_OF_CORE, THROTTLED, *PEERS.values()]))
    yield from sorted({*seen, *findings.errors}, key=lambda key: (names.index(key[0]), key[1]))
