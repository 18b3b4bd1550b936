#!/usr/bin/env python3
"""Linear solvers on the same problems in one run: bigsvm in memory and out of core, LIBLINEAR, snapml, streamed SGD.

Every run is a process of its own, pinned to one core or to more, the solvers taking turns; medians of the rounds.
Objectives and gaps are computed here, by one evaluator, from the weights that each solver leaves.  Out-of-core runs
have a tenth of the data as budget, in a cgroup of budget + 256 MiB, and start with the working copy out of the page
cache; with --throttle the kernel also slows the device down (scripts/stress/memory_cage.py).

    scripts/benchmarks/bench_linear.py                                      built in, sparse, 200,000 rows
    scripts/benchmarks/bench_linear.py --csr DIR --cores 1,2 --throttle 300MB/s --json a.json --plot a.svg
    scripts/benchmarks/bench_linear.py --problem 20news --classes 20        all classes, and one, and their ratio
    scripts/benchmarks/bench_linear.py --smoke                              seconds, for the test suite
    scripts/benchmarks/bench_linear.py --suite hard --make GENERATOR --json hard.json --plot hard.svg
    scripts/benchmarks/bench_linear.py --suite hard --smoke                 seconds, for the test suite

A run that is stopped (Ctrl-C, SIGTERM) reports the problems and losses that it had ended.

The suite `hard` is another plan on the same machinery: large C and mostly few features, bigsvm by its command line
with several solvers, LIBLINEAR and snapml, a table for each C; problems that are not at hand are left out.  It takes
hours: with --json every finished run is kept there, and the same command goes on where it was stopped.

A --csr folder holds data.npy, indices.npy, indptr.npy, or X.npy; and y.npy.  Peers come with the extra `bench`;
those that are not installed are left out, and the report says so.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from bench import runs
from bench.hard import COSTS, LADDERS, OWN, PROBLEMS, SMOKE_LADDERS, TOLS, HardSettings, Source, run_suite
from bench.hard_record import Record
from bench.plan import PEERS, Findings, Settings, ladders, missing_peers, run_problem, say
from bench.problems import (
    MADE,
    REAL,
    TINY_ROWS,
    Problem,
    against_rest,
    demo_problem,
    make_problem,
    open_problem,
    real_problem,
    tiny_problem,
)
from bench.record import write_figures
from bench.table import class_ratios, machine, markdown, model_axis, titled_figures, write_json

from bigsvm.units import parse_bytes

_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"
_HARD_SMOKE = {"Cs": (10.0,), "losses": ("hinge",), "tols": (1e-1, 1e-2), "limit": 3600.0}
_SMOKE = {"repeats": 1, "tols": (1e-2,), "cores": (1,), "losses": ("hinge",), "throttle": None, "limit": 3600.0}


def numbers(kind: type) -> object:
    """A comma-separated list as argparse takes it."""
    return lambda text: tuple(kind(part) for part in text.split(","))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--suite", choices=["hard"], help="a plan of its own: see above")
    add("--problem", action="append", choices=["demo", "planted", "tiny", *MADE, *REAL], help="repeatable")
    add("--csr", action="append", type=Path, default=[], metavar="DIR", help="a problem as .npy files; repeatable")
    add("--make", type=Path, help="generator program of the problems sparse and dense")
    add("--data-dir", type=Path, default=_BESIDE, help="folder of the real sets, with load.py [%(default)s]")
    add("--rows", type=int, help="of demo, planted, sparse and dense")
    add("--classes", type=int, default=1, help="1: the first class against the rest; more: all, one, and their ratio")
    add("--losses", type=numbers(str), default=("hinge", "squared_hinge"))
    add("--tols", type=numbers(float), help="[1e-2,1e-3,1e-4; suite hard: 1e-2,1e-3,1e-5]")
    add("--tightest-only", action="store_true", help="suite hard: one run of bigsvm, not one for each gap")
    add("--cores", type=numbers(int), default=(1,), help="columns: 1,2")
    add("--peers", type=numbers(str), default=tuple(PEERS), help="of liblinear,snapml,sgd; none: '-'")
    add("--C", type=float, default=1.0)
    add("--own", type=numbers(str), default=OWN, help="suite hard: solvers of bigsvm [%(default)s]")
    add("--Cs", type=numbers(float), default=COSTS, help="suite hard [1,10,100]")
    add("--bias", choices=["none", "augmented"], default="none", help="augmented leaves SGD out: it differs there")
    add("--memory", help="budget out of core [a tenth of the data]")
    add("--throttle", help="also with the device slowed down, such as 300MB/s")
    add("--repeats", type=int, default=3)
    add("--limit", type=float, default=120.0, help="seconds; a ladder ends with the run that takes longer")
    add("--work", type=Path, help="folder for stores and scratch, on a disk; a temporary one by default")
    add("--markdown", type=Path, help="file for the report [standard output]")
    add("--json", type=Path)
    add("--figures", type=Path, help="file of docs/figures: what README and docs are made of")
    add("--plot", type=Path, help="such as gaps.svg")
    add("--smoke", action="store_true", help="a few seconds, to see that it works")
    options = parser.parse_args()
    if options.work is not None:
        options.work.mkdir(parents=True, exist_ok=True)
    options.tols = options.tols or (TOLS if options.suite else (1e-2, 1e-3, 1e-4))
    if options.suite:
        if options.smoke:
            vars(options).update(_HARD_SMOKE)
            options.problem = options.problem or ["tiny"]
        options.problem = options.problem or list(PROBLEMS)
        return options
    if options.smoke:
        vars(options).update(_SMOKE)
        options.rows = options.rows or 3000
    options.problem = options.problem or ([] if options.csr else ["demo"])
    if any(name in MADE for name in options.problem) and options.make is None:
        parser.error("the problems sparse and dense need --make PROGRAM")
    return options


def problems(options: argparse.Namespace, work: Path) -> list[tuple[Problem, Problem | None]]:
    """(problem, the same with all its classes) of all that was asked for; what is not here is left out."""
    found: list[tuple[Problem, Problem | None]] = []
    for folder in options.csr:
        found.append(_in_two(open_problem(folder, folder.resolve().name, work), options, work))
    for name in options.problem:
        if name in REAL and not (options.data_dir / "load.py").exists():
            say(f"{name}: there is no {options.data_dir / 'load.py'}; say --data-dir")
            continue
        found.append(_in_two(make(name, options, work), options, work))
    return found


def make(name: str, options: argparse.Namespace, work: Path) -> Problem:
    """A problem by name, with all its classes."""
    if name in REAL:
        return real_problem(name, options.data_dir, work)
    if name in MADE:
        return make_problem(name, options.make, options.rows, work)
    if name == "tiny":
        return tiny_problem(work, options.rows or TINY_ROWS)
    return demo_problem(options.rows or 200_000, work, 1 if name == "demo" else max(options.classes, 3))


def _in_two(problem: Problem, options: argparse.Namespace, work: Path) -> tuple[Problem, Problem | None]:
    if problem.n_models == 1:
        return problem, None
    return against_rest(problem, work), problem if options.classes > 1 else None


def hard_sources(options: argparse.Namespace, work: Path) -> tuple[list[Source], dict[str, str]]:
    """(problems of the suite, not made yet; why others are left out).  Of many classes, the first against the rest."""
    found: list[Source] = []
    left_out: dict[str, str] = {}

    def opened(folder: Path, here: Path) -> Problem:
        return _one(open_problem(folder, folder.resolve().name, here), here)

    def made(name: str, here: Path) -> Problem:
        return _one(make(name, options, here), here)

    stand_for = {"dense" if (folder / "X.npy").exists() else "sparse" for folder in options.csr}
    for folder in options.csr:
        name = folder.resolve().name
        found.append(Source(name, partial(opened, folder), work / name))
    for name in options.problem:
        if name in REAL and not (options.data_dir / "load.py").exists():
            left_out[name] = "no load.py in --data-dir"
        elif name in MADE and options.make is None:
            if name not in stand_for:
                left_out[name] = "no --make PROGRAM, and no --csr DIR in its place"
        else:
            sized = options.rows and name not in REAL
            shown = f"{name}-{options.rows}" if sized else name
            found.append(Source(shown, partial(made, name), work / shown))
    return found, left_out


def _one(problem: Problem, work: Path) -> Problem:
    return problem if problem.n_models == 1 else against_rest(problem, work)


def hard(options: argparse.Namespace) -> None:
    """The suite `hard`: what is missing in the record, and the report of all that is there."""
    from bench.hard_table import draw, lines
    from bench.hard_table import markdown as report_of

    asked = tuple(peer for peer in options.peers if peer in LADDERS)
    absent = missing_peers(asked)
    settings = HardSettings(
        costs=options.Cs, losses=options.losses, tols=options.tols, limit_s=options.limit,
        peers=tuple(peer for peer in asked if peer not in absent), ladders=SMOKE_LADDERS if options.smoke else LADDERS,
        memory=None if options.memory is None else parse_bytes(options.memory), each_tol=not options.tightest_only,
        cores=options.cores[0], own=options.own,
    )  # fmt: skip
    record = Record(options.json)
    record.about = {"machine": machine(), "settings": settings.__dict__, "not_installed": absent}
    with tempfile.TemporaryDirectory(prefix="bench-hard-", dir=options.work) as folder:
        sources, left_out = hard_sources(options, Path(folder).resolve())
        record.left_out.update(left_out)
        try:
            run_suite(sources, settings, record)
        finally:  # a report of what is there, also of a suite that was stopped
            record.save(lines(record, settings))
            if options.figures:
                write_figures(options.figures, lines(record, settings))
            text = "\n".join([*report_of(record, settings, [PEERS[name] for name in absent]), ""])
            if options.markdown:
                options.markdown.write_text(text)
            else:
                sys.stdout.write(text)
    if options.plot and find_spec("matplotlib") is None:
        say("no plot: matplotlib is not installed")
    elif options.plot:
        draw(options.plot, record)
    if options.smoke and any("error" in run for run in record.runs):
        raise SystemExit("a run failed")


def main() -> None:
    """Measure and report."""
    options = parse()
    runs.forks = options.smoke
    # A child has a session of its own, so that it can be ended with its cage: no signal but ours reaches it.
    if options.suite:
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        try:
            hard(options)
        except KeyboardInterrupt:
            raise SystemExit(130) from None
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    asked = tuple(peer for peer in options.peers if peer in PEERS and not (peer == "sgd" and options.bias != "none"))
    absent = missing_peers(asked)
    report: list[Findings] = []
    axes: list[str] = []
    ratios: list[float] = []
    n_classes, stopped = 0, False
    with tempfile.TemporaryDirectory(prefix="bench-linear-", dir=options.work) as folder:
        work = Path(folder).resolve()
        try:
            for one_class, all_classes in problems(options, work):
                for loss in options.losses:
                    settings = Settings(
                        C=options.C, bias=options.bias, tols=options.tols, cores=options.cores, repeats=options.repeats,
                        limit_s=options.limit, read_rate=_rate(options.throttle),
                        peers=tuple(peer for peer in asked if peer not in absent), ladders=ladders(loss, options.smoke),
                        budget=None if options.memory is None else parse_bytes(options.memory),
                    )  # fmt: skip
                    report.append(run_problem(one_class, loss, settings, work))
                    if all_classes is not None:
                        report.append(run_problem(all_classes, loss, settings, work))
                        axes += model_axis(report[-1], report[-2], settings)
                        ratios += class_ratios(report[-1], report[-2], settings)
                        n_classes = max(n_classes, all_classes.n_models)
        except KeyboardInterrupt:  # what was measured by then is told all the same
            stopped = True
        if not report:
            raise SystemExit("no problem to measure")
        text = "\n".join([*markdown(report, settings, [PEERS[name] for name in absent]), *axes, ""])
        if options.markdown:
            options.markdown.write_text(text)
        else:
            sys.stdout.write(text)
        if options.json:
            write_json(options.json, report, settings, absent)
        if options.figures:
            write_figures(
                options.figures, titled_figures(report, settings), throttle_bytes_per_s=settings.read_rate,
                classes=None if not ratios else {"n": n_classes, "least": min(ratios), "most": max(ratios)},
            )  # fmt: skip
        if options.plot:
            from bench.plot import draw  # matplotlib, only where it is asked for

            draw(options.plot, report)
    if options.smoke and any(findings.errors for findings in report):
        raise SystemExit("a run failed")
    if stopped:
        raise SystemExit(130)


def _rate(text: str | None) -> int | None:
    return None if text is None else parse_bytes(text.removesuffix("/s"))


if __name__ == "__main__":
    main()
