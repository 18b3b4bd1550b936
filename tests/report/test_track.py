"""Runs in MLflow: what is logged, once; and that whatever MLflow does costs neither a model nor an exit code."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bigsvm.cli.main import run
from bigsvm.config import OPTIONS
from bigsvm.report import mlflow_run
from bigsvm.report.runs import read_run
from bigsvm.report.track import TRACKED, track
from tests.pipelines.jobs import Place, Retrain, job, retrain

__all__ = ["job", "retrain"]
INSTALLED = importlib.util.find_spec("mlflow") is not None
SECRET = "geheim-4711"


@pytest.fixture
def own_run(fits: Path, tmp_path: Path) -> Path:
    """A run that nothing was noted in."""
    shutil.copytree(fits / "two.run", tmp_path / "two.run")
    return tmp_path / "two.run"


def false_mlflow(folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module `mlflow` that is found first and runs `code` when it is imported."""
    (folder / "mlflow").mkdir(parents=True)
    (folder / "mlflow" / "__init__.py").write_text(code)
    monkeypatch.syspath_prepend(str(folder))


def test_every_option_and_every_number_is_logged(fits: Path) -> None:
    found = read_run(fits / "two.run")
    options = mlflow_run.options_of(found)
    assert (options["loss"], options["tol"], options["solver"], options["shrinking"]) == (
        "hinge",
        "0.0001",
        "dcd",
        "true",
    )
    asked = {name for name, option in OPTIONS.items() if option.flags and found.config[name] not in (None, {})}
    assert set(options) == asked
    result = found.record["result"]
    figures = mlflow_run.figures_of(result)
    assert figures["relative_gap"] == result["relative_gap"]
    assert figures["seconds.solving"] == result["seconds"]["solving"]
    assert figures["memory.budget_bytes"] == result["memory"]["budget_bytes"]
    assert mlflow_run.figures_of({"a": float("nan"), "b": True, "c": {"d": [1.0]}, "e": {"f": 2}}) == {"e.f": 2.0}
    curve = list(mlflow_run.curve_of(found))
    gaps = [event["relative_gap"] for event in found.certificates]
    assert [shown["proof.relative_gap"] for _, _, shown in curve] == gaps
    assert [step for step, _, _ in curve] == list(range(len(gaps)))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import time\ntime.sleep(1000)", "it took more than 0.01 s"),
        ("import os\nprint('{}', flush=True)\nos._exit(3)", "its process ended with 3"),
        (f"raise ConnectionError('http://user:{SECRET}@server')", "the tracking server cannot be reached"),
    ],
    ids=["hangs", "dies", "unreachable"],
)
def test_what_goes_wrong_is_one_sentence(
    code: str, said: str, own_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    false_mlflow(tmp_path / "false", code, monkeypatch)
    before = (own_run / "run.json").read_bytes()
    assert track(own_run, "nights", 0.01 if "sleep" in code else 600.0) == said
    assert (own_run / "run.json").read_bytes() == before
    assert not (own_run / TRACKED).exists()


def test_neither_addresses_nor_answers_are_repeated() -> None:
    class RestException(Exception):
        error_code = "PERMISSION_DENIED"

    server = f"https://user:{SECRET}@server/path?token={SECRET}"
    for error, said in (
        (RestException(f"{server}: {SECRET}"), "the tracking server refused it (PERMISSION_DENIED)"),
        (
            RuntimeError(f"API request to {server} failed with error code 401 != 200"),
            "the tracking server answered 401",
        ),
        (TimeoutError(server), "the tracking server does not answer"),
    ):
        assert mlflow_run.reason(error, server) == said
        assert mlflow_run.reason(error, f"postgresql://user:{SECRET}@db/runs") == said
    assert mlflow_run.reason(RuntimeError("no such\n  folder"), "sqlite:///a.db") == "no such folder"
    missing = ModuleNotFoundError("No module named 'mlflow.tracking'", name="mlflow.tracking")
    assert mlflow_run.reason(missing, "") == "mlflow.tracking is not installed: pip install 'bigsvm[mlflow]'"
    assert mlflow_run._without_secrets(f"s3://key:{SECRET}@bucket/rows?sig={SECRET}") == "s3://bucket/rows"
    assert mlflow_run._without_secrets("/data/rows.zarr") == "/data/rows.zarr"


def test_a_fit_is_as_good_without_the_server(
    fits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    false_mlflow(tmp_path / "false", "raise ConnectionError", monkeypatch)
    model = tmp_path / "a.model"
    words = ["fit", str(fits / "two.zarr"), "-o", str(model), "--solver", "newton", "--mlflow", "nights", "--json"]
    assert run(words) == 0
    document = json.loads(capsys.readouterr().out)
    failed = f"MLflow did not get the run: the tracking server cannot be reached; later: bigsvm report {model}.run"
    assert document["warnings"] == [f"{failed} --mlflow nights"]
    assert document["status"] == "converged"
    assert (model / "model.json").exists()
    assert run(["report", f"{model}.run", "--mlflow", "nights"]) == 73
    assert run(["report", f"{model}.run", "--mlflow", "nights", "--text"]) == 2
    assert run(["report", str(model), "--mlflow", "nights"]) == 66


@pytest.mark.skipif(INSTALLED, reason="it is installed")
def test_without_mlflow_nothing_is_trained(fits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", str(fits / "two.zarr"), "-o", str(tmp_path / "a.model"), "--mlflow", "nights"]) == 2
    assert "pip install 'bigsvm[mlflow]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_night_is_promoted_without_the_server(
    job: Place, retrain: Retrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    false_mlflow(tmp_path / "false", "raise ConnectionError", monkeypatch)
    config = job(gates="[mlflow]\nexperiment = 'nights'")
    assert retrain(config, "--dry-run", "--json").document["result"]["logs_to"] == "nights"
    done = retrain(config, "--json").document
    assert done["status"] == "promoted"
    (warning,) = done["warnings"]
    assert warning.startswith(
        "MLflow did not get the run: the tracking server cannot be reached; later: bigsvm report "
    )
    refused = retrain(job(gates=f"[mlflow]\nexperiment = 'nights'\nuri = 'http://a:{SECRET}@server'"))
    assert (refused.code, SECRET in refused.err) == (2, False)
    assert "uri holds a user or password" in refused.err


# -- with MLflow itself


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)

    def runs() -> list[Any]:
        from mlflow.tracking import MlflowClient

        asked = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
        found = asked.get_experiment_by_name("nights")
        runs = asked.search_runs([found.experiment_id])
        return [(asked, one) for one in runs]

    return runs


@pytest.mark.filterwarnings("default")
def test_mlflow_has_a_run_once(client: Any, own_run: Path) -> None:
    assert track(own_run, "nights", about={"tags": {"outcome": "refused"}}) == ""
    assert track(own_run, "nights", about={"tags": {"outcome": "promoted"}, "metrics": {"gate": {"gap": 0.5}}}) == ""
    ((asked, logged),) = client()
    result = read_run(own_run).record["result"]
    assert logged.info.status == "FINISHED"
    assert logged.data.params["loss"] == "hinge"
    assert logged.data.metrics["relative_gap"] == result["relative_gap"]
    assert logged.data.metrics["gate.gap"] == 0.5
    assert logged.data.tags["bigsvm.certificate"] == "proved"
    assert logged.data.tags["bigsvm.outcome"] == "promoted"
    assert {one.path for one in asked.list_artifacts(logged.info.run_id)} == {"model", "report.html"}
    assert "model/model.json" in {one.path for one in asked.list_artifacts(logged.info.run_id, "model")}
    told = read_run(own_run).certificates
    assert len(asked.get_metric_history(logged.info.run_id, "proof.relative_gap")) == len(told)


@pytest.mark.filterwarnings("default")
def test_a_log_that_was_killed_is_made_anew(client: Any, own_run: Path) -> None:
    assert track(own_run, "nights") == ""
    noted = json.loads((own_run / TRACKED).read_bytes())
    (own_run / TRACKED).write_text(json.dumps({**noted, "done": False}))
    assert track(own_run, "nights") == ""
    assert sorted(one.info.status for _, one in client()) == ["FINISHED", "KILLED"]
