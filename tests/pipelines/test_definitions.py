"""The steps as Dagster assets, headless: schedule, sensor, checks, a retry that goes on from its checkpoint."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

dg = pytest.importorskip("dagster")

from bigsvm.events import WAITING, WorkStarted  # noqa: E402
from bigsvm.model import versions as registry  # noqa: E402
from bigsvm.model.versions import held  # noqa: E402
from bigsvm.observe.jsonl import read_events  # noqa: E402
from bigsvm.run.fit.checkpoint import Checkpoints  # noqa: E402
from bigsvm.store.ingest.ingest import ingest  # noqa: E402
from pipelines import journal  # noqa: E402
from pipelines.dagster_demo import three_nights  # noqa: E402
from pipelines.definitions import NIGHTS, definitions  # noqa: E402
from tests.pipelines.jobs import Place, job, write_store  # noqa: E402

__all__ = ["job"]
pytestmark = pytest.mark.filterwarnings("default")  # its own libraries warn of each other

MANY_EPOCHS = 'solver = "dcd"\nloss = "hinge"\ntol = 1e-4'


def run(config: Path, instance: Any) -> Any:
    defs = definitions(config, retry=dg.RetryPolicy(max_retries=2))
    return defs.resolve_job_def("nightly").execute_in_process(
        instance=instance, raise_on_error=False, partition_key="2026-11-20"
    )


def looking(defs: Any, instance: Any) -> Any:
    return dg.build_sensor_context(instance, repository_def=defs.get_repository_def())


def metadata(done: Any, asset: str) -> dict[str, Any]:
    (event,) = done.asset_materializations_for_node(asset)
    return {name: value.value for name, value in event.metadata.items()}


def test_a_night_promotes_and_the_next_has_nothing_to_do(job: Place, tmp_path: Path) -> None:
    config = job(gates="min_accuracy = 0.8")
    with dg.DagsterInstance.ephemeral() as instance:
        done = run(config, instance)
        assert done.success
        certificate = metadata(done, "candidate")
        assert certificate["certificate"] == "proved"
        assert certificate["relative_gap"] <= 1e-3
        assert metadata(done, "verdict")["accuracy"] > 0.8
        assert "| gap | passed |" in metadata(done, "verdict")["gates"]
        assert metadata(done, "current")["version"] == 1
        (check,) = done.get_asset_check_evaluations()
        assert check.passed
        again = run(config, instance)
        assert again.success
        assert again.asset_materializations_for_node("rows") == []
    assert registry.current_version(tmp_path / "reg") == 1


def test_a_gate_that_refuses_stops_the_run_before_the_promotion(job: Place, tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        done = run(job(gates="min_accuracy = 1"), instance)
    assert not done.success
    (check,) = done.get_asset_check_evaluations()
    assert not check.passed
    assert "min_accuracy: accuracy 0." in check.metadata["said"].value
    assert done.asset_materializations_for_node("current") == []
    assert registry.current_version(tmp_path / "reg") is None


def test_a_retry_goes_on_from_the_checkpoint(job: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checkpoints, "due", lambda self: True)
    save, died = Checkpoints.save, []

    def dies_once(self: Checkpoints, tree: dict[str, Any]) -> None:
        if self.written == 1 and not died:
            died.append(self)
            raise OSError(5, "Input/output error")
        save(self, tree)

    monkeypatch.setattr(Checkpoints, "save", dies_once)
    with dg.DagsterInstance.ephemeral() as instance:
        done = run(job(fit=MANY_EPOCHS), instance)
    assert done.success
    assert died
    about = metadata(done, "candidate")
    assert (about["fitted"], about["attempt"]) == ("resumed", 1)
    events = list(read_events(tmp_path / "reg/work" / journal.RUN / "events.jsonl"))
    steps = [event["epochs"] for event in events if event["event"] == "EpochEnd"]
    assert steps.count(steps[0]) == 1, "the first step was taken once"


def test_bad_rows_are_not_tried_again(job: Place, tmp_path: Path) -> None:
    write_store(tmp_path / "train.zarr", 1, one_class=True)
    with dg.DagsterInstance.ephemeral() as instance:
        done = run(job(), instance)
    assert not done.success
    assert [event for event in done.all_events if event.is_step_up_for_retry] == []
    (failed,) = [event for event in done.all_events if event.is_step_failure]
    assert "the store has one class only" in failed.event_specific_data.error.message


def test_the_schedule_and_the_sensor_fire(job: Place, tmp_path: Path) -> None:
    config = job()
    defs = definitions(config)
    schedule, sensor = defs.resolve_schedule_def("every_night"), defs.resolve_sensor_def("new_rows")
    with dg.DagsterInstance.ephemeral() as instance:
        at = datetime(2026, 11, 21, 2, 15, tzinfo=UTC)
        (ticked,) = schedule.evaluate_tick(
            dg.build_schedule_context(instance, scheduled_execution_time=at, repository_def=defs.get_repository_def())
        ).run_requests
        assert ticked.partition_key == "2026-11-21"
        assert (schedule.cron_schedule, schedule.job_name) == ("15 2 * * *", "nightly")
        (request,) = sensor.evaluate_tick(looking(defs, instance)).run_requests
        assert request.partition_key in NIGHTS.get_partition_keys()[-2:]  # today, also where midnight passes meanwhile
        assert run(config, instance).success
        after = sensor.evaluate_tick(looking(defs, instance))
        assert (list(after.run_requests), after.skip_message) == (
            [], "store and options are those of the last promotion",
        )  # fmt: skip
        write_store(tmp_path / "train.zarr", 3)
        (other,) = sensor.evaluate_tick(looking(defs, instance)).run_requests
        (same,) = sensor.evaluate_tick(looking(defs, instance)).run_requests
        assert other.run_key == same.run_key
        assert run(config, instance).success
        write_store(tmp_path / "train.zarr", 1)
        (back,) = sensor.evaluate_tick(looking(defs, instance)).run_requests
        assert len({other.run_key, request.run_key, back.run_key}) == 3, "the first rows are another state by now"
        (tmp_path / "train.zarr" / "zarr.json").unlink()
        assert "zarr.json" in (sensor.evaluate_tick(looking(defs, instance)).skip_message or "")


def test_the_sensor_sees_files_that_wait(job: Place, tmp_path: Path) -> None:
    text = "".join(f"{1 - 2 * (i % 2)} 1:{1 - 2 * (i % 2)} 2:{i}\n" for i in range(40))
    (tmp_path / "rows.svm").write_text(text)
    ingest(tmp_path / "rows.svm", tmp_path / "train.zarr", overwrite=True)
    config = job('warm_start = true\n[arrivals]\nfiles = "in/*.svm"\n')
    config.write_text(config.read_text().replace('holdout = "holdout.zarr"\n', ""))
    defs = definitions(config)
    sensor = defs.resolve_sensor_def("new_rows")
    with dg.DagsterInstance.ephemeral() as instance:
        assert run(config, instance).success
        assert sensor.evaluate_tick(looking(defs, instance)).skip_message is not None
        (tmp_path / "in").mkdir()
        (tmp_path / "in/a.svm").write_text(text)
        (request,) = sensor.evaluate_tick(looking(defs, instance)).run_requests
        assert request.tags["bigsvm/reason"] == "files wait to be added: 1"
        done = run(config, instance)
        assert metadata(done, "rows")["rows_added"] == 40
        assert sensor.evaluate_tick(looking(defs, instance)).skip_message is not None


def test_three_nights_of_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    assert three_nights(tmp_path) == [True, True, False]
    assert registry.current_version(tmp_path / "registry") == 2
    assert "enabled: false" in (tmp_path / "dagster_home" / "dagster.yaml").read_text()
    with dg.DagsterInstance.from_config(str(tmp_path / "dagster_home")) as instance:
        assert not instance.telemetry_enabled
        found = [(run.tags["night"], run.status.value) for run in instance.get_runs()]
        days = [run.tags["dagster/partition"] for run in instance.get_runs()]
        assert len(set(days)) == 3
        assert set(days) <= set(NIGHTS.get_partition_keys())
    assert sorted(found) == [("1", "SUCCESS"), ("2", "SUCCESS"), ("3", "FAILURE")]
    assert "pipelines.definitions" in sys.modules


def test_the_log_of_a_run_says_for_whom_it_waits(job: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three changes of the registry in a night that promotes: nothing else shows that it waits."""
    logged: list[str] = []
    waiting = WorkStarted(f"{WAITING}process 7", 0, "")
    monkeypatch.setattr(held, "_wait_for", lambda lock, emit: emit(waiting))
    monkeypatch.setattr(dg.DagsterLogManager, "info", lambda self, text, *_, **__: logged.append(text))
    with dg.DagsterInstance.ephemeral() as instance:
        assert run(job(gates="min_accuracy = 0.8"), instance).success
        assert logged.count(waiting.what) == 1  # there is no registry to tidy before the first promotion
        logged.clear()
        write_store(tmp_path / "train.zarr", 3)
        assert run(job(gates="min_accuracy = 0.8"), instance).success
    assert logged.count(waiting.what) == 3
