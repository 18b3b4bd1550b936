"""`bigsvm resume` and `fit --resume` on the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bigsvm.cli.job import Job, has_checkpoint, is_unfinished
from bigsvm.cli.main import run
from bigsvm.run.execute.signals import Stop
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.store.ingest.ingest import ingest


@pytest.fixture
def fit(tmp_path: Path) -> list[str]:
    """A fit's command line."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 8)).astype(np.float32)
    ingest((X, np.where(X[:, 0] + rng.normal(size=900) > 0, 1, -1)), tmp_path / "s.zarr")
    return [
        *("fit", str(tmp_path / "s.zarr"), "--loss", "hinge", "--memory", "64MiB", "--tol", "1e-4", "--quiet"),
        *("--scratch", str(tmp_path / "scratch"), "-o", str(tmp_path / "m")),
    ]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def interrupted(fit: list[str], monkeypatch: pytest.MonkeyPatch, looks: int) -> int:
    """Run it with a signal that comes when the run looks for the `looks`-th time."""
    left = looks

    def asked(self: Stop) -> bool:
        nonlocal left
        left -= 1
        self.by = "SIGTERM" if left <= 0 else None
        return left <= 0

    with monkeypatch.context() as patch:
        patch.setattr(Stop, "__bool__", asked)
        patch.setattr("bigsvm.run.fit.fit.precompile", lambda *given: None)  # small fits look, too, once a process
        patch.setattr(Checkpoints, "due", lambda self: False)  # however long it takes, it is saved when it stops
        return run(fit)


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("how", ["resume", "fit --resume"])
def test_what_was_stopped_goes_on(
    how: str, fit: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(fit) == 0
    right = contents(tmp_path / "m")
    shutil.rmtree(tmp_path / "m")
    shutil.rmtree(tmp_path / "m.run")
    capsys.readouterr()
    assert interrupted(fit, monkeypatch, 15) == 75
    assert f"stopped by SIGTERM (bigsvm resume {tmp_path / 'm.run'})" in capsys.readouterr().err
    assert json.loads((tmp_path / "m.run" / "run.json").read_text())["status"] == "interrupted"
    assert len(list((tmp_path / "m.run" / "checkpoint").iterdir())) == 1
    assert run(["resume", str(tmp_path / "m.run"), "--quiet"] if how == "resume" else [*fit, "--resume"]) == 0
    assert contents(tmp_path / "m") == right
    assert sorted(path.name for path in (tmp_path / "m.run").iterdir()) == ["events.jsonl", "run.json"]


def test_what_is_over_is_not_done_again(fit: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*fit, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    model, record = tmp_path / "m", tmp_path / "m.run" / "run.json"
    written = [(model / "model.json").stat().st_ino, record.stat().st_ino]
    for command in (["resume", str(tmp_path / "m.run")], [*fit, "--resume"]):
        assert run([arg for arg in command if arg != "--quiet"]) == 0
        assert "The run had already ended, and nothing was repeated." in capsys.readouterr().out
        assert run([*command, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["result"] == first["result"]
        assert [(model / "model.json").stat().st_ino, record.stat().st_ino] == written


def test_a_run_that_is_over_says_again_that_it_did_not_converge(fit: list[str]) -> None:
    limited = [*fit, "--max-passes", "1", "--tol", "1e-9"]
    assert run(limited) == run([*limited, "--resume"]) == 4
    assert run([*limited, "--resume", "--allow-unconverged"]) == 0


@pytest.mark.parametrize("what", ["options", "store"])
def test_another_fit_is_not_taken_for_the_one_that_is_over(what: str, fit: list[str], tmp_path: Path) -> None:
    assert run(fit) == 0
    before = contents(tmp_path / "m")
    if what == "options":
        fit = [*fit, "--c", "2"]
    else:
        shutil.rmtree(fit[1])
        ingest((np.eye(8, dtype=np.float32), np.array([1, -1] * 4)), fit[1])
    assert run([*fit, "--resume"]) == 73
    assert contents(tmp_path / "m") == before


def test_killed_after_the_model_was_written(fit: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(fit) == 0
    right, record = contents(tmp_path / "m"), tmp_path / "m.run" / "run.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "status": "running"}))
    assert run(["resume", str(tmp_path / "m.run"), "--quiet"]) == 0
    assert contents(tmp_path / "m") == right
    assert json.loads(record.read_text())["status"] == "converged"
    # Another run's model in its place is not replaced.
    record.write_text(json.dumps({**json.loads(record.read_text()), "status": "running"}))
    assert run([*fit[:-1], str(tmp_path / "n"), "--c", "2"]) == 0
    shutil.rmtree(tmp_path / "m")
    (tmp_path / "n").rename(tmp_path / "m")
    other = contents(tmp_path / "m")
    assert run(["resume", str(tmp_path / "m.run"), "--quiet"]) == 73
    assert "another model is there" in capsys.readouterr().err
    assert contents(tmp_path / "m") == other


def test_a_run_in_use_is_left_alone(fit: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from bigsvm.files.locks import alone

    (tmp_path / "m.run").mkdir()
    with alone(tmp_path / "m.run" / "lock", "the run"):
        assert run(fit) == 73
    assert "the run is in use by process" in capsys.readouterr().err
    (tmp_path / "m.run").mkdir(exist_ok=True)
    (tmp_path / "m.run" / "lock").touch()  # as the dead leave it
    assert run(fit) == 0


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("ended", ["finished", "stopped"])
def test_what_the_same_command_did_while_the_rows_were_opened_stays(
    ended: str, fit: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its record was deleted, and so was its checkpoint, which may have been hours of work."""
    plain, begun = Job.open, list[str]()

    def opened(job: Job) -> object:
        rows = plain(job)
        if not begun:
            begun.append(ended)
            assert (run(fit) if ended == "finished" else interrupted(fit, monkeypatch, 15)) in (0, 75)
            capsys.readouterr()
        return rows

    monkeypatch.setattr(Job, "open", opened)
    assert run(fit) == 73
    said = "the output exists" if ended == "finished" else "holds the checkpoint of a stopped fit"
    assert said in capsys.readouterr().err
    status = json.loads((tmp_path / "m.run" / "run.json").read_text())["status"]
    assert (status, has_checkpoint(tmp_path / "m.run")) == (
        ("converged", False) if ended == "finished" else ("interrupted", True)
    )


def test_no_run_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["resume", str(tmp_path)]) == 66
    (tmp_path / "run.json").write_text("{}")
    assert run(["resume", str(tmp_path)]) == 65
    assert "does not record the options of the fit" in capsys.readouterr().err


@pytest.mark.usefixtures("streaming")
def test_a_refused_resume_leaves_the_record_as_it_was(
    fit: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert interrupted(fit, monkeypatch, 15) == 75
    record = (tmp_path / "m.run" / "run.json").read_bytes()
    for other in (["--c", "7"], ["--seed", "3"], ["--memory", "65MiB"]):
        assert run([*fit, *other, "--resume"]) == 65
        assert "the stopped run is of another fit" in capsys.readouterr().err
        assert (tmp_path / "m.run" / "run.json").read_bytes() == record
    assert run(["resume", str(tmp_path / "m.run"), "--quiet"]) == 0


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("way", ["resume", "fit"])
def test_a_store_that_was_moved_is_gone_on_with(
    way: str, fit: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, moved, run_folder = Path(fit[1]), tmp_path / "moved.zarr", str(tmp_path / "m.run")
    assert run([*fit, "-o", str(tmp_path / "whole")]) == 0
    assert interrupted(fit, monkeypatch, 15) == 75
    store.rename(moved)
    capsys.readouterr()
    assert run(["resume", run_folder]) == 66
    assert f"bigsvm resume {run_folder} --store" in capsys.readouterr().err
    ingest((np.eye(30), np.arange(30) % 2), tmp_path / "other.zarr")
    record = (tmp_path / "m.run" / "run.json").read_bytes()
    again = ["resume", run_folder, "--store"] if way == "resume" else ["fit"]
    options = [] if way == "resume" else [*fit[2:], "--resume"]
    assert run([*again, str(tmp_path / "other.zarr"), *options]) == 65
    assert "of other rows than those of" in capsys.readouterr().err
    assert (tmp_path / "m.run" / "run.json").read_bytes() == record
    assert run([*again, str(moved), *options]) == 0
    for name in ("coef.npy", "alpha.npy"):
        assert (tmp_path / "m" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize("harm", ["another fit's", "garbage", "an array", "gone"])
def test_a_model_that_is_not_the_runs_own_is_no_result(harm: str, fit: list[str], tmp_path: Path) -> None:
    assert run(fit) == 0
    if harm == "another fit's":
        assert run([*fit, "--c", "0.01", "--overwrite", "--run", str(tmp_path / "r2")]) == 0
    elif harm == "garbage":
        (tmp_path / "m" / "model.json").write_text("garbage")
    elif harm == "an array":
        np.save(tmp_path / "m" / "coef.npy", 2.0 * np.load(tmp_path / "m" / "coef.npy"))
    else:
        shutil.rmtree(tmp_path / "m")
    assert run([*fit, "--resume"]) == {"gone": 0, "an array": 65}.get(harm, 73)
    assert harm == "garbage" or (tmp_path / "m" / "model.json").exists()


@pytest.mark.usefixtures("streaming")
def test_the_same_command_again_does_not_drop_what_was_stopped(
    fit: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert interrupted(fit, monkeypatch, 8) == 75
    stopped = sorted(path.name for path in (tmp_path / "m.run" / "checkpoint").iterdir())
    assert stopped
    capsys.readouterr()
    assert run(fit) == 73
    said = capsys.readouterr().err
    assert f"holds the checkpoint of a stopped fit (bigsvm resume {tmp_path / 'm.run'} continues it" in said
    assert sorted(path.name for path in (tmp_path / "m.run" / "checkpoint").iterdir()) == stopped
    assert run([*fit, "--overwrite"]) == 0


@pytest.mark.usefixtures("streaming")
def test_a_run_that_is_over_is_not_trained_again(
    fit: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that a scheduler sends again after it ended, also where it may overwrite; and other rows are told."""
    again = [*(word for word in fit if word != "--quiet"), "--overwrite", "--resume"]
    assert run([*fit, "--overwrite"]) == 0
    capsys.readouterr()
    for command in (again, ["resume", str(tmp_path / "m.run")]):
        assert run(command) == 0
        assert "nothing was repeated" in capsys.readouterr().out
    shutil.rmtree(fit[1])
    ingest((np.eye(8, dtype=np.float32), np.array([1, -1] * 4)), fit[1])
    assert run([word for word in again if word != "--overwrite"]) == 73
    assert "the run had ended, and the rows of" in capsys.readouterr().err
    assert run(again) == 0


@pytest.mark.usefixtures("streaming")
def test_a_run_that_began_with_what_is_another_model_now_is_told(
    fit: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = str(tmp_path / "start")
    for C in ("0.01", "10"):
        assert run(["fit", fit[1], "--c", C, "--loss", "hinge", "-o", f"{start}{C}", "--quiet"]) == 0
    shutil.copytree(f"{start}0.01", start)
    begun = [*fit, "--warm-start", start]
    assert run([*begun, "--overwrite"]) == 0
    assert run([*begun, "--resume"]) == 0  # the very same
    shutil.rmtree(start)
    assert run([*begun, "--resume"]) == 0  # nobody needs it any more
    shutil.copytree(f"{start}10", start)
    capsys.readouterr()
    assert run([*begun, "--resume"]) == 73
    assert f"the model {start} that it started from has changed since" in capsys.readouterr().err
    assert run([*begun, "--resume", "--overwrite"]) == 0


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("looks", [60, 120])
def test_a_stopped_fit_says_as_json_how_far_it_came(
    fit: list[str], looks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fit = [*fit, "--solver", "dcd", "--tol", "1e-9", "--json"]
    assert interrupted(fit, monkeypatch, looks) == 75
    document = json.loads(capsys.readouterr().out)
    assert (document["status"], document["error"]["code"]) == ("interrupted", 75)
    result = document["result"]
    assert (result["n_samples"], result["n_features"], result["loss"]) == (900, 8, "hinge")
    assert result["run"] == str(tmp_path / "m.run")
    proofs = [json.loads(line) for line in (tmp_path / "m.run" / "events.jsonl").read_text().splitlines()]
    passes = [line["passes"] for line in proofs if line["event"] == "EpochEnd"]
    assert result["passes"] == max(passes, default=0.0)  # none where a busy machine looked often before the first
    proofs = [line for line in proofs if line["event"] == "CertificateMade"]
    assert result["certificate"] == ("estimate" if proofs else "none")
    if proofs:
        assert result["objective"] == proofs[-1]["objective"]
        assert result["duality_gap"] == proofs[-1]["objective"] - proofs[-1]["dual_objective"]


@pytest.mark.parametrize("status", ["error", "interrupted", "running", None])
def test_a_record_without_events_is_of_a_run_that_wrote_no_model(status: str | None, tmp_path: Path) -> None:
    """A full disk may have had no room for events: the record of the run stands in nobody's way."""
    run = tmp_path / "m.run"
    run.mkdir()
    (run / "run.json").write_text("torn" if status is None else json.dumps({"status": status}))
    assert is_unfinished(run)
    (run / "run.json").write_text(json.dumps({"status": "converged"}))
    assert not is_unfinished(run)
