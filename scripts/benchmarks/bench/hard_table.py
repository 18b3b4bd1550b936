"""The hard suite as a report: one table for each problem, loss and C, and the curves behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.hard import HardSettings
from bench.hard_record import Group, Record
from bench.plot import Curve, Panel, Points, draw_panels
from bench.table import MIB, machine

Reach = tuple[float, float | None]  # seconds, passes


def lines(record: Record, settings: HardSettings) -> list[dict[str, Any]]:
    """One line for each solver of each group; ratios to LIBLINEAR's best."""
    found = []
    for group in record.groups():
        runs = record.of(group)
        names = dict.fromkeys(run["solver"] for run in runs)
        here = [_line(record, group, name, [run for run in runs if run["solver"] == name], settings) for name in names]
        theirs = [line for line in here if line["solver"].startswith("LIBLINEAR")]
        for line in here:
            line["ratio_to_liblinear"] = {tol: _ratio(line, theirs, tol) for tol in line["to"]}
        found += here
    return found


def _line(
    record: Record, group: Group, name: str, runs: list[dict[str, Any]], settings: HardSettings
) -> dict[str, Any]:
    done = [run for run in runs if "error" not in run]
    gaps = {id(run): record.gap(run) for run in done}
    line: dict[str, Any] = dict(zip(("problem", "loss", "C"), group, strict=True)) | {"solver": name}
    line["to"] = {f"{tol:g}": _reached(record, done, tol) for tol in settings.tols}
    line["errors"] = [run["error"] for run in runs if "error" in run]
    if not done:
        return line
    best = min(done, key=lambda run: (gaps[id(run)] is None, gaps[id(run)] or 0.0, run["seconds"]))
    line |= {
        "setting": best["rung"], "seconds": best["seconds"], "passes": best["passes"], "gap": gaps[id(best)],
        "proven_gap": best.get("proven_gap"), "status": best.get("status", ""), "mode": best.get("mode", ""),
        "used_solver": best.get("used_solver", ""), "capped": best.get("capped", False),
        "went_on": best.get("went_on", False), "memory_bytes": best["memory_bytes"],
        "longest_s": max(run["seconds"] for run in done), "load_s": best["load_s"],
        "memory_limit": best["cage"].get("kind", ""),
    }  # fmt: skip
    return line


def _reached(record: Record, runs: list[dict[str, Any]], tol: float) -> Reach | None:
    """Cheapest way to a gap: bigsvm's first proof of it, a peer's fastest setting that has it."""
    found: list[Reach] = []
    for run in runs:
        if "trace" in run:
            found += [(seconds, passes) for seconds, passes, proved in run["trace"] if proved <= tol][:1]
            continue
        reached = record.gap(run)
        if reached is not None and reached <= tol:
            found.append((run["seconds"], run["passes"]))
    return min(found, key=lambda one: one[0], default=None)


def _ratio(line: dict[str, Any], theirs: list[dict[str, Any]], tol: str) -> str:
    """Seconds over LIBLINEAR's; '<': LIBLINEAR did not get there in the longest time that it ran."""
    mine = line["to"][tol]
    if mine is None:
        return "-"
    reached = [one["to"][tol][0] for one in theirs if one["to"][tol]]
    if reached:
        return f"{mine[0] / min(reached):.2f}"
    longest = max((one["longest_s"] for one in theirs if "longest_s" in one), default=None)
    return "-" if longest is None else f"<{mine[0] / longest:.2g}"


def markdown(record: Record, settings: HardSettings, absent: list[str]) -> Iterator[str]:
    """The report, line by line."""
    yield f"{machine()}; hard regime; each run a process of its own on one core, limit {settings.limit_s:g} s; no bias."
    yield ""
    asked = "each gap apart" if settings.each_tol else f"{settings.own_tols[0]:g} alone, so that the others come late"
    yield "bigsvm: out of core, in a cgroup of budget + 256 MiB, its working copy dropped from the page cache,"
    yield f"asked for {asked}.  `s to`: the first proof of that gap."
    yield "Peers: rows in memory; of their settings the cheapest that has the gap.  Seconds are of training."
    yield "`last`: the run with the least gap.  `gap`: (P - best proven D) / P, P by one evaluator for all; `proven`:"
    yield "what bigsvm itself proved.  Passes: bytes read over data bytes, proofs included; of LIBLINEAR its own"
    yield "iterations.  `x LIBLINEAR`: seconds over its best at each gap; `<`: it was not there in the longest time"
    yield "that it ran."
    if absent:
        yield f"Not installed, so not measured: {', '.join(absent)}."
    yield from (f"Left out: {name}: {why}." for name, why in record.left_out.items())
    figures = lines(record, settings)
    for group in record.groups():
        yield ""
        yield from _section(record, group, settings, figures)


def _section(record: Record, group: Group, settings: HardSettings, figures: list[dict[str, Any]]) -> Iterator[str]:
    name, loss, C = group
    size, plan = record.problems[name], record.plan_of(group, "auto")
    budget = plan.get("budget", 0)
    yield f"### {name}, {loss}, C = {C:g}"
    yield ""
    yield (
        f"{size['n_samples']:,} x {size['n_features']:,}, {size['nnz']:,} entries, "
        f"{size['data_bytes'] / MIB:,.1f} MiB; budget {budget / MIB:,.1f} MiB ({plan.get('note', '')})"
    )
    yield ""
    to = " | ".join(f"s to {tol:g}" for tol in settings.tols)
    each = " / ".join(f"{tol:g}" for tol in settings.tols)
    yield f"| solver | {to} | passes to {each} | last: seconds | passes | gap | proven | x LIBLINEAR at {each} | note |"
    yield "|---" * (8 + len(settings.tols)) + "|"
    here = [line for line in figures if (line["problem"], line["loss"], line["C"]) == group]
    yield from (_row(line) for line in here)
    notes = [f"{line['solver']} failed: {error}" for line in here for error in line["errors"]]
    first = plan.get("solver", "")
    for solver in settings.own:
        plan = record.plan_of(group, solver)
        if "refused" in plan:
            notes.append(f"bigsvm, {solver} is left out: {plan['refused']}")
        elif solver != "auto" and plan.get("solver") == first:
            notes.append(f"bigsvm, {solver} is what auto chose: see there")
        elif plan and plan["budget"] != budget:
            notes.append(f"bigsvm, {solver}: budget {plan['budget'] / MIB:,.1f} MiB ({plan['note']})")
    if any(line.get("memory_limit") == "RLIMIT_DATA" for line in here):
        notes.append("No cgroup could be made: bigsvm was held by RLIMIT_DATA, anonymous memory alone")
    if notes:
        yield ""
        yield from (f"- {note}." for note in notes)


def _row(line: dict[str, Any]) -> str:
    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    reached = list(line["to"].values())
    used = line.get("used_solver", "")
    name = line["solver"] + (f" ({used})" if used and not line["solver"].endswith(used) else "")
    cells = [
        name, *(number(one and one[0], ".2f") for one in reached),
        " / ".join(number(one and one[1], ".0f") for one in reached),
        number(line.get("seconds"), ".2f"), number(line.get("passes"), ".0f"), number(line.get("gap"), ".1e"),
        number(line.get("proven_gap"), ".1e"), " / ".join(line["ratio_to_liblinear"].values()), _note(line),
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def _note(line: dict[str, Any]) -> str:
    """How the run with the least gap ended, where that is not plain."""
    if "seconds" not in line:
        return "failed"
    if line["used_solver"]:
        resident = ["all rows in memory"] if line["mode"] == "resident" else []
        return ", ".join([*([line["status"]] if line["status"] != "converged" else []), *resident])
    setting = f"max_iter={line['setting']:g}" if line["solver"] == "snapml" else f"-e {line['setting']:g}"
    if line["went_on"]:
        return f"{setting}, iteration cap hit, went on with -s 2"
    return f"{setting}, iteration cap hit" if line["capped"] else setting


def draw(path: Path, record: Record) -> list[Path]:
    """One file for each problem, NAME-PROBLEM.svg: a row of axes for each loss and C."""
    written = []
    for problem in dict.fromkeys(group[0] for group in record.groups()):
        panels = []
        for group in record.groups():
            if group[0] == problem:
                panels.append(Panel("{}, {}, C = {:g}".format(*group), _curves(record, group)))
        written.append(path.with_name(f"{path.stem}-{problem}{path.suffix}"))
        draw_panels(written[-1], panels)
    return written


def _curves(record: Record, group: Group) -> list[Curve]:
    """Proofs and estimates of bigsvm's tightest run, settings of a peer."""
    curves = []
    done = [run for run in record.of(group) if "error" not in run]
    for name in dict.fromkeys(run["solver"] for run in done):
        runs = [run for run in done if run["solver"] == name]
        estimates: Points = []
        if "trace" in runs[0]:
            tightest = min(runs, key=lambda run: run["rung"])
            points, estimates = _drawn(tightest["trace"]), _drawn(tightest["steps"])
        else:
            points = _drawn(sorted((run["seconds"], run["passes"], record.gap(run) or 0.0) for run in runs))
        # A resident run reads its rows once: it has no passes to show.
        curves.append(Curve(name, points, runs[0].get("mode") != "resident", estimates))
    return curves


def _drawn(points: Sequence[Sequence[Any]]) -> Points:
    """What a log axis can show; an estimate may be unknown."""
    return [(seconds, passes, gap) for seconds, passes, gap in points if gap and seconds > 0]
