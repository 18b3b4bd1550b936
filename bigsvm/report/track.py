"""Logging a finished run to MLflow in a separate process, whose failure cannot harm the run or its model.

MLflow takes seconds and some 200 MB to import, waits for minutes for a server that is down, and writes to standard
output.  So the child process has a time limit, and its streams are discarded.
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
"""The file in the folder of a run that records its run in MLflow."""
WITHIN_S = 600.0
"""Seconds that logging may take, including the upload of the model."""
# MLflow's defaults are 7 attempts of 120 s each; values that the user set are kept.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}
# MLflow must not send telemetry to its makers.
_SILENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}


def check_mlflow() -> None:
    """Raise UsageError if MLflow is not installed."""
    if importlib.util.find_spec("mlflow") is None:
        raise UsageError("MLflow is not installed", hint="pip install 'bigsvm[mlflow]', or leave --mlflow out")


def track(
    run: Path, experiment: str, within_s: float = WITHIN_S, uri: str | None = None, about: dict[str, Any] | None = None
) -> str:
    """Log a run that has ended to MLflow: options, figures, the model and the page.

    run : folder of the run;  experiment : name of the experiment, which is created if necessary
    within_s : time limit in seconds
    uri : the tracking server; None: MLflow's default (MLFLOW_TRACKING_URI)
    about : further `tags` and `metrics`, and the `name` of the run in MLflow; None: the name of its model

    If the run was logged before, only `about` is added.  Returns '' or a description of the failure, which contains
    neither an address nor an answer of the server.  Raises nothing but interruptions.
    """
    # -P: import the same modules as here, and none that happens to be in the working folder
    command = [sys.executable, "-P", "-m", "bigsvm.report.mlflow_run"]
    environment = {**_PATIENCE, **os.environ, **_SILENT, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    asked = {"run": str(run), "experiment": experiment, "uri": uri, "about": about or {}}
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return f"its process cannot be started: {error.strerror}"
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
    """The warning that MLflow did not get a run."""
    return f"MLflow did not get the run: {failed}; later: bigsvm report {run} --mlflow {experiment}"


def digest_of_record(run: Path) -> str:
    """SHA-256 of run.json, which every fit in that folder rewrites.  Raises OSError."""
    return hashlib.sha256((run / RUN).read_bytes()).hexdigest()
