"""bigsvm as a user calls it: `bigsvm fit` in this process, and what its record says of the way to the result."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bench.jobs import Job, Point, before_training

Trail = list[tuple[float, float, float]]


def command_of(job: Job, store: Path, model: Path) -> list[str]:
    """The arguments of a fit.  No checkpoints: a benchmark is not taken up in the middle of a run."""
    return [
        "fit", str(store), "--solver", job.method or "auto", "--loss", job.loss, "--c", repr(job.C), "--bias", job.bias,
        "--tol", repr(job.rung), "--max-time", f"{job.limit_s:g}s", "--memory", str(job.memory), "--threads",
        str(job.cores), "--scratch", job.scratch, "--model", str(model), "--run", f"{model}.run", "--no-dual",
        "--checkpoint-every", "1000h", "--allow-unconverged", "--quiet",
    ]  # fmt: skip


def fit_by_cli(job: Job, points: list[Point]) -> dict[str, Any]:
    """One fit by the command line; figures from run.json, proofs and steps from events.jsonl."""
    from bigsvm.cli.main import run as command_line
    from bigsvm.model.linear_model import load_model

    with tempfile.TemporaryDirectory(dir=job.scratch or None) as folder:
        model = Path(folder) / "m.model"
        code = command_line(command_of(job, Path(job.folder) / "store.zarr", model))
        if code:
            raise SystemExit(code)
        run = Path(f"{model}.run")
        record = json.loads((run / "run.json").read_text())
        result, seconds = record["result"], record["result"]["seconds"]
        before = before_training(seconds)
        mode, trace, steps = _history(run / "events.jsonl", before)
        fitted = load_model(model)
    points.append(Point(job.rung, seconds["total"] - before, np.vstack([fitted.coef.T, fitted.intercept])))
    points[-1].passes = result["passes"]
    return {
        "status": record["status"],
        "used_solver": result["solver"],
        "mode": mode,
        "load_s": before,
        "total_s": seconds["total"],
        "io_wait_s": seconds["io_wait"],
        "certify_s": seconds["certify"],
        "proven_gap": result["relative_gap"],
        "dual": [one["objective"] - one["duality_gap"] for one in result["models"]],
        "bytes_read": result["bytes_read"],
        "epochs": result["epochs"],
        "memory_bytes": result["memory"]["peak_anon_bytes"] - result["memory"]["base_bytes"],
        "trace": trace,
        "steps": steps,
    }


def _history(events: Path, before_s: float) -> tuple[str, Trail, Trail]:
    """(mode, proofs, steps): each (seconds since the rows were ready, passes, relative gap; of a step the estimate)."""
    from bigsvm.observe.jsonl import read_events

    mode, trace, steps = "", [], []
    for event in read_events(events):
        if event["event"] == "FitStarted":
            mode = event["plan"]["mode"]
        elif event["event"] == "CertificateMade":
            trace.append((event["at_s"] - before_s, event["passes"], event["relative_gap"]))
        elif event["event"] == "EpochEnd":
            steps.append((event["at_s"] - before_s, event["passes"], event["gap_estimate"]))
    return mode, trace, steps
