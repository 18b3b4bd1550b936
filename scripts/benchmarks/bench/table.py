"""Runs as figures: medians, the time to each gap, Markdown and JSON."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.plan import IN_MEMORY, OUT_OF_CORE, THROTTLED, Findings, Measured, Settings, lines_of

MIB = 1 << 20


@dataclass(frozen=True)
class Reached:
    """A gap that was met: medians over the rounds."""

    seconds: float
    cpu_seconds: float | None
    passes: float | None
    rung: float
    rounds: int
    bytes_read: float | None
    mode: str


def reached(findings: Findings, solver: str, cores: int, tol: float) -> Reached | None:
    """The cheapest setting that met a gap in every round it ran; for bigsvm the run that was asked for it."""
    by_rung: dict[float, list[Measured]] = {}
    for point in findings.points:
        if (point.solver, point.cores) == (solver, cores):
            by_rung.setdefault(point.rung, []).append(point)
    found = []
    for rung, points in by_rung.items():
        if "proven_gap" in points[0].about:
            met = rung == tol and all(point.about["proven_gap"] <= tol for point in points)
        else:
            met = all(findings.gap(point) <= tol for point in points)
        if met:
            seconds = statistics.median(point.seconds for point in points)
            read = [point.about["bytes_read"] for point in points if "bytes_read" in point.about]
            bytes_read = statistics.median(read) if read else None
            used = [point.cpu_seconds for point in points if point.cpu_seconds is not None]
            cpu_seconds = statistics.median(used) if used else None
            mode = points[0].about.get("mode", "")
            found.append(Reached(seconds, cpu_seconds, points[0].passes, rung, len(points), bytes_read, mode))
    return min(found, key=lambda one: one.seconds, default=None)


def figures(findings: Findings, settings: Settings) -> list[dict[str, Any]]:
    """One line for each solver and number of cores."""
    lines = []
    for solver, cores in lines_of(findings):
        mine = [point for point in findings.points if (point.solver, point.cores) == (solver, cores)]
        line: dict[str, Any] = {
            "problem": findings.problem.name, "loss": findings.loss, "solver": solver, "cores": cores,
            "error": findings.errors.get((solver, cores), ""),
        }  # fmt: skip
        if mine:
            tightest = min(mine, key=findings.gap)
            loads = [point.about["load_s"] for point in mine]
            line |= {
                "bring_in_s": None if solver in (OUT_OF_CORE, THROTTLED) else statistics.median(loads),
                "gap": _finite(findings.gap(tightest)),
                "objective": float(tightest.primal.sum()),
                "proven_gap": tightest.about.get("proven_gap"),
                "memory_bytes": max(point.about["memory_bytes"] for point in mine),
                "mode": tightest.about.get("mode", ""),
                "memory_limit": tightest.about["cage"].get("kind", ""),
            }
        if solver == OUT_OF_CORE and cores in findings.first_fits:
            line["first_fit_s"] = statistics.median(about["total_s"] for about in findings.first_fits[cores])
        line["to"] = {
            f"{tol:g}": one.__dict__ for tol in settings.tols if (one := reached(findings, solver, cores, tol))
        }
        lines.append(line)
    return lines


def titled_figures(several: list[Findings], settings: Settings) -> list[dict[str, Any]]:
    """All lines, each with its problem as a page names it: what README is made of."""
    rows = []
    for findings in several:
        problem = findings.problem
        title = f"{problem.name}, {problem.n_samples:,} x {problem.n_features:,}"
        title += f", {problem.n_models} classes" if problem.n_models > 1 else ""
        rows += [{"title": title, **line} for line in figures(findings, settings)]
    return rows


def markdown(several: list[Findings], settings: Settings, absent: list[str]) -> Iterator[str]:
    """The whole report, line by line."""
    yield (
        f"{machine()}; medians of {settings.repeats}, each run in a fresh process pinned to its cores; "
        f"C = {settings.C:g}, bias {settings.bias}."
    )
    yield ""
    yield "Seconds are of training: for bigsvm, of a fit whose rows are in memory or whose working copy is finished;"
    yield f"`first fit` is a whole fit to {settings.first_tol:g} with an empty scratch folder.  Out-of-core runs start"
    yield "cold: store or working copy dropped from the page cache.  Peers: the cheapest of their settings that met the"
    yield "gap.  `gap` is (P - best proven D) / P, P by one evaluator for all; `proven` is what bigsvm itself proved."
    yield "Passes: bytes read / data bytes, certificates included (peers: their own count).  CPU: of all threads, while"
    yield "training."
    if absent:
        yield f"Not installed, so not measured: {', '.join(absent)}."
    for findings in several:
        yield ""
        yield from _section(findings, settings)


def _section(findings: Findings, settings: Settings) -> Iterator[str]:
    problem = findings.problem
    yield f"### {problem.name}, {findings.loss}"
    yield ""
    yield (
        f"{problem.n_samples:,} x {problem.n_features:,}, {problem.nnz:,} entries, {problem.data_bytes / MIB:,.1f} MiB"
        + (f", {problem.n_models} models" if problem.n_models > 1 else "")
        + f"; budget out of core {findings.budget / MIB:,.1f} MiB ({findings.note})"
    )
    lines = figures(findings, settings)
    yield ""
    yield f"The machine before and after each round: {'; '.join(str(speed) for speed in findings.speeds)}."
    yield from _notes(lines)
    yield ""
    to = " | ".join(f"s to {tol:g}" for tol in settings.tols)
    passes = " / ".join(f"{tol:g}" for tol in settings.tols)
    head = f"| solver | cores | bring in, s | first fit, s | {to} | CPU s to {passes} | passes to {passes} "
    yield head + "| proven | gap | memory, MiB |"
    yield "|---" * (9 + len(settings.tols)) + "|"
    for line in lines:
        yield _row(line, settings)
    failed = [line for line in lines if line["error"]]
    if failed:
        yield ""
        yield from (f"{line['solver']}, {line['cores']} core(s), failed: {line['error']}" for line in failed)
    yield from _throttled(findings, settings)


def _notes(lines: list[dict[str, Any]]) -> Iterator[str]:
    for line in lines:
        if line["solver"] != OUT_OF_CORE or "mode" not in line:
            continue
        if line["mode"] == "resident":
            yield "The budget holds these rows: the run called out of core read them once, too."
        if line["memory_limit"] == "cgroup":
            yield "Out-of-core runs were held by a cgroup to budget + 256 MiB, page cache included."
        else:
            yield "No cgroup could be made: out-of-core runs were held by RLIMIT_DATA, anonymous memory alone."
        return


def _row(line: dict[str, Any], settings: Settings) -> str:
    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    to = [line["to"].get(f"{tol:g}") for tol in settings.tols]
    cpu = " / ".join(number(one and one["cpu_seconds"], ".1f") for one in to)
    if line["solver"] == IN_MEMORY:
        passes = "in RAM"
    else:
        passes = " / ".join(number(one and one["passes"], ".0f") for one in to)
    cells = [
        line["solver"], str(line["cores"]),
        number(line.get("bring_in_s"), ".2f"), number(line.get("first_fit_s"), ".2f"),
        *(number(one and one["seconds"], ".2f") for one in to), cpu, passes,
        number(line.get("proven_gap"), ".1e"), number(line.get("gap"), ".1e"),
        number(("memory_bytes" in line and line["memory_bytes"] / MIB) or None, ".0f"),
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def _throttled(findings: Findings, settings: Settings) -> Iterator[str]:
    """Time under the throttle against the time that the bytes alone take at its rate."""
    raw, rate = findings.raw_throttled, settings.read_rate
    if not raw or rate is None:
        return
    yield ""
    if "error" in raw:
        yield f"Throttle of {rate / 1e6:.0f} MB/s: {raw['error']}"
        return
    speed = raw["bytes_read"] / raw["total_s"] / 1e6
    yield f"Throttle of {rate / 1e6:.0f} MB/s by the block-I/O controller; a raw read of the copy came at {speed:.0f}."
    yield ""
    yield "| cores | gap | seconds | bytes read | seconds of the bytes alone | ratio |"
    yield "|---|---|---|---|---|---|"
    for cores in settings.cores:
        for tol in settings.tols:
            if one := reached(findings, THROTTLED, cores, tol):
                assert one.bytes_read is not None
                alone = one.bytes_read / rate
                yield (
                    f"| {cores} | {tol:g} | {one.seconds:.2f} | {one.bytes_read:,.0f} | {alone:.2f} | "
                    f"{one.seconds / alone:.2f} |"
                )


def class_ratios(many: Findings, one: Findings, settings: Settings) -> list[float]:
    """Of bigsvm, seconds of all classes over those of one, where both are held in the same way."""
    found = []
    for solver, cores in lines_of(many):
        for tol in settings.tols if solver in (IN_MEMORY, OUT_OF_CORE) else ():
            all_classes, single = reached(many, solver, cores, tol), reached(one, solver, cores, tol)
            if all_classes and single and all_classes.mode == single.mode:
                found.append(all_classes.seconds / single.seconds)
    return found


def model_axis(many: Findings, one: Findings, settings: Settings) -> Iterator[str]:
    """Time of all classes over time of one class against the rest, of the same rows."""
    yield ""
    yield f"### {many.problem.name}, {many.loss}: {many.problem.n_models} classes over one"
    yield ""
    yield "| solver | cores | " + " | ".join(f"ratio at {tol:g}" for tol in settings.tols) + " |"
    yield "|---" * (2 + len(settings.tols)) + "|"
    for solver, cores in lines_of(many):
        cells = []
        for tol in settings.tols:
            all_classes, single = reached(many, solver, cores, tol), reached(one, solver, cores, tol)
            if all_classes and single and all_classes.mode == single.mode:
                cells.append(f"{all_classes.seconds / single.seconds:.1f}")
            else:  # not reached, or rows in memory on one side only: nothing to compare
                cells.append("-")
        yield f"| {solver} | {cores} | " + " | ".join(cells) + " |"


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None


def machine() -> str:
    """What was measured on."""
    model = next(
        (x.split(":", 1)[1].strip() for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x),
        platform.machine(),
    )
    return f"{model}, {len(os.sched_getaffinity(0))} cores"


def document(several: list[Findings], settings: Settings, absent: list[str]) -> dict[str, Any]:
    """Everything, for programs: lines of the tables, and every run."""
    return {
        "machine": machine(),
        "settings": settings.__dict__,
        "not_installed": absent,
        "lines": [line for findings in several for line in figures(findings, settings)],
        "problems": [
            {
                "name": f.problem.name, "loss": f.loss, "n_samples": f.problem.n_samples,
                "n_features": f.problem.n_features, "nnz": f.problem.nnz, "data_bytes": f.problem.data_bytes,
                "n_models": f.problem.n_models, "budget": f.budget, "budget_note": f.note,
                "best_dual": None if f.dual is None else f.dual.tolist(), "raw_throttled": f.raw_throttled,
                "first_fits": f.first_fits, "speeds": [speed._asdict() for speed in f.speeds],
                "errors": [{"solver": solver, "cores": cores, "error": e} for (solver, cores), e in f.errors.items()],
                "runs": [
                    {**p.__dict__, "primal": p.primal.tolist(), "gap": _finite(f.gap(p))} for p in f.points
                ],
            }
            for f in several
        ],
    }  # fmt: skip


def write_json(path: Path, several: list[Findings], settings: Settings, absent: list[str]) -> None:
    """Write `document`."""
    path.write_text(json.dumps(document(several, settings, absent), indent=1) + "\n")
