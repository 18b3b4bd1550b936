"""Figures as they stand in README and docs: each passage is a function of one JSON file of `docs/figures`."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bench import cluster_tables
from bench.ideas import cells, digits

MIB = 1 << 20
OUT_OF_CORE, IN_MEMORY, THROTTLED = "bigsvm, out of core", "bigsvm, in memory", "bigsvm, out of core, throttled"
Document = dict[str, Any]
Row = dict[str, Any]


class Passage(NamedTuple):
    """figures : the JSON file, without its ending;  render : its lines"""

    figures: str
    render: Callable[[Document], list[str]]


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines]


def paragraph(text: str) -> list[str]:
    """Text in lines as long as the house's."""
    return textwrap.wrap(" ".join(text.split()), 118, break_long_words=False, break_on_hyphens=False)


def measured(document: Document) -> list[str]:
    """At which commit, on what, and by which command; what no script measures says so."""
    command = document["command"]
    how = f"by `{command}`" if command else "by hand: no script of the repository makes it again"
    return ["", *paragraph(f"Measured at commit {document['commit']} {how}; {document['machine']}.")]


def _number(value: float) -> str:
    """4.1, 15, 240: two digits where there are few."""
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


# -- linear solvers


def _groups(rows: list[Row], *names: str) -> dict[tuple[Any, ...], dict[str, Row]]:
    """Rows by some of their fields, in their order, and then by solver."""
    found: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), {})[row["solver"]] = row
    return found


def _time(row: Row | None, tol: str) -> float | None:
    return None if row is None or not row["to"].get(tol) else row["to"][tol]["seconds"]


def linear(document: Document) -> list[str]:
    """Seconds to a gap of 1e-3: ours out of core and in memory, and the peers; the fewest of a line are bold."""
    lines = []
    for (title, loss, cores), by in _groups(document["rows"], "title", "loss", "cores").items():
        compared = (OUT_OF_CORE, IN_MEMORY, "LIBLINEAR", "snapml")
        times = {solver: _time(by.get(solver), "0.001") for solver in compared}
        fewest = min((seconds for seconds in times.values() if seconds is not None), default=None)
        cells = {}
        for solver, seconds in times.items():
            if seconds is None:
                cells[solver] = "did not reach it" if solver in by else ""
                continue
            memory = by[solver].get("memory_bytes")
            text = f"{seconds:.1f} s" + (f", {memory / MIB:.0f} MiB" if memory else "")
            cells[solver] = f"**{text}**" if seconds == fewest else text
        ours = by.get(OUT_OF_CORE, {})
        passes = ours["to"]["0.001"]["passes"] if times[OUT_OF_CORE] is not None else None
        first = ours.get("first_fit_s")
        lines.append([
            title, loss.replace("_", " "), cores, cells[OUT_OF_CORE], "" if passes is None else f"{passes:.0f}",
            "" if first is None else f"{first:.1f} s", cells[IN_MEMORY], cells["LIBLINEAR"], cells["snapml"],
        ])  # fmt: skip
    head = [
        "problem", "loss", "cores", OUT_OF_CORE, "passes", "first fit", IN_MEMORY, "LIBLINEAR", "snapml",
    ]  # fmt: skip
    return [*table(head, lines), *measured(document)]


def linear_at_a_glance(document: Document) -> list[str]:
    """One line a problem, the hinge loss on most cores; whoever has the fewest seconds is bold, be it a peer."""
    lines = []
    most = max(row["cores"] for row in document["rows"])
    chosen = [row for row in document["rows"] if row["cores"] == most and row["loss"] == "hinge"]
    for (title,), by in _groups(chosen, "title").items():
        compared = (OUT_OF_CORE, IN_MEMORY, "LIBLINEAR", "snapml")
        times = {solver: _time(by.get(solver), "0.001") for solver in compared}
        fewest = min((seconds for seconds in times.values() if seconds is not None), default=None)
        cells = ["did not reach it" if seconds is None else f"{seconds:.1f} s" for seconds in times.values()]
        lines.append([
            title,
            *(f"**{cell}**" if seconds is not None and seconds == fewest else cell
              for cell, seconds in zip(cells, times.values(), strict=True)),
        ])  # fmt: skip
    return [*table(["problem", OUT_OF_CORE, IN_MEMORY, "LIBLINEAR", "snapml"], lines), *measured(document)]


def linear_gaps(document: Document) -> list[str]:
    """The problems that were taken to several gaps, and what a throttled disk makes of them."""
    lines, rate = [], document.get("throttle_bytes_per_s")
    for row in document["rows"]:
        tols = [tol for tol in ("0.01", "0.001", "0.0001") if row["to"].get(tol)]
        if len(tols) < 2:
            continue
        cells = []
        for tol in ("0.01", "0.001", "0.0001"):
            one = row["to"].get(tol)
            text = "" if not one else f"{one['seconds']:.1f} s"
            if one and one.get("passes") and row["solver"] == OUT_OF_CORE:
                text = f"{one['passes']:.0f} passes, {text}"
            if one and row["solver"] == THROTTLED and rate:
                ratio = one.get("over_bytes") or one["seconds"] / (one["bytes_read"] / rate)
                text += f", {ratio:.2f} times the bytes alone"
            cells.append(text)
        solver = row["solver"].replace("throttled", f"disk at {rate / 1e6:.0f} MB/s") if rate else row["solver"]
        lines.append([row["title"], row["loss"].replace("_", " "), row["cores"], solver, *cells])
    return table(["problem", "loss", "cores", "solver", "to 1e-2", "to 1e-3", "to 1e-4"], lines)


def linear_classes(document: Document) -> list[str]:
    """How much longer all classes take than one."""
    one = document["classes"]
    text = f"{one['n']} classes take {one['least']:.0f} to {one['most']:.0f} times as long as one class"
    return paragraph(f"{text} (measured at commit {document['commit']}).")


def solvers(document: Document, some: Callable[[Row], bool] = lambda row: True) -> list[str]:
    """Passes and seconds of every solver to each gap."""
    heads = document["tols"]
    lines = []
    for row in filter(some, document["rows"]):
        cells = [""] * len(heads)
        for k, tol in enumerate(heads):
            if tol in row["reached"]:
                passes, seconds = row["reached"][tol]
                cells[k] = f"{passes:.0f} passes, {seconds:.1f} s"
        if row["why_not"]:
            cells[min(len(row["reached"]), len(cells) - 1)] = row["why_not"]
        memory = f"{row['memory'] / MIB:.0f} MiB" if row["memory"] else ""
        lines.append([row["problem"], row["loss"], row["solver"], *cells, memory])
    return [
        *table(["problem", "loss", "solver", *(f"to {tol}" for tol in heads), "memory"], lines),
        *measured(document),
    ]


def best_solvers(document: Document) -> list[str]:
    """Those that `auto` chooses from."""
    names = ("dcd", "hyperpass direction=lbfgs", "newton", "pcd")
    return solvers(document, lambda row: row["solver"] in names and bool(row["reached"]))


def hard(document: Document) -> list[str]:
    """newton-ws, dcd and LIBLINEAR where C is large: to 1e-3, or how far they came."""
    columns = {"newton-ws": "newton-ws", "dcd with momentum": "dcd", "LIBLINEAR": "LIBLINEAR", "snapml": "snapml"}
    lines: dict[tuple[Any, ...], dict[str, list[str]]] = {}
    for row in document["rows"]:
        cells = lines.setdefault((row["problem"], row["loss"], row["C"]), {})
        name = row.get("used_solver") or row["solver"].split(", ")[-1]  # of auto the one that it chose
        for head, wanted in columns.items():
            if name.startswith(wanted) and (head not in cells or not row["solver"].startswith("bigsvm")):
                cells.setdefault(head, []).append(_how_far(row))
    rows = [
        [f"{problem}, {loss.replace('_', ' ')}, {C:g}", *("; ".join(cells.get(head, [])) for head in columns)]
        for (problem, loss, C), cells in lines.items()
    ]
    return [*table(["set, loss, C", *columns], rows), *measured(document)]


def _how_far(row: Row) -> str:
    if "seconds" not in row and not row["to"].get("0.001"):
        return "failed"
    ours, given = row["solver"].startswith("bigsvm"), row.get("setting", "")
    setting = "" if ours or given == "" else f"{given}: " if isinstance(given, str) else f"at {given:g}: "
    reached = row["to"].get("0.001")
    if reached:
        seconds, passes = reached
        return setting + (f"{_number(passes)} passes, " if ours and passes is not None else "") + f"{seconds:.1f} s"
    if row.get("gap") is None:
        return f"{setting}not done after {row['seconds']:.0f} s"
    return f"{setting}{'at its limit, ' if row.get('capped') else ''}gap {row['gap']:.1e} after {row['seconds']:.1f} s"


# -- kernels

_PEERS = {"scikit-learn SVC": ("sklearn", "sklearn-dense"), "scikit-learn-intelex": ("sklearnex", "sklearnex-dense")}


def kernels(document: Document) -> list[str]:
    """Ours beside each peer on the rows, sparse or dense, with which it is faster."""
    lines = []
    for (title,), by in _groups(document["rows"], "title").items():
        ours = by["bigsvm"]
        cells, ratios = [_fit(ours)], []
        for variants in _PEERS.values():
            there = [by[name] for name in variants if name in by and "seconds" in by[name]]
            if not there:
                cells.append("not measured")
                continue
            fastest = min(there, key=lambda row: row["seconds"])
            rows = "dense" if fastest["solver"].endswith("dense") else "sparse"
            cells.append(f"{_fit(fastest)}, {rows} rows")
            ratios.append(f"{fastest['seconds'] / ours['seconds']:.1f}")
        theirs = by.get("sklearn", by.get("sklearn-dense", {})).get("n_support")
        support = f"{ours['n_support']:,}" + (f" ({theirs:,})" if theirs else "")
        if "bigsvm-2" in by:
            cells[0] += f"; {by['bigsvm-2']['seconds']:.2f} s on two cores"
        lines.append([title, *cells, ", ".join(ratios), support])
    tried = sorted({row["solver"] for row in document["rows"] if not row["solver"].startswith("bigsvm")})
    head = ["problem", "bigsvm", *_PEERS, "ratios", "support vectors (SVC)"]
    return [*table(head, lines), *measured(document), *paragraph(f"Peers that were run: {', '.join(tried)}.")]


def _fit(row: Row) -> str:
    digits = 2 if row["seconds"] < 10 else 1
    return f"{row['seconds']:.{digits}f} s, {row['fit_bytes'] / 1e6:.0f} MB"


def kernels_streamed(document: Document) -> list[str]:
    """A fit with a kernel on rows larger than memory."""
    lines = [
        [f"{row['memory_bytes'] / MIB:.0f} MiB", f"{row['used_bytes'] / MIB:.0f} MiB", f"{row['passes']:.1f}",
         f"{row['n_support']:,}", f"{row['cpu_seconds']:.0f} s"]
        for row in sorted(document["rows"], key=lambda row: -row["memory_bytes"])
    ]  # fmt: skip
    return [*table(["memory", "of it used", "passes", "support vectors", "CPU"], lines), *measured(document)]


def pairs(document: Document) -> list[str]:
    """Many classes with a kernel on rows larger than memory, beside SVC with all memory."""
    lines = [
        [row["solver"], f"{row['passes']:.1f}" if "passes" in row else "in memory", f"{row['cpu_seconds']:.0f} s",
         f"{row['used_bytes'] / MIB:.0f} MiB" if "used_bytes" in row else "", f"{row['alike']:.1%}"]
        for row in document["rows"]
    ]  # fmt: skip
    head = ["solver", "passes", "CPU", "memory", "predictions like bigsvm's"]
    return [*table(head, lines), *measured(document)]


def kernel_cache(document: Document) -> list[str]:
    """Kernel rows without a cache, with one in memory, and with a disk behind it; what that is worth."""
    rows = [
        [row["problem"], f"{row['row_bytes'] / 1000:.0f} kB", row["kind"], f"{row['seconds']:.2f}",
         f"{row['computed']:,}", f"{row['ram_hits']:,}", f"{row['disk_hits']:,}", f"{row['spills']:,}"]
        for row in document["rows"]
    ]  # fmt: skip
    head = ["problem", "a row", "cache", "s", "rows computed", "found in memory", "on disk", "written to disk"]
    lines, wins = [*table(head, rows), *measured(document), ""], []
    for problem in dict.fromkeys(row["problem"] for row in document["rows"]):
        by = {row["kind"]: row for row in document["rows"] if row["problem"] == problem}
        none, memory, disk = (by[kind] for kind in ("none", "memory", "memory and disk"))
        text = f"""* {problem}: {1e3 * none["seconds"] / none["computed"]:.2f} ms a row computed, with all that a step
            does beside it. Memory alone makes it {none["seconds"] / memory["seconds"]:.2f} times as fast, with the disk
            {none["seconds"] / disk["seconds"]:.2f} times: what the disk adds to memory is a factor of
            {memory["seconds"] / disk["seconds"]:.2f}."""
        first, *more = paragraph(text)
        lines += [first, *(f"  {line}" for line in more)]
        if disk["seconds"] < 0.95 * memory["seconds"]:
            wins.append(problem)
    said = f"The disk tier is faster than memory alone on {', '.join(sorted(wins))}." if wins else ""
    return [*lines, "", *paragraph(said or "No set was found where the disk tier pays.")]


# -- text, promises, and tables that were taken by hand


def ingest(document: Document) -> list[str]:
    """Text read by us and by scikit-learn."""
    lines = [
        [row["program"], f"{row['mb_per_s']:.0f} MB/s", f"{row['peak_anon_bytes'] / MIB:.0f} MiB"]
        for row in document["rows"]
    ]
    return [*table(["svmlight text", "read at", "anonymous memory in all"], lines), *measured(document)]


def store_rates(document: Document) -> list[str]:
    """What each format is decoded at, beside the library that decodes it, alone; and that makes rows of columns."""

    def beside(row: Row, who: str) -> list[str]:
        if f"over_{who}" not in row:
            return ["", ""]
        median, least, largest = row[f"over_{who}"]
        return [_rate(row, who), f"{median:.2f} ({least:.2f} to {largest:.2f})"]

    lines = [
        [row["format"], _rate(row, "ours"), row["library"], *beside(row, "alone"), *beside(row, "rows")]
        for row in document["rows"]
    ]
    head = ["format", "bigsvm", "library", "it decodes", "ours over that", "it makes rows", "ours over that"]
    return [*table(head, lines), *measured(document)]


def _rate(row: Row, who: str) -> str:
    return f"{row[f'{who}_mb_per_s']:.0f} MB/s"


def promises(document: Document) -> list[str]:
    """What is promised, what was measured, when and how."""
    lines = [
        [row["promise"], row["measured"], row["commit"], f"`{row['command']}`" if row["command"] else ""]
        for row in document["rows"]
    ]
    return [*table(["promise", "measured", "at commit", "command"], lines), "", *paragraph(f"{document['machine']}.")]


def as_taken(document: Document) -> list[str]:
    """A table of cells."""
    return [*table(document["head"], document["rows"]), *measured(document)]


def cluster_foretold(document: Document) -> list[str]:
    """Passes of few workers that were measured, and foretold."""
    return [*cluster_tables.cluster_foretold(document), *measured(document)[1:]]


def cluster_passes(document: Document) -> list[str]:
    """Passes to 1e-3 by shards and rounds."""
    rows = [
        [row["problem"], row["shards"], row["rounds"], f"{100 * row['kept']:.0f} %", row["passes"]]
        for row in document["rows"]
    ]
    return [*table(["rows", "shards", "rounds a pass", "kept", "passes"], rows), *measured(document)]


def cluster_bars(document: Document) -> list[str]:
    """What a cluster is to do, and what it was seen to do."""
    rows = [
        [
            row["what"], row["figure"], f"{row['measured']:.3g}",
            f"at {'least' if row['least'] else 'most'} {row['limit']:g}", "yes" if row["kept"] else "**no**",
        ]
        for row in document["rows"]
    ]  # fmt: skip
    return [*table(["on", "figure", "measured", "bar", "kept"], rows), *measured(document)]


def ideas(document: Document) -> list[str]:
    """Each idea in its best setting beside dcd, newton-ws and smo."""
    tols = document["tolerances"]
    lines = []
    for problem in dict.fromkeys(row["problem"] for row in document["rows"]):
        rows = [
            [f"`{row['solver']}`", row["idea"] or "compared with", *cells(row, tols), digits(row)]
            for row in document["rows"]
            if row["problem"] == problem
        ]
        lines += [f"### {problem}", ""]
        lines += [*table(["solver", "idea", *(f"to {tol}" for tol in tols), "digits"], rows), ""]
    return [*lines[:-1], *measured(document)]


PASSAGES = {
    "linear": Passage("linear", linear),
    "linear-at-a-glance": Passage("linear", linear_at_a_glance),
    "linear-gaps": Passage("linear", linear_gaps),
    "linear-squared": Passage("linear-squared", linear),
    "linear-earlier": Passage("linear-earlier", linear),
    "linear-classes": Passage("linear-earlier", linear_classes),
    "best-solvers": Passage("solvers", best_solvers),
    "solvers": Passage("solvers", solvers),
    "hard": Passage("hard", hard),
    "newton-ws-costs": Passage("newton-ws-costs", as_taken),
    "newton-ws-rows": Passage("newton-ws-rows", as_taken),
    "kernels": Passage("kernels", kernels),
    "kernels-streamed": Passage("kernels-streamed", kernels_streamed),
    "pairs": Passage("pairs", pairs),
    "kernel-cache": Passage("kernel-cache", kernel_cache),
    "ingest": Passage("ingest", ingest),
    "stores": Passage("stores", store_rates),
    "promises": Passage("promises", promises),
    "engine-passes": Passage("engine-passes", as_taken),
    "engine-kernel": Passage("engine-kernel", as_taken),
    "order-of-rows": Passage("order-of-rows", as_taken),
    "ideas": Passage("ideas", ideas),
    "cluster-passes": Passage("cluster-passes", cluster_passes),
    "cluster-foretold": Passage("cluster-computed", cluster_foretold),
    "cluster-bars": Passage("cluster", cluster_bars),
    "cluster-computed": Passage("cluster-computed", cluster_tables.cluster_computed),
}
