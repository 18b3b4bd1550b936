"""Logging one run to MLflow; `track` starts it as a process: `python -m bigsvm.report.mlflow_run < asked.json`.

It uses MLflow's client instead of the functions of its module, because these keep a run open, and print.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from bigsvm.config import OPTIONS
from bigsvm.errors import BigSVMError, UsageError
from bigsvm.files.atomic import write_bytes
from bigsvm.files.temporary import temporary_folder
from bigsvm.observe.run_files import REPORT
from bigsvm.report.about.model import model_of_run
from bigsvm.report.runs import OVER, Run, read_run
from bigsvm.report.track import TRACKED, digest_of_record

_LONGEST = 500
"""Characters of a parameter: a length that every version of MLflow accepts."""
_AT_ONCE = 100
"""Limit of parameters or tags in one request, as in MLflow's servers; for metrics ten times as many."""
_SAID = ("status", "certificate", "solver", "loss", "bias", "kernel", "store_fingerprint", "content_fingerprint")


def options_of(run: Run) -> dict[str, str]:
    """The options of the run by their Python names: every option that has a value."""
    asked = {name: run.config.get(name) for name, option in OPTIONS.items() if option.flags}
    return {name: _text(value) for name, value in asked.items() if value is not None and value != {}}


def figures_of(result: dict[str, Any]) -> dict[str, float]:
    """Every number of a result, by its path: `relative_gap`, `seconds.total`, `memory.budget_bytes`.

    Lists (for each class, for each C) are only on the page.
    """
    found: dict[str, float] = {}
    for name, value in result.items():
        if isinstance(value, dict):
            found |= {f"{name}.{inner}": number for inner, number in figures_of(value).items()}
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            found[name] = float(value)
    return found


def curve_of(run: Run) -> Iterator[tuple[int, int, dict[str, float]]]:
    """(number of the certificate, milliseconds since 1970, its figures)."""
    began = _milliseconds(run.record.get("began"))
    for step, event in enumerate(run.certificates):
        told = {name: event.get(name) for name in ("relative_gap", "objective", "dual_objective", "passes", "epochs")}
        shown = {f"proof.{name}": float(value) for name, value in told.items() if value is not None}
        yield step, began + round(1000 * event["wall_s"]), shown


def log(asked: dict[str, Any]) -> str:
    """Log the run named in `asked`; returns '' or a description of the failure."""
    folder = Path(asked["run"])
    run = read_run(folder)
    if run.record.get("status") not in OVER:
        return "the run has not ended"
    import mlflow
    from mlflow.tracking import MlflowClient

    if asked["uri"]:
        mlflow.set_tracking_uri(asked["uri"])
    client = MlflowClient()
    about, record = asked["about"], digest_of_record(folder)
    place = {"server": _without_secrets(mlflow.get_tracking_uri()), "experiment": asked["experiment"]}
    known = _known(folder)
    if known.get("record") == record and {name: known.get(name) for name in place} == place:
        if known["done"]:
            _tell(client, known["run_id"], about)
            return ""
        with contextlib.suppress(Exception):  # it may have been deleted
            client.set_terminated(known["run_id"], "KILLED")
    made = client.create_run(
        _experiment(client, asked["experiment"]), start_time=_milliseconds(run.record.get("began")),
        run_name=Path(str(run.record["model"])).name, tags={"mlflow.source.name": "bigsvm"},
    )  # fmt: skip
    noted = {**place, "record": record, "run_id": made.info.run_id, "done": False}
    _note(folder, noted)
    _fill(client, noted["run_id"], run)
    _tell(client, noted["run_id"], about)
    client.set_terminated(noted["run_id"], "FINISHED", _milliseconds(run.record.get("ended")))
    _note(folder, {**noted, "done": True})
    return ""


def _fill(client: Any, run_id: str, run: Run) -> None:
    from mlflow.entities import Metric, Param, RunTag

    result = run.result
    params = [Param(name, value) for name, value in options_of(run).items()]
    tags = [RunTag(f"bigsvm.{name}", str(result[name])) for name in _SAID if result.get(name) is not None]
    tags.append(RunTag("bigsvm.store", _without_secrets(str(run.record.get("store", "")))))
    tags += [RunTag(f"bigsvm.version.{name}", str(v)) for name, v in run.started.get("versions", {}).items()]
    read = (run.record.get("job") or {}).get(
        "rows"
    ) or {}  # scale, matrix and similar options belong to the rows, not to the fit
    tags += [RunTag(f"bigsvm.rows.{name}", _text(value)) for name, value in read.items()]
    ended = _milliseconds(run.record.get("ended"))
    metrics = [Metric(name, value, ended, 0) for name, value in figures_of(result).items() if name not in OPTIONS]
    for step, at_ms, shown in curve_of(run):
        metrics += [Metric(name, value, at_ms, step) for name, value in shown.items()]
    for first in range(0, max(len(params), len(tags)), _AT_ONCE):
        client.log_batch(run_id, params=params[first : first + _AT_ONCE], tags=tags[first : first + _AT_ONCE])
    for first in range(0, len(metrics), 10 * _AT_ONCE):
        client.log_batch(run_id, metrics=metrics[first : first + 10 * _AT_ONCE])
    model = model_of_run(run.record)
    if model is not None:
        client.log_artifacts(run_id, str(model), "model")
    _log_page(client, run_id, run.folder)


def _log_page(client: Any, run_id: str, folder: Path) -> None:
    """Log the page about the run; without matplotlib there is none."""
    from bigsvm.report.make import make_report
    from bigsvm.report.page import page

    try:
        html = page(make_report(folder)[0])
    except UsageError:
        return
    with temporary_folder() as place:
        path = Path(place, REPORT)
        path.write_text(html, encoding="utf-8")
        client.log_artifact(run_id, str(path))


def _tell(client: Any, run_id: str, about: dict[str, Any]) -> None:
    """Add tags and metrics from the caller, such as the results of the gates of a retraining job."""
    if about.get("name"):
        client.set_tag(run_id, "mlflow.runName", about["name"])
    for name, value in about.get("tags", {}).items():
        client.set_tag(run_id, f"bigsvm.{name}", _text(value))
    for name, value in figures_of(about.get("metrics", {})).items():
        client.log_metric(run_id, name, value)


def _experiment(client: Any, name: str) -> str:
    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return client.create_experiment(name)
        except Exception:  # created by another process meanwhile
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    return found.experiment_id


def _known(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / TRACKED).read_bytes())
        return {**found, "run_id": str(found["run_id"]), "done": bool(found["done"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _note(folder: Path, document: dict[str, Any]) -> None:
    write_bytes(folder / TRACKED, json.dumps(document).encode() + b"\n")


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _milliseconds(said: Any) -> int:
    return round(1000 * datetime.fromisoformat(said).timestamp()) if isinstance(said, str) else 0


def _without_secrets(address: str) -> str:
    """An address without user, password and query, which may contain a signature."""
    parts = urlsplit(address)
    if not parts.scheme or not parts.netloc:
        return address
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def reason(error: BaseException, uri: str) -> str:
    """Why MLflow failed, in words without secrets: neither addresses nor answers are repeated.

    uri : of the tracking server; for a local file MLflow's own message contains no secret
    """
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    first, kinds = chain[0], {type(one).__name__ for one in chain}
    if isinstance(first, BigSVMError):
        return str(first)
    if isinstance(first, ImportError):
        return f"{first.name or 'mlflow'} is not installed: pip install 'bigsvm[mlflow]'"
    if kinds & {"ConnectionError", "ConnectTimeout", "ConnectionRefusedError", "NewConnectionError", "gaierror"}:
        return "the tracking server cannot be reached"
    if kinds & {"ReadTimeout", "TimeoutError", "ReadTimeoutError"}:
        return "the tracking server does not answer"
    if "://" not in uri or uri.startswith(("file:", "sqlite:")):
        return re.sub(r"\s+", " ", str(first)).strip()[:200] or type(first).__name__
    code = re.search(r"error code (\d{3})", str(first))
    code_or_kind = (
        f"answered {code[1]}" if code else f"refused it ({getattr(first, 'error_code', type(first).__name__)})"
    )
    return f"the tracking server {code_or_kind}"


def main() -> int:
    """Read the request, log the run, and write {"failed": ...} as the last line of standard output."""
    ours = os.dup(1)
    os.dup2(2, 1)  # MLflow and its libraries print to standard output
    asked = json.load(sys.stdin)
    uri = asked["uri"] or os.environ.get("MLFLOW_TRACKING_URI", "")
    try:
        failed = log(asked)
    except Exception as error:
        failed = reason(error, uri)
    os.write(ours, json.dumps({"failed": failed}).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
