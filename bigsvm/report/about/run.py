"""Sections about a run: problem, certificate, gap against passes and seconds, time, memory, disk, options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bigsvm.config import DEFAULTS
from bigsvm.report.about.data import kept_back_section
from bigsvm.report.about.sentences import run_sentence, tone
from bigsvm.report.facts import (
    Bar,
    Chart,
    Curve,
    Fact,
    Part,
    Report,
    Section,
    Source,
    Table,
    Told,
    count,
    exact,
    is_number,
    joined,
    number,
    seconds,
    small,
    thinned,
    words,
)
from bigsvm.report.runs import Run
from bigsvm.units import counted, plural, show_bytes

_PROOFS_SHOWN = 40
_SPENT = {
    "plan": "planning",
    "compile": "compiling",
    "staging": "reading and staging",
    "solving": "solving",
    "certify": "proofs",
    "checkpoints": "checkpoints",
}
"""Parts of the total time, in the order in which a fit begins them; waiting for the disk is part of them."""


def run_report(run: Run) -> Report:
    """The report on a run, from its record."""
    document = {**run.record, "result": run.result} if run.result else run.record
    source = Source("run", document)
    last = _event(run.certificates[-1]) if run.certificates else None
    status = run.status
    report = Report(
        kind="run",
        name=str(run.folder),
        title=_title(source, run),
        lead=tuple(run_sentence(status, source, last, _asked(source, run))),
        tone=tone(status),
        warnings=_warnings(run),
    )
    sections = (
        _problem(source, run, status),
        _proof(source, run),
        kept_back_section(source),
        _falling(run),
        _time(source, run),
        _memory(source, run),
        _disk(source),
        _models(source),
        _options(run),
    )
    report.sections.extend(section for section in sections if section is not None)
    return report


def _title(source: Source, run: Run) -> str:
    what = source.get("store") or (source.get("job") or {}).get("store")
    name = Path(str(what).rstrip("/")).name if what else run.folder.name
    return f"A fit of {name}"


def _event(event: dict[str, Any]) -> Source:
    """An event as a source of numbers with paths `event:LINE.name`."""
    return Source(f"event:{event['line']}", event)


def _warnings(run: Run) -> list[str]:
    found = [str(event.get("message")) for event in run.of_kind("Warned")]
    hint = run.result.get("hint")
    return list(dict.fromkeys([*found, *([f"hint: {hint}"] if hint else [])]))


def _problem(source: Source, run: Run, status: str) -> Section:
    """The data and the problem."""
    result, plan = run.result, run.plan
    shape = source if result else Source(f"event:{run.started.get('line', 0)}", run.started)
    at = "result" if result else "plan"
    facts = [*words("status", status), *words("store", source.get("store"))]
    if result or plan:
        n, d, nnz = (shape.get(f"{at}.{name}") for name in ("n_samples", "n_features", "nnz"))
        rows = Told(f"{plural(n, 'row')} ×")
        values = [shape.told(f"{at}.n_samples", count), rows, shape.told(f"{at}.n_features", count)]
        if nnz is not None:
            entries = Told(plural(nnz, "entry", "entries"))
            values += [Told(f"{plural(d, 'feature')},"), shape.told(f"{at}.nnz", count), entries]
        facts.append(Fact("data", (*values,)))
    facts += source.fact("trained on rows", "result.n_trained", count)
    facts += source.fact("rows scored for the probabilities", "result.calibration.n_rows", count)
    facts += words("read as", _read_as((source.get("job") or {}).get("rows") or {}))
    facts += _classes(source)
    facts += words("loss", result.get("loss") or run.config.get("loss"))
    facts += source.fact("C", "result.C") or source.fact("C", "job.config.C")
    facts += words("bias", result.get("bias"))
    if result.get("kernel") not in (None, "linear"):
        parameters = [name for name in ("gamma", "degree", "coef0") if isinstance(result.get(name), int | float)]
        values = [Told(str(result["kernel"]))]
        for name in parameters:
            values += [Told(name), source.told(f"result.{name}")]
        facts.append(Fact("kernel", (*values,)))
    facts += words("solver", result.get("solver") or plan.get("solver"))
    facts += words("why this solver", plan.get("why"))
    facts += words("model", source.get("model"))
    facts += words("began", source.get("began")) + words("ended", source.get("ended"))
    facts += words("machine", source.get("host"))
    versions = run.started.get("versions") or {}
    facts += words("versions", ", ".join(f"{name} {version}" for name, version in versions.items()))
    facts += words("content of the store", result.get("content_fingerprint"))
    return Section("Problem and data", facts)


def _read_as(asked: dict[str, Any]) -> str:
    """The options with which rows were read, in words."""
    shown = {name: joined(value, 4) if isinstance(value, list) else value for name, value in asked.items()}
    return ", ".join(f"{name} {value}" for name, value in shown.items() if isinstance(value, str | float | int))


def _classes(source: Source) -> list[Fact]:
    classes = source.get("result.classes")
    if classes is None:
        return []
    return words("classes", joined(classes) if classes else "none: it predicts values")


def _asked(source: Source, run: Run) -> Told | None:
    """The tolerance, from the job, or from the first event if the record has no job."""
    for where in (source, _event(run.started) if run.started else None):
        for path in ("job.config.tol", "config.tol"):
            if where is not None and is_number(where.get(path)):
                return where.told(path, small)
    return None


def _proof(source: Source, run: Run) -> Section | None:
    """The figures of the certificate."""
    if source.get("result.relative_gap") is None:
        return None
    facts = [
        *source.fact("objective of the model", "result.objective", exact),
        *source.fact("best dual value", "result.dual_objective", exact),
        *source.fact("duality gap", "result.duality_gap", small),
        *source.fact("relative gap", "result.relative_gap", small),
        *([Fact("asked for", (asked,))] if (asked := _asked(source, run)) is not None else []),
        *words("certificate", source.get("result.certificate")),
        *source.fact("violation", "result.violation", small),
        *source.fact("support vectors", "result.n_support", count),
        *source.fact("passes over the data", "result.passes"),
        *source.fact("of them for proofs", "result.certificate_passes"),
        *source.fact("epochs", "result.epochs"),
        *source.fact("iterations", "result.iterations", count),
    ]
    note = (
        "relative gap = (P − D) / P, where P is the objective of the written model, and D the best dual value, a lower "
        "bound for the objective of any model. bigsvm certify proves it again from the saved model."
    )
    return Section("The certificate", facts, note=note)


def _falling(run: Run) -> Section | None:
    """Gap against passes and against seconds, as charts and a table."""
    proofs, steps = run.certificates, run.estimates
    if not proofs and not steps:
        return None
    tol = run.config.get("tol")
    level = ("asked for", float(tol)) if isinstance(tol, int | float) else None
    charts = []
    for field, words_ in (("passes", "passes over the data"), ("wall_s", "seconds of training")):
        if field == "passes" and _standing(proofs + steps, field):
            field, words_ = "epochs", "epochs (row visits / rows)"  # rows in memory are read only once
        curves = []
        if steps:
            curves.append(Curve("estimated by the solver", *_points(steps, field, "gap_estimate"), faint=True))
        if proofs:
            curves.append(Curve("proved", *_points(proofs, field, "relative_gap")))
        curves = [curve for curve in curves if curve.y]
        told = ""
        if proofs:
            first, last = proofs[0], proofs[-1]
            told = f"One proof: {last['relative_gap']:.3g} at {number(last[field], 3)} {words_}."
        if len(proofs) > 1:
            told = (
                f"The proved gap falls from {first['relative_gap']:.3g} at {number(first[field], 3)} {words_} to "
                f"{last['relative_gap']:.3g} at {number(last[field], 3)}."
            )
        charts.append(
            Chart(f"Relative gap against {words_}", words_, "relative gap", curves, True, level=level, told=told)
        )
    return Section("How the gap fell", charts=charts, tables=_proof_table(proofs))


def _standing(events: list[dict[str, Any]], field: str) -> bool:
    """Whether a field has the same value in all events."""
    return len({event[field] for event in events}) <= 1


def _points(events: list[dict[str, Any]], x: str, y: str) -> tuple[list[float], list[float]]:
    """The points that a logarithmic axis can show."""
    shown = [event for event in events if event[y] > 0]
    return [event[x] for event in shown], [event[y] for event in shown]


def _proof_table(proofs: list[dict[str, Any]]) -> list[Table]:
    if not proofs:
        return []
    chosen = thinned(len(proofs), _PROOFS_SHOWN)
    rows = []
    for k in chosen:
        event = _event(proofs[k])
        rows.append(
            [
                event.told("passes"),
                event.told("epochs"),
                event.told("wall_s", seconds),
                event.told("objective", exact),
                event.told("dual_objective", exact),
                event.told("relative_gap", small),
            ]
        )
    some = "" if len(chosen) == len(proofs) else f" ({len(chosen)} of {len(proofs)}, evenly)"
    head = ["pass", "epoch", "time", "objective", "dual value", "relative gap"]
    return [Table(head, rows, f"All proofs{some}", folded=True)]


def _time(source: Source, run: Run) -> Section | None:
    """The time of the parts of a fit."""
    total = source.size("result.seconds.total")
    if total <= 0:
        return None
    parts = [
        Part(name, source.size(f"result.seconds.{key}"), source.told(f"result.seconds.{key}", seconds))
        for key, name in _SPENT.items()
        if source.size(f"result.seconds.{key}") > 0
    ]
    rest = total - sum(part.size for part in parts)
    if rest > 0.005 * total:
        parts.append(Part("the rest", rest, Told(seconds(rest))))
    waited, solving = source.size("result.seconds.io_wait"), source.size("result.seconds.solving")
    bars = [Bar("Total", max(total, sum(part.size for part in parts)), parts)]
    if waited > 0:
        computed = max(solving - waited, 0.0)
        bars.append(
            Bar(
                "Solving and proofs: waiting for the disk, or computing",
                max(solving, waited),
                [
                    Part("waiting for the disk", waited, source.told("result.seconds.io_wait", seconds)),
                    Part("computing", computed, Told(seconds(computed))),
                ],
            )
        )
    n = len(run.of_kind("FitStarted"))
    note = f"The fit was resumed {n - 1} times; these are the seconds of its last process." if n > 1 else ""
    note = note.replace("1 times", "once") if n == 2 else note
    return Section("Where the time went", source.fact("in all", "result.seconds.total", seconds), bars, note=note)


def _memory(source: Source, run: Run) -> Section | None:
    """Peak memory against the budget, and what reserved it."""
    bars, facts = [], []
    if source.get("result.memory.budget_bytes") is not None:
        budget = source.size("result.memory.budget_bytes")
        held = max(0.0, source.size("result.memory.peak_anon_bytes") - source.size("result.memory.base_bytes"))
        most = Part("peak", held, Told(show_bytes(held)))
        bars.append(Bar("Peak and budget", max(budget, held), [most]))
        facts = [
            *source.fact("budget", "result.memory.budget_bytes", show_bytes),
            Fact("peak above the base", (Told(f"{show_bytes(held)}, {100 * held / max(budget, 1):.3g} %"),)),
            *source.fact("base (interpreter, libraries, compiled code)", "result.memory.base_bytes", show_bytes),
            *source.fact("peak anonymous memory", "result.memory.peak_anon_bytes", show_bytes),
            *source.fact("peak resident memory, mapped files included", "result.memory.peak_rss_bytes", show_bytes),
        ]
    reports = run.of_kind("BudgetReport")
    if reports and reports[-1]["holders"]:
        event = _event(reports[-1])
        parts = [
            Part(str(name), nbytes, event.told(f"holders.{k}.1", show_bytes))
            for k, (name, nbytes) in enumerate(reports[-1]["holders"])
            if nbytes > 0
        ]
        bars.append(Bar("Reserved parts of the budget", max(sum(part.size for part in parts), 1.0), parts))
    return Section("Memory", facts, bars) if facts or bars else None


def _disk(source: Source) -> Section | None:
    """Bytes read, scratch space, and where kernel rows came from."""
    if source.get("result.bytes_read") is None:
        return None
    facts = [
        *source.fact("data, as the solver reads it", "result.data_bytes", show_bytes),
        *source.fact("read for training and proofs", "result.bytes_read", show_bytes),
        *source.fact("scratch: state, copies, cached rows", "result.scratch_bytes", show_bytes),
    ]
    bars = []
    rows = ("computed", "ram_hits", "disk_hits")
    asked = sum(source.size(f"result.kernel_rows.{name}") for name in rows)
    if asked > 0:
        told = ("computed", "found in memory", "found on disk")
        parts = [
            Part(name, source.size(f"result.kernel_rows.{key}"), source.told(f"result.kernel_rows.{key}", count))
            for key, name in zip(rows, told, strict=True)
        ]
        bars.append(Bar("Rows of kernel values", asked, parts))
        facts += source.fact("kernel values", "result.kernel_values", count)
    return Section("Disk and caches", facts, bars)


def _models(source: Source) -> Section | None:
    """A table with a line for each model, if there are several."""
    models = source.get("result.models")
    if not isinstance(models, list) or len(models) < 2:
        return None
    rows = []
    for m, entry in enumerate(models):
        against = f" against {entry['against']}" if "against" in entry else ""
        at = f"result.models.{m}"
        rows.append(
            [
                Told(f"{entry.get('class')}{against}"),
                source.told(f"{at}.objective", exact),
                source.told(f"{at}.duality_gap", small),
                source.told(f"{at}.relative_gap", small),
                source.told(f"{at}.n_support", count),
            ]
        )
    head = ["class", "objective", "duality gap", "relative gap", "support vectors"]
    folded = len(rows) > 12
    return Section("Each of the models", tables=[Table(head, rows, counted(len(rows), "model"), folded=folded)])


def _options(run: Run) -> Section | None:
    """The options that differ from their defaults, and a table of all options."""
    config = run.config
    if not config:
        return None
    changed = {n: v for n, v in config.items() if v is not None and v != DEFAULTS.get(n) and v != {}}
    facts = [Fact(name, (_option(value),)) for name, value in changed.items()]
    rows = [[Told(name), _option(value)] for name, value in config.items()]
    note = "" if facts else "All options have their default values."
    return Section("Options other than the defaults", facts, tables=_table(rows), note=note)


def _table(rows: list[list[Told]]) -> list[Table]:
    return [Table(["option", "value"], rows, "All options", folded=True)]


def _option(value: Any) -> Told:
    if isinstance(value, float):
        return Told(number(value, 8))
    return Told("-" if value is None else str(value))
