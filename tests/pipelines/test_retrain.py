"""Retraining jobs on folders: what is promoted, what is refused and why, and what a failure leaves behind."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import bigsvm
from bigsvm.errors import MissingInput, OutputError, UsageError
from bigsvm.model import versions as registry
from bigsvm.model.linear_model import load_model
from bigsvm.model.versions import swap
from bigsvm.store.ingest.zarr_writer import ZarrWriter
from pipelines import steps
from pipelines.config import Job, read_job
from pipelines.retrain import main
from tests.held import signalled_in_training
from tests.model_documents import renew
from tests.registry.made import SPOILT, tree

ROOT = Path(__file__).parents[2]
BAD_MODELS = [name for name in SPOILT if name not in ("other feature count", "other classes")]


def write_store(
    path: Path, seed: int, n_samples: int = 200, n_features: int = 5, flipped: float = 0.05, one_class: bool = False
) -> Path:
    """Rows of one planted direction; `flipped` of the labels are wrong."""
    direction = np.random.default_rng(99).standard_normal(12)[:n_features]
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_features)).astype(np.float32)
    labels = np.where(X @ direction > 0, 1.0, -1.0)
    labels[rng.random(n_samples) < flipped] *= -1.0
    if one_class:
        labels[:] = 1.0
    with ZarrWriter(path, layout="dense", dtype=np.float32, n_features=n_features, overwrite=True) as writer:
        writer.append(X, labels)
        writer.finish()
    return path


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.out)


Place = Callable[..., Path]
Retrain = Callable[..., Said]


@pytest.fixture
def job(tmp_path: Path) -> Place:
    """Write job.toml, beside a store and a holdout; arguments are lines of TOML by table."""
    write_store(tmp_path / "train.zarr", 1)
    write_store(tmp_path / "holdout.zarr", 2)

    def write(top: str = "", fit: str = "", gates: str = "") -> Path:
        text = 'store = "train.zarr"\nholdout = "holdout.zarr"\nregistry = "reg"\n' + top
        text += f'\n[fit]\nmemory = "64MiB"\nthreads = 1\n{fit}\n[gates]\n{gates}\n'
        (tmp_path / "job.toml").write_text(text)
        return tmp_path / "job.toml"

    return write


@pytest.fixture
def retrain(capsys: pytest.CaptureFixture[str]) -> Retrain:
    def call(config: Path, *args: str) -> Said:
        capsys.readouterr()
        code = main(["--config", str(config), *args])
        return Said(code, *capsys.readouterr())

    return call


def current(tmp_path: Path) -> dict[str, bytes]:
    folder = registry.current(tmp_path / "reg")
    assert folder is not None
    return tree(folder)


def test_promote_then_nothing_to_do_then_a_changed_store(job: Place, retrain: Retrain, tmp_path: Path) -> None:
    config = job(gates="min_accuracy = 0.8\nmax_drop = 0.2")
    first = retrain(config, "--json", "--quiet")
    assert (first.code, first.err) == (0, "")
    assert first.document["status"] == "promoted"
    assert first.document["result"]["version"] == 1
    (entry,) = registry.history(tmp_path / "reg")
    assert entry["metrics"]["accuracy"] > 0.8
    assert entry["metrics"]["relative_gap"] <= 1e-3
    before = current(tmp_path)

    again = retrain(config)
    assert (again.code, again.err) == (0, "")
    assert again.out.startswith("nothing to do: ")
    assert len(registry.history(tmp_path / "reg")) == 1

    write_store(tmp_path / "train.zarr", 3, n_samples=300)
    third = retrain(config, "--json", "--quiet")
    assert third.document["result"]["version"] == 2
    assert third.document["result"]["reason"] == "the store has changed"
    gates = {gate["name"] for gate in third.document["result"]["gates"]}
    assert gates == {"sound", "shape", "gap", "min_accuracy", "max_drop"}
    assert current(tmp_path) != before
    lines = (tmp_path / "reg" / "work" / "retrain.jsonl").read_text().splitlines()
    assert [json.loads(line)["status"] for line in lines] == ["promoted", "unchanged", "promoted"]


def test_other_options_retrain_and_other_places_do_not(job: Place, retrain: Retrain) -> None:
    assert retrain(job()).code == 0
    assert retrain(job(fit='max-time = "2h"\nscratch = "here"'), "--json").document["status"] == "unchanged"
    document = retrain(job(fit="c = 0.5"), "--json", "--quiet").document
    assert document["status"] == "promoted"
    assert document["result"]["reason"] == "the options of the fit have changed"


def test_what_was_rolled_back_is_not_put_forward_again(job: Place, retrain: Retrain, tmp_path: Path) -> None:
    config = job()
    retrain(config)
    write_store(tmp_path / "train.zarr", 3)
    retrain(config)
    registry.rollback(tmp_path / "reg")
    assert retrain(config, "--json").document["status"] == "unchanged"
    assert registry.current_version(tmp_path / "reg") == 1
    assert retrain(config, "--json", "--force", "--quiet").document["status"] == "promoted"


@pytest.mark.parametrize(
    ("gates", "named"),
    [("min_accuracy = 0.999", "min_accuracy"), ("min_f1 = 1", "min_f1"), ("max_drop = 0.02", "max_drop"),
     ('max_drop = 0.0\ndrop_metric = "roc_auc"', "max_drop"), ("max_relative_gap = 1e-300", "gap")],
)  # fmt: skip
def test_a_refusing_gate_keeps_the_current_model(
    job: Place, retrain: Retrain, tmp_path: Path, gates: str, named: str
) -> None:
    assert retrain(job()).code == 0
    before = current(tmp_path)
    write_store(tmp_path / "train.zarr", 3, n_samples=60, flipped=0.45)
    said = retrain(job(gates=gates), "--json", "--quiet")
    assert said.code == 76
    assert said.document["status"] == "refused"
    assert said.document["result"]["version"] is None
    assert [gate["name"] for gate in said.document["result"]["gates"] if not gate["passed"]] == [named]
    assert said.err.startswith(f"bigsvm: error: refused by gate {named}: ")
    assert said.err.count("\n") == 1
    assert current(tmp_path) == before
    assert len(registry.history(tmp_path / "reg")) == 1


def test_a_metric_that_cannot_be_measured_is_refused(job: Place, retrain: Retrain, tmp_path: Path) -> None:
    write_store(tmp_path / "holdout.zarr", 2, one_class=True)
    assert retrain(job(gates="min_roc_auc = 0.1"), "--quiet").code == 76
    assert registry.current(tmp_path / "reg") is None


def test_another_feature_count_is_refused_unless_it_is_meant(job: Place, retrain: Retrain, tmp_path: Path) -> None:
    assert retrain(job()).code == 0
    write_store(tmp_path / "train.zarr", 3, n_features=8)
    said = retrain(job(), "--quiet")
    assert said.code == 76
    assert "8 features" in said.err
    assert registry.current_version(tmp_path / "reg") == 1
    meant = job(gates="allow_other_shape = true\nmax_drop = 0.1")
    said = retrain(meant, "--quiet")
    assert said.code == 65, "the holdout still has the former columns"
    assert "5 features and the model 8" in said.err
    write_store(tmp_path / "holdout.zarr", 4, n_features=8)
    assert retrain(meant, "--quiet").code == 0
    assert registry.current_version(tmp_path / "reg") == 2


def test_not_converged(job: Place, retrain: Retrain, tmp_path: Path) -> None:
    said = retrain(job(fit="tol = 1e-9\nmax-passes = 2"), "--json", "--quiet")
    assert said.code == 4
    assert said.document["status"] == "not_converged"
    assert said.err.count("\n") == 1
    assert registry.current(tmp_path / "reg") is None
    wide = job(fit="tol = 1e-9\nmax-passes = 2", gates="max_relative_gap = 0.9")
    assert retrain(wide, "--quiet").code == 0, "a wider gap was asked for, and is proved"


@pytest.mark.parametrize("trouble", ["one class", "few rows", "a chunk changed", "a chunk missing"])
def test_bad_data_are_refused(job: Place, retrain: Retrain, tmp_path: Path, trouble: str) -> None:
    assert retrain(job()).code == 0
    before = current(tmp_path)
    store = write_store(tmp_path / "train.zarr", 3, n_samples=150, one_class=trouble == "one class")
    chunk = next(path for path in sorted((store / "X").rglob("*")) if path.is_file() and path.name != "zarr.json")
    if trouble == "a chunk changed":
        content = bytearray(chunk.read_bytes())
        content[-1] ^= 255
        chunk.write_bytes(content)
    if trouble == "a chunk missing":
        chunk.unlink()
    said = retrain(job("min_rows = 180\n" if trouble == "few rows" else ""), "--json", "--quiet")
    assert said.code == 65
    assert said.document["error"]["code"] == 65
    assert said.err.count("\n") == 1
    assert current(tmp_path) == before


def fitted(config: Path) -> tuple[Job, steps.Found, steps.Candidate]:
    read = read_job(config)
    found = steps.detect(read)
    read.folder.mkdir(parents=True, exist_ok=True)
    return read, found, steps.fit(read, found)


def test_bad_candidates_are_never_promoted(job: Place, retrain: Retrain, tmp_path: Path) -> None:
    assert retrain(job()).code == 0
    before = current(tmp_path)
    read, found, candidate = fitted(job(fit="c = 2.0"))
    good = tmp_path / "good"
    shutil.copytree(candidate.path, good)
    for name in BAD_MODELS:
        shutil.rmtree(candidate.path)
        shutil.copytree(good, candidate.path)
        SPOILT[name](candidate.path)
        verdict = steps.judge(read, found, candidate.path)
        assert not verdict.passed, name
        with pytest.raises(Exception, match="did not pass"):
            steps.promote(read, found, candidate.path, verdict)
    assert current(tmp_path) == before
    assert steps.judge(read, found, good).passed


def test_a_lie_about_the_gap_is_found_out(job: Place) -> None:
    read, found, candidate = fitted(job())
    path = candidate.path / "coef.npy"
    np.save(path, np.load(path) * 1.5)
    renew(candidate.path, "coef.npy")
    verdict = steps.judge(read, found, candidate.path)
    assert [gate.name for gate in verdict.refusals] == ["gap"]
    trusting = read.model_copy(update={"gates": read.gates.model_copy(update={"recertify": False})})
    assert steps.judge(trusting, found, candidate.path).passed, "without a proof of its own it takes the run's word"


def test_a_model_of_other_rows_proves_nothing(job: Place, tmp_path: Path) -> None:
    read, _, candidate = fitted(job())
    write_store(tmp_path / "train.zarr", 3)
    verdict = steps.judge(read, steps.detect(read), candidate.path)
    assert [gate.name for gate in verdict.refusals] == ["gap"]


def test_a_verdict_without_gates_passes_nothing() -> None:
    assert not steps.Verdict().passed


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


@pytest.mark.parametrize("times", [1, 5])
def test_a_candidate_is_compared_with_what_it_replaces(
    job: Place, retrain: Retrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Somebody promotes by hand between judgement and promotion."""
    config = job(gates="max_drop = 0.0")
    write_store(tmp_path / "train.zarr", 1, flipped=0.45)
    assert retrain(config).code == 0  # a poor model, which the next candidate beats
    write_store(tmp_path / "other.zarr", 5, n_samples=2000, flipped=0.0)
    bigsvm.fit(tmp_path / "other.zarr", memory="64MiB").save_model(tmp_path / "good")
    write_store(tmp_path / "train.zarr", 3, n_samples=60, flipped=0.3)
    judge, left = steps.judge, [times]

    def then_by_hand(*arguments: Any) -> Any:
        verdict = judge(*arguments)
        if left[0]:
            left[0] -= 1
            registry.promote(tmp_path / "reg", tmp_path / "good")
        return verdict

    monkeypatch.setattr(steps, "judge", then_by_hand)
    said = retrain(config, "--json")
    assert said.code == 76, said.err
    assert "max_drop" in said.err
    assert tree(registry.current(tmp_path / "reg") or tmp_path) == tree(tmp_path / "good")


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


@pytest.mark.parametrize(
    ("top", "fit", "gates", "named"),
    [("stor = 1", "", "", "stor"), ("", "memroy = '1GiB'", "", "memroy"), ("", "", "min_acuracy = 0.9", "min_acuracy"),
     ("", "tol = -1", "", "tol"), ("", "tol = 'small'", "", "tol"), ("", "c = 1\nlambda = 1", "", "lambda"),
     ("", "loss = 'log'", "", "loss"), ("", "", "min_accuracy = 80", "min_accuracy"),
     ("", "", "max_drop = nan", "max_drop"), ("", "", "drop_metric = 'precision'", "drop_metric"),
     ("min_rows = 0", "", "", "min_rows"), ("=", "", "", "TOML")],
)  # fmt: skip
def test_mistakes_in_the_job_are_named(
    job: Place, retrain: Retrain, tmp_path: Path, top: str, fit: str, gates: str, named: str
) -> None:
    said = retrain(job(top + "\n", fit, gates), "--json")
    assert said.code == 2
    assert named in said.document["error"]["message"]
    assert said.document["error"]["where"].endswith("job.toml")
    assert said.err.count("\n") == 1
    assert not (tmp_path / "reg").exists()


def test_gates_need_a_holdout_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('store = "a"\nregistry = "r"\n[gates]\nmax_drop = 0.1\n')
    with pytest.raises(UsageError, match="no holdout"):
        read_job(path)
    path.write_text('store = "a"\nholdout = "a"\nregistry = "r"\n')
    with pytest.raises(UsageError, match="training store"):
        read_job(path)
    with pytest.raises(MissingInput):
        read_job(tmp_path / "none.toml")


def test_paths_are_from_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a.toml").write_text(
        'store = "../a.zarr"\nholdout = "/b.zarr"\nregistry = "reg"\n[fit]\nscratch = "tmp"\nmax-time = "2h"\n'
    )
    monkeypatch.chdir(tmp_path)
    read = read_job("jobs/a.toml")
    assert os.path.realpath(read.store) == os.path.realpath(tmp_path / "a.zarr")
    assert read.holdout == "/b.zarr"
    assert read.registry == tmp_path / "jobs" / "reg"
    assert read.folder == tmp_path / "jobs" / "reg" / "work"
    assert read.fit.scratch == str(tmp_path / "jobs" / "tmp")
    assert read.fit.max_time == 7200


def test_the_example_is_a_job() -> None:
    read = read_job(ROOT / "pipelines" / "nightly.toml")
    assert read.gates.minima() == {"accuracy": 0.8}
    assert dataclasses.asdict(read.fit)["tol"] == 1e-3


def test_usage(retrain: Retrain, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["--help"]) == 0
    assert retrain(Path("no-such.toml"), "--json").document["error"]["code"] == 66


def test_without_a_holdout(job: Place, retrain: Retrain, tmp_path: Path) -> None:
    config = job()
    config.write_text(config.read_text().replace('holdout = "holdout.zarr"\n', ""))
    assert retrain(config, "--quiet").code == 0
    assert load_model(tmp_path / "reg" / "current").n_features == 5


@pytest.mark.parametrize("name", ["registry", "work"])
@pytest.mark.parametrize("scheme", ["s3", "gs", "az", "http"])
def test_what_is_written_is_on_a_local_disk(name: str, scheme: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Said before any work, and no folder is made that is called so."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "job.toml"
    places = {"store": "train.zarr", "holdout": "holdout.zarr", "registry": "reg", name: f"{scheme}://bucket/reg"}
    path.write_text("".join(f'{key} = "{value}"\n' for key, value in places.items()))
    with pytest.raises(OutputError, match="only to local disks"):
        read_job(path)
    assert [file.name for file in tmp_path.iterdir()] == ["job.toml"]
