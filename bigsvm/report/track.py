"""A finished run goes to MLflow, in a process of its own: whatever becomes of that, the run and its model stand.

MLflow takes seconds and some 200 MB to import, waits minutes for a server that is not there, and writes to standard
output.  None of that may happen to a fit, so the child is bounded in time and its streams lead nowhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from bigsvm.errors import UsageError
from bigsvm.observe.run_files import RUN

TRACKED = "mlflow.json"
"""In the folder of a run: which run of MLflow it is."""
WITHIN_S = 600.0
"""Seconds that MLflow may take, the copying of the model included."""
# MLflow's own are 7 attempts of 120 s each; whoever sets them is obeyed.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}
# The server is that of the environment; MLflow tells its makers nothing.
_SILENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}


def check_mlflow() -> None:
    """Raises UsageError where MLflow is not installed."""
    if importlib.util.find_spec("mlflow") is None:
        raise UsageError("MLflow is not installed", hint="pip install 'bigsvm[mlflow]', or leave --mlflow out")


def track(
    run: Path, experiment: str, within_s: float = WITHIN_S, uri: str | None = None, about: dict[str, Any] | None = None
) -> str:
    """Log a run that is over to MLflow: options, figures, the model and the page about it.

    run : its folder;  experiment : by name, made where there is none
    within_s : seconds that it may take
    uri : of the tracking server; None: as MLflow finds it (MLFLOW_TRACKING_URI)
    about : further `tags` and `metrics`, and the `name` of the run there; None: that of its model

    A run that was logged already gets what is in `about`, and nothing is logged twice.  Returns '' or what failed, in
    a sentence that holds neither an address nor what a server answered.  Nothing is raised but an interruption.
    """
    # The same modules as here, and none that lies in the working folder by chance.
    command = [sys.executable, "-P", "-m", "bigsvm.report.mlflow_run"]
    environment = {**_PATIENCE, **os.environ, **_SILENT, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    asked = {"run": str(run), "experiment": experiment, "uri": uri, "about": about or {}}
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return f"a process for it cannot be started: {error.strerror}"
    with child:
        try:
            out, _ = child.communicate(json.dumps(asked).encode(), timeout=within_s)
        except subprocess.TimeoutExpired:
            return f"it took more than {within_s:g} s"
        finally:
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
    try:
        return str(json.loads(out.splitlines()[-1])["failed"])
    except (IndexError, ValueError, KeyError, TypeError):
        return f"its process ended with {child.returncode}"


def not_tracked(run: Path, experiment: str, failed: str) -> str:
    """The warning about a run that MLflow did not get."""
    return f"MLflow did not get the run: {failed}; later: bigsvm report {run} --mlflow {experiment}"


def digest_of_record(run: Path) -> str:
    """SHA-256 of run.json, which is written anew by every fit in that folder.  Raises OSError."""
    return hashlib.sha256((run / RUN).read_bytes()).hexdigest()
