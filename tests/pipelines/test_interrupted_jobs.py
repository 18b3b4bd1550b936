"""Retraining jobs that meet another one, a full disk, a crash or a signal: what each leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bigsvm.errors import Interrupted, OutputError
from bigsvm.events import EpochEnd
from bigsvm.model import versions as registry
from bigsvm.model.versions import swap
from bigsvm.run.fit.fit import fit_store
from pipelines import steps
from pipelines.config import Job, read_job
from tests.held import signalled_in_training
from tests.pipelines.jobs import ROOT, Place, Retrain, current, job, retrain, write_store

__all__ = ["job", "retrain"]


def test_one_run_at_a_time(job: Place, retrain: Retrain) -> None:
    config = job()
    with steps.alone(read_job(config)):
        said = retrain(config, "--json")
    assert said.code == 73
    assert "is in use by process" in said.err
    assert retrain(config).code == 0


def test_a_log_that_cannot_be_written_does_not_undo_a_promotion(
    job: Place, retrain: Retrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(job: Job, document: dict[str, Any]) -> None:
        raise OutputError("cannot write: No space left on device", "retrain.jsonl")

    monkeypatch.setattr(steps, "record", fail)
    said = retrain(job(), "--json")
    assert said.code == 0
    assert any("No space" in warning for warning in said.document["warnings"])
    assert registry.current_version(tmp_path / "reg") == 1


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["text", "json"])
def test_a_reader_that_has_gone_does_not_undo_a_promotion(flags: list[str], job: Place, tmp_path: Path) -> None:
    """It ended with 74 after the promotion."""
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "pipelines.retrain", "--config", str(job()), *flags]
    done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    os.close(writes)
    assert (done.returncode, registry.current_version(tmp_path / "reg")) == (0, 1)
    assert "error" not in done.stderr


_DIE = """
import os, sys
from pipelines import retrain, steps
place, config = sys.argv[1:]
def die(*args, **options): os._exit(9)
if place == "before promote": steps.promote = die
if place == "before the swap": os.replace = lambda a, b: die() if str(b).endswith("current") else os.rename(a, b)
sys.exit(retrain.main(["--config", config, "--quiet"]))
"""


@pytest.mark.parametrize("place", ["before promote", "before the swap"])
def test_a_crash_between_training_and_promotion(job: Place, retrain: Retrain, tmp_path: Path, place: str) -> None:
    config = job()
    assert retrain(config).code == 0
    before = current(tmp_path)
    write_store(tmp_path / "train.zarr", 3)
    done = subprocess.run([sys.executable, "-c", _DIE, place, str(config)], cwd=ROOT, check=False, capture_output=True)
    assert done.returncode == 9, done.stderr
    assert current(tmp_path) == before
    assert retrain(config, "--json", "--quiet").document["result"]["version"] == 2
    assert current(tmp_path) != before


@pytest.mark.parametrize("begun", [False, True], ids=["before training", "in training"])
def test_a_stopped_night_says_how_the_next_one_goes_on(
    job: Place, retrain: Retrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """It promised a checkpoint where training had not begun."""
    config = job(fit='loss = "hinge"\nsolver = "dcd"\ntol = 1e-6\n')

    def signalled(store: Any, config: Any, emit: Any, *arguments: Any, **options: Any) -> Any:
        def stop(event: Any) -> None:
            emit(event)
            if isinstance(event, EpochEnd):
                os.kill(os.getpid(), signal.SIGTERM)

        if begun:
            return fit_store(store, config, stop, *arguments, **options)
        raise Interrupted("stopped by SIGTERM before training began", hint="the same command goes on")

    with monkeypatch.context() as patched:
        patched.setattr("pipelines.fitting.fit_store", signalled)
        said = retrain(config, "--json")
    assert said.code == 75, said.err
    assert any(tmp_path.rglob("candidate.run/checkpoint/*")) == begun
    how = "continues from its checkpoint" if begun else "begins the fit again"
    assert said.document["error"]["hint"] == f"the next run of the job {how}"
    again = retrain(config, "--json")
    assert (again.code, again.document["result"]["fitted"]) == (0, "resumed" if begun else "trained")


@pytest.mark.parametrize("place", ["swap", "telling", "tidying"])
def test_a_signal_after_the_swap_leaves_a_promotion_that_is_told(
    job: Place, retrain: Retrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    config = job(top="keep_versions = 3\n")
    assert retrain(config).code == 0
    write_store(tmp_path / "train.zarr", 3)
    where, name = {
        "swap": (swap, "write_down"), "telling": (steps.notify, "tell"), "tidying": (registry, "prune"),
    }[place]  # fmt: skip
    was = getattr(where, name)

    def signalled(*arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return was(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(where, name, signalled)
        said = retrain(config, "--json")
    assert said.code == 0, said.err
    assert said.document["status"] == "promoted"
    assert registry.current_version(tmp_path / "reg") == said.document["result"]["version"] == 2
    again = retrain(config, "--json")
    assert again.document["status"] == ("promoted" if place == "telling" else "unchanged")
    assert registry.current_version(tmp_path / "reg") == 2
    assert [entry["version"] for entry in registry.history(tmp_path / "reg")] == [1, 2]


_IMPORTED = """
import os, runpy, signal, sys
number, at, *args = sys.argv[1:]
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, if the tests run in the background
class Finder:
    def find_spec(self, name, *where):
        if name == at:
            os.kill(os.getpid(), int(number))
sys.meta_path.insert(0, Finder())
sys.argv = ["retrain", *args]
try:
    runpy.run_module("pipelines.retrain", run_name="__main__", alter_sys=True)
except SystemExit as end:
    print(end.code, signal.getsignal(signal.SIGTERM).name)
"""


@pytest.mark.parametrize("at", ["bigsvm", "numpy", "pipelines.steps"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_night_is_imported_ends_it_at_once(at: str, number: int, tmp_path: Path) -> None:
    given = [sys.executable, "-c", _IMPORTED, str(int(number)), at, "--config", str(tmp_path / "none.toml"), "--json"]
    done = subprocess.run(given, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 75
    assert done.stderr.splitlines() == [
        "bigsvm: error: interrupted; the current model stays (nothing was begun: run the job again) "
        "[errors.md#interrupted]"
    ]
    document = json.loads(done.stdout)
    assert (document["status"], document["error"]["code"]) == ("interrupted", 75)


def test_a_night_that_is_over_is_not_ended_by_a_signal() -> None:
    """The handler of the imports is gone by then: the exit code is that of the night."""
    given = [sys.executable, "-c", _IMPORTED, "15", "nothing", "--help"]
    done = subprocess.run(given, cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 SIG_IGN"


def test_sigterm_ends_with_75(job: Place, retrain: Retrain, tmp_path: Path) -> None:
    assert retrain(job()).code == 0
    before = current(tmp_path)
    write_store(tmp_path / "train.zarr", 3, n_samples=3000, flipped=0.4)
    config = job(fit='solver = "dcd"\ntol = 1e-15\nc = 1000.0\nloss = "hinge"')
    program = "from pipelines.retrain import main; sys.exit(main(sys.argv[1:]))"
    code, out, err = signalled_in_training(program, ["--config", str(config), "--json"], ROOT, signal.SIGTERM)
    assert code == 75, err
    assert json.loads(out)["error"]["code"] == 75
    assert err.splitlines()[-1].startswith("bigsvm: error: stopped by SIGTERM")
    assert current(tmp_path) == before
