"""Retraining jobs on folders: what is promoted, and what is refused and why."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.model import versions as registry
from bigsvm.model.linear_model import load_model
from pipelines import steps
from pipelines.config import Job, read_job
from pipelines.retrain import main
from tests.model_documents import renew
from tests.pipelines.jobs import Place, Retrain, current, job, retrain, write_store
from tests.registry.made import SPOILT, tree

__all__ = ["job", "retrain"]

BAD_MODELS = [name for name in SPOILT if name not in ("other feature count", "other classes")]


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
    said = retrain(job(fit="tol = 1e-9\nmax-passes = 4"), "--json", "--quiet")
    assert said.code == 4
    assert said.document["status"] == "not_converged"
    assert said.err.count("\n") == 1
    assert registry.current(tmp_path / "reg") is None
    wide = job(fit="tol = 1e-9\nmax-passes = 4", gates="max_relative_gap = 0.9")
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


def test_what_is_no_model_is_not_trained_for_in_vain(job: Place, retrain: Retrain, tmp_path: Path) -> None:
    place = tmp_path / "reg" / "work" / "candidate.model"
    place.mkdir(parents=True)
    (place / "coef.npy").write_bytes(b"its model.json is gone")
    said = retrain(job())
    assert said.code == 73
    assert f"{place}: is not a model" in said.err
    assert f"move {place} away" in said.err
    assert said.err.count("\n") == 1, "nothing was read"
    place.rename(tmp_path / "away")
    assert retrain(job()).code == 0


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
