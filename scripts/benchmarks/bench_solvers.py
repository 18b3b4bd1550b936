#!/usr/bin/env python3
"""All solvers on three kinds of problem, out of core: relative gap against passes and against seconds.

Problems: sparse (20,000 features, 54 of them in a row), dense and narrow (100 features), dense and wide (2000
features).  Every run is a `bigsvm fit` of its own with a tenth of the data as budget (or the least that the solver's
plan names), one for each gap to prove; seconds are of training and proofs, without staging.  The marks
are proved gaps, the curves the solvers' own after each of their steps.  Beside a plot stands what it is drawn of.

    scripts/benchmarks/bench_solvers.py --work DIR --figures docs/figures/solvers.json --plot docs/plots/solvers.svg
    scripts/benchmarks/bench_solvers.py --smoke
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from bench.jobs import before_training
from bench.passages import solvers
from bench.plot import Curve, Panel, Points, draw_panels
from bench.record import command, commit, meter, write_figures

from bigsvm.cli.main import run
from bigsvm.solvers.registry import SOLVERS
from bigsvm.store.ingest.demo_rows import write_problem
from bigsvm.store.ingest.zarr_writer import ZarrWriter

TOLERANCES = (1e-2, 1e-3, 1e-4)
_BY_PROOFS = ("dcd", "pegasos")  # they make proofs on the way, and no estimates
_SHOWN = (3e-6, 2.0)  # gaps, in the plot: some solvers get far below what was asked for
SETTINGS: dict[str, list[dict[str, str]]] = {
    "ssvm": [{"smoothing": "50"}],
    "hyperpass": [{"direction": "lbfgs"}, {"direction": "steepest"}],
    "pegasos": [{"batch": "100"}],
    "rosenbrock": [{}, {"plan": "model"}],
}


@dataclass
class Line:
    """One solver on one problem: what each tolerance cost, and the way there."""

    problem: str
    loss: str
    solver: str
    reached: dict[str, tuple[float, float]] = field(default_factory=dict)  # tolerance: (passes, seconds)
    curve: list[tuple[float, float, float]] = field(default_factory=list)  # (passes, seconds, gap)
    memory: int = 0
    why_not: str = ""


def write_dense(path: Path, n_samples: int, n_features: int) -> None:
    """Correlated dense rows; a planted direction on a tenth of the features, a tenth of the labels wrong."""
    rng = np.random.default_rng(7)
    direction = rng.standard_normal(n_features) * (rng.random(n_features) < 0.1)
    direction[0] = 1.0
    scale = rng.uniform(0.3, 1.0, n_features)
    rows = max((1 << 22) // (4 * n_features), 1)
    with ZarrWriter(path, layout="dense", dtype=np.float32, n_features=n_features) as writer:
        for start in range(0, n_samples, rows):
            rng = np.random.default_rng([7, start])
            X = rng.standard_normal((min(rows, n_samples - start), n_features), dtype=np.float32)
            X = (X + 0.5 * rng.standard_normal((len(X), 1), dtype=np.float32)) * scale / np.sqrt(n_features / 10)
            scores = X @ direction
            y = np.where(scores + 0.3 * scores.std() * rng.standard_normal(len(X)) > 0, 1.0, -1.0)
            y[rng.random(len(X)) < 0.1] *= -1.0
            writer.append(X.astype(np.float32), y)
        writer.finish()


def fit(
    store: Path, work: Path, arguments: list[str], here: bool = False
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Document and events of a fit; here : in this process, as a smoke does: starting one takes longer than its fit."""
    model = work / "model"
    command = [
        *("fit", str(store), *arguments, "--scratch", str(work / "scratch")),
        *("-o", str(model), "--overwrite", "--json", "--quiet", "--allow-unconverged"),
    ]
    if here:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            run(command)
        document = json.loads(out.getvalue())
    else:
        program = [sys.executable, "-m", "bigsvm", *command]
        document = json.loads(subprocess.run(program, check=False, capture_output=True, text=True).stdout)
    record = Path(f"{model}.run") / "events.jsonl"
    events = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    return document, events


def run_line(line: Line, store: Path, work: Path, data_bytes: int, options: dict[str, str], asked: Any) -> None:
    """One run for each tolerance, until one is not reached in time."""
    memory = max(data_bytes // 10, 32 << 20)
    settings = [text for key, value in options.items() for text in ("--set", f"{key}={value}")]
    name = line.solver.split(" ")[0]
    for tolerance in asked.tols:
        arguments = [
            *("--solver", name, "--loss", line.loss, "--c", str(asked.C), "--tol", str(tolerance), *settings),
            *("--bias", "none", "--max-time", f"{asked.limit}s"),
        ]
        document, events = fit(store, work, [*arguments, "--memory", str(memory)], asked.smoke)
        if document["status"] == "error" and document["error"].get("min_memory_bytes", 0) > memory:
            memory = document["error"]["min_memory_bytes"]
            document, events = fit(store, work, [*arguments, "--memory", str(memory)], asked.smoke)
        if document["status"] == "error":
            line.why_not = document["error"]["message"]
            return
        result = document["result"]
        before = before_training(result["seconds"])
        seconds = result["seconds"]["total"] - before
        line.memory = memory
        line.curve = _curve(events, before, name)
        if result["relative_gap"] > tolerance:
            line.why_not = f"{result['relative_gap']:.0e} after {result['passes']:.0f} passes"
            return
        line.reached[f"{tolerance:g}"] = (result["passes"], seconds)
        line.curve.append((result["passes"], seconds, max(result["relative_gap"], 1e-12)))


def _curve(events: list[dict[str, Any]], before: float, name: str) -> list[tuple[float, float, float]]:
    kind, gap = ("CertificateMade", "relative_gap") if name in _BY_PROOFS else ("EpochEnd", "gap_estimate")
    found = [(e["passes"], e["wall_s"], e[gap]) for e in events if e["event"] == kind and e[gap]]
    return [(passes, max(seconds, 1e-3), value) for passes, seconds, value in found if value > 0]


def figures(lines: list[Line], tols: tuple[float, ...]) -> dict[str, Any]:
    """What README and docs are made of: the lines without their curves."""
    rows = [{name: value for name, value in asdict(line).items() if name != "curve"} for line in lines]
    return {"tols": [f"{tolerance:g}" for tolerance in tols], "rows": rows}


def markdown(lines: list[Line], tols: tuple[float, ...]) -> str:
    """A table: passes and seconds to each gap."""
    return (
        "\n".join(solvers(figures(lines, tols) | {"commit": commit(), "command": command(), "machine": meter()})) + "\n"
    )


def panels(lines: list[Line]) -> list[Panel]:
    """What is drawn: the curves of each problem and loss."""
    found: dict[str, Panel] = {}
    for line in lines:
        title = f"{line.problem}, {line.loss}"
        curve: Points = [(seconds, passes, gap) for passes, seconds, gap in line.curve]
        if line.solver.split(" ")[0] in _BY_PROOFS:
            drawn = Curve(line.solver, curve)
        else:  # a run that has reached its gap ends with the proof of it
            drawn = Curve(line.solver, curve[-1:] if not line.why_not else [], estimates=curve)
        found.setdefault(title, Panel(title, [], _SHOWN)).curves.append(drawn)
    return list(found.values())


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--solvers", default=",".join(SOLVERS))
    add("--problems", default="sparse,dense,wide")
    add("--losses", default="hinge,squared_hinge")
    add("--C", type=float, default=1.0)
    add("--limit", type=float, default=60.0, help="seconds of a run")
    add("--scale", type=float, default=1.0, help="of the rows")
    add("--work", help="folder on a disk; a temporary one by default")
    add("--markdown", type=Path, help="file for the table [standard output]")
    add("--json", type=Path)
    add("--figures", type=Path, help="file of docs/figures: what README and docs are made of")
    add("--plot", type=Path, help="such as solvers.svg; needs matplotlib")
    add("--smoke", action="store_true", help="tiny, one problem, two solvers")
    asked = parser.parse_args()
    asked.tols = TOLERANCES
    if asked.smoke:
        asked.scale, asked.limit, asked.tols = 0.003, 3600.0, (1e-1, 1e-2)
        asked.problems, asked.solvers, asked.losses = "dense", "dcd,hyperpass", "hinge"
    sizes = {"sparse": (400_000, 0), "dense": (1_000_000, 100), "wide": (40_000, 2000)}
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="bench-solvers-", dir=asked.work) as folder:
        for problem in asked.problems.split(","):
            n_samples, n_features = sizes[problem]
            n_samples, store = max(int(n_samples * asked.scale), 100), Path(folder) / f"{problem}.zarr"
            if problem == "sparse":
                summary = write_problem(store, n_samples)
            else:
                write_dense(store, n_samples, n_features)
            data_bytes = int(summary["nnz"]) * 8 if problem == "sparse" else 4 * n_samples * n_features
            for loss in asked.losses.split(","):
                for name in asked.solvers.split(","):
                    if loss not in SOLVERS[name].losses:
                        continue
                    for options in SETTINGS.get(name, [{}]):
                        said = " ".join([name, *(f"{key}={value}" for key, value in options.items())])
                        line = Line(problem, loss, said)
                        run_line(line, store, Path(folder), data_bytes, options, asked)
                        lines.append(line)
                        sys.stderr.write(f"{problem}, {loss}, {said}: {line.reached} {line.why_not}\n")
    table = markdown(lines, asked.tols)
    if asked.markdown:
        asked.markdown.write_text(table)
    else:
        sys.stdout.write(table)
    if asked.figures:
        write_figures(asked.figures, **figures(lines, asked.tols))
    if asked.json:
        asked.json.write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n")
    if asked.plot:
        draw_panels(asked.plot, panels(lines))


if __name__ == "__main__":
    main()
