"""Drift, the comparison with the current model, and who is told: each against figures counted in another way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse, stats

from bigsvm.budget import MemoryBudget
from bigsvm.errors import DataError, UsageError
from bigsvm.model import versions as registry
from bigsvm.model.linear_model import load_model
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest
from pipelines import notify
from pipelines.config import read_job
from pipelines.gates.drift import psi, psi_of_histograms
from pipelines.gates.paired import Paired, compare
from pipelines.gates.profile import Profile, counts, profile_of
from pipelines.tables import Notify
from tests.pipelines.jobs import Place, Retrain, current, job, retrain, write_store

__all__ = ["job", "retrain"]

LIMITS = "max_label_psi = 0.25\nmax_mean_shift = 0.5\nmax_zero_rate_change = 0.3\nmax_score_psi = 0.5"


def write_rows(path: Path, seed: int, moved: float = 0.0, emptied: bool = False, positive: float = 0.5) -> Path:
    """Rows whose third feature is moved, or whose second one is mostly 0, or with another share of positive ones."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((400, 4)).astype(np.float32)
    y = np.where(rng.random(400) < positive, 1.0, -1.0)
    X[:, 0] += y
    X[:, 2] += moved
    if emptied:
        X[rng.random(400) < 0.8, 1] = 0.0
    ingest((X, y), path, overwrite=True)
    return path


@pytest.fixture
def watched(job: Place, retrain: Retrain, tmp_path: Path) -> Path:
    """A job with limits on drift, and a first promotion."""
    write_rows(tmp_path / "train.zarr", 1)
    write_rows(tmp_path / "holdout.zarr", 2)
    config = job()
    config.write_text(config.read_text() + f"\n[drift]\n{LIMITS}\n")
    assert retrain(config, "--quiet").code == 0
    return config


@pytest.mark.parametrize(
    ("rows", "gate", "said"),
    [({"moved": 2.0}, "drift_mean", "feature 2: mean "), ({"emptied": True}, "drift_zero_rate", "feature 1: 0 in 0."),
     ({"positive": 0.9}, "drift_labels", "population stability index ")],
)  # fmt: skip
def test_drifted_rows_are_refused_before_the_fit(
    watched: Path, retrain: Retrain, tmp_path: Path, rows: dict[str, Any], gate: str, said: str
) -> None:
    before = current(tmp_path)
    write_rows(tmp_path / "train.zarr", 3, **rows)
    answer = retrain(watched, "--json", "--quiet")
    assert (answer.code, answer.document["status"]) == (76, "refused")
    assert f"refused by gate {gate}: {said}" in answer.err or f"; {gate}: {said}" in answer.err
    assert gate in [found["name"] for found in answer.document["result"]["gates"] if not found["passed"]]
    assert "fit" not in answer.document["result"]
    assert current(tmp_path) == before
    accepted = retrain(watched, "--json", "--quiet", "--accept-drift").document
    assert accepted["status"] == "promoted"
    write_rows(tmp_path / "train.zarr", 4, **rows)
    assert retrain(watched, "--json", "--quiet").document["status"] == "promoted", "they are the usual rows now"


@pytest.mark.parametrize("what", ["a rollback", "a rollback that was killed", "a promotion"])
def test_what_was_done_by_hand_is_no_change_and_drift_is_still_seen(
    watched: Path, retrain: Retrain, tmp_path: Path, what: str
) -> None:
    root = tmp_path / "reg"
    write_rows(tmp_path / "train.zarr", 3)
    assert retrain(watched, "--json", "--quiet").document["status"] == "promoted"
    if what == "a promotion":
        version = registry.promote(root, root / "versions" / "000001")
    elif what == "a rollback":
        version = registry.rollback(root)
    else:
        program = "import os, sys; from bigsvm.model.versions import rollback, swap"
        program += "; swap.write_down = lambda *_: os._exit(137); rollback(sys.argv[1])"
        assert subprocess.run([sys.executable, "-c", program, str(root)], check=False).returncode == 137
        version = 1
    assert retrain(watched, "--json", "--quiet", "--dry-run").document["result"]["would"] == "nothing"
    assert retrain(watched, "--json", "--quiet").document["status"] == "unchanged"
    assert registry.current_version(root) == version
    write_rows(tmp_path / "train.zarr", 4, moved=2.0)
    answer = retrain(watched, "--json", "--quiet")
    assert (answer.code, answer.document["status"]) == (76, "refused"), "rows that moved are held against the last ones"


@pytest.mark.parametrize("gates", ["max_drop = 0.01", "max_churn = 0.05", 'challenger = "not_worse"', ""])
def test_a_holdout_whose_rows_weigh_nothing_passes_no_gate(
    job: Place, retrain: Retrain, tmp_path: Path, gates: str
) -> None:
    write_rows(tmp_path / "train.zarr", 1)
    write_rows(tmp_path / "holdout.zarr", 2)
    assert retrain(job(), "--quiet").code == 0
    store = open_store(write_rows(tmp_path / "again.zarr", 2))
    (block,) = [store.read(ref) for ref in store.refs(1000)]
    rows = (block.X, block.y, np.zeros(len(block.y)))
    ingest(rows, tmp_path / "holdout.zarr", overwrite=True)
    write_rows(tmp_path / "train.zarr", 3, positive=0.1)
    answer = retrain(job(gates=gates), "--quiet")
    assert answer.code == 65
    assert "every row has weight 0" in answer.err
    assert registry.current_version(tmp_path / "reg") == 1


def test_rows_of_the_same_kind_are_no_drift(watched: Path, retrain: Retrain, tmp_path: Path) -> None:
    write_rows(tmp_path / "train.zarr", 3)
    answer = retrain(watched, "--json", "--quiet")
    assert answer.document["status"] == "promoted", answer.err
    names = {gate["name"] for gate in answer.document["result"]["gates"]}
    assert names >= {"drift_labels", "drift_mean", "drift_zero_rate", "drift_scores"}
    assert len(list((tmp_path / "reg/work/profiles").iterdir())) == 1


def test_scores_that_moved_are_refused(watched: Path, retrain: Retrain, tmp_path: Path) -> None:
    write_rows(tmp_path / "holdout.zarr", 5, positive=0.99)
    write_rows(tmp_path / "train.zarr", 3)
    answer = retrain(watched, "--quiet")
    assert answer.code == 76
    assert "refused by gate drift_scores: population stability index " in answer.err


def test_a_torn_profile_is_named(watched: Path, retrain: Retrain, tmp_path: Path) -> None:
    (path,) = (tmp_path / "reg/work/profiles").iterdir()
    path.write_bytes(path.read_bytes()[:200])
    write_rows(tmp_path / "train.zarr", 3)
    answer = retrain(watched, "--json", "--quiet")
    assert answer.code == 65
    assert str(path) in answer.err
    with pytest.raises(DataError):
        Profile.load(path)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_profile_is_what_numpy_says(tmp_path: Path, layout: str, weighted: bool) -> None:
    rng = np.random.default_rng(1)
    X = (rng.standard_normal((300, 7)) * (rng.random((300, 7)) < 0.4)).astype(np.float32)
    X[:, 3] += 1e4  # a mean far from 0 cancels nothing
    y = rng.integers(0, 3, 300).astype(np.float64)
    weight = np.where(rng.random(300) < 0.3, 0.0, 2.0) if weighted else None
    ingest((sparse.csr_matrix(X) if layout == "csr" else X, y), tmp_path / "a.zarr", sample_weight=weight)
    found = profile_of(open_store(tmp_path / "a.zarr"), MemoryBudget(64 << 20))
    kept = slice(None) if weight is None else weight > 0
    rows = X[kept].astype(np.float64)
    np.testing.assert_allclose(found.mean, rows.mean(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.variance, rows.var(axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.zero_rate, (rows == 0).mean(axis=0), atol=1e-12)
    assert found.n_rows == len(rows)
    np.testing.assert_allclose(list(found.labels.values()), [(y[kept] == c).mean() for c in range(3)])
    found.save(tmp_path / "p" / "a.npz")
    again = Profile.load(tmp_path / "p" / "a.npz")
    assert again is not None
    np.testing.assert_array_equal(again.mean, found.mean)
    assert again.labels == found.labels


def test_the_stability_index() -> None:
    assert psi(np.array([50, 50]), np.array([500, 500])) == pytest.approx(0.0, abs=1e-4)
    p, q = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    assert psi(1e6 * p, 1e6 * q) == pytest.approx(float(np.sum((q - p) * np.log(q / p))), rel=1e-4)
    rng = np.random.default_rng(0)
    same, far = (counts(rng.standard_normal(5000) + shift) for shift in (0.0, 1.0))
    reference = counts(rng.standard_normal(5000))
    assert psi_of_histograms(reference, same) < 0.02 < 0.5 < psi_of_histograms(reference, far)
    assert psi_of_histograms(counts(np.zeros(9)), counts(np.zeros(9))) == pytest.approx(0.0)
    assert counts(np.array([-1e300, 1e300])).sum() == 2


def test_the_paired_tests_are_scipys() -> None:
    found = Paired(n_rows=100, won=4, lost=14)
    assert found.chance(better=False) == pytest.approx(stats.binomtest(14, 18, alternative="greater").pvalue)
    assert found.chance(better=True) == pytest.approx(stats.binomtest(4, 18, alternative="greater").pvalue)
    assert Paired(n_rows=9).chance(better=True) == 1.0
    gains = np.random.default_rng(3).standard_normal(50) + 0.2
    values = Paired(regression=True)
    for part in np.split(gains, [7, 20]):
        values.add_gains(part)
        values.n_rows += len(part)
    for better, side in ((True, "greater"), (False, "less")):
        assert values.chance(better) == pytest.approx(stats.ttest_1samp(gains, 0, alternative=side).pvalue)


def test_both_models_are_asked_about_the_same_rows(job: Place, retrain: Retrain, tmp_path: Path) -> None:
    retrain(job(), "--quiet")
    write_store(tmp_path / "train.zarr", 3, n_samples=40, flipped=0.4)
    answer = retrain(job(gates='max_churn = 1.0\nchallenger = "not_worse"'), "--json", "--quiet")
    assert answer.code == 76
    assert "refused by gate challenger: worse beyond chance: " in answer.err
    old = load_model(registry.current(tmp_path / "reg"))
    new = load_model(tmp_path / "reg/work/candidate.model")
    holdout = open_store(tmp_path / "holdout.zarr")
    (block,) = [holdout.read(ref) for ref in holdout.refs(1000)]
    true = holdout.classes[block.y.astype(int)]
    a, b = new.predict(block.X), old.predict(block.X)
    found = compare(new, old, holdout, MemoryBudget(64 << 20))
    assert (found.won, found.lost) == (np.sum((a == true) & (b != true)), np.sum((a != true) & (b == true)))
    assert found.churn == np.mean(a != b)
    assert found.scores.sum() == len(true)
    said = retrain(job(gates="max_churn = 0.01"), "--quiet").err
    assert "refused by gate max_churn: " in said
    assert "rows of the holdout get another label, limit 0.01" in said
    assert "no better beyond chance" in retrain(job(gates='challenger = "better"'), "--quiet").err


def test_a_class_that_is_nearly_gone(job: Place, retrain: Retrain, tmp_path: Path) -> None:
    write_rows(tmp_path / "train.zarr", 1, positive=0.02)
    said = retrain(job(gates="min_class_share = 0.1"), "--quiet")
    assert said.code == 76
    assert "refused by gate class_balance: class 1.0 has 0.0" in said.err or "class 1 has 0.0" in said.err


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(job: Place, retrain: Retrain, tmp_path: Path) -> None:
    config = job(gates="min_accuracy = 0.8")
    said = retrain(config, "--dry-run", "--json").document
    assert (said["status"], said["result"]["would"]) == ("dry_run", "train")
    assert said["result"]["checks"] == ["sound", "shape", "gap <= 0.001", "gates.min_accuracy = 0.8"]
    assert not (tmp_path / "reg").exists()
    retrain(config, "--quiet")
    assert retrain(config, "--dry-run").out.startswith("would: nothing (")
    assert retrain(config, "--dry-run", "--force", "--json").document["result"]["would"] == "train"


class _Heard(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.heard.append((self.headers["Authorization"], json.loads(body)))
        self.send_response(server.answers.pop(0) if server.answers else 200)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(notify, "_PAUSE_S", 0.0)
    with HTTPServer(("127.0.0.1", 0), _Heard) as server:
        server.heard, server.answers = [], []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("answers", "attempts", "said"),
    [([], 1, ""), ([500, 503], 3, ""), ([500] * 9, 3, "the answer was 500 (attempt 3 of 3)"),
     ([403], 1, "the answer was 403 (attempt 1 of 3)"), ([302], 1, "the answer was 302")],
)  # fmt: skip
def test_a_webhook_is_tried_again_where_that_may_help(
    server: Any, monkeypatch: pytest.MonkeyPatch, answers: list[int], attempts: int, said: str
) -> None:
    server.answers = answers
    monkeypatch.setenv("HOOK", f"http://127.0.0.1:{server.server_port}/s3cret")
    monkeypatch.setenv("TOKEN", "t0ken")
    failed = notify.tell(Notify(url_env="HOOK", token_env="TOKEN", timeout=600), {"status": "promoted", "version": 3})
    assert len(server.heard) == attempts
    assert server.heard[0] == ("Bearer t0ken", {"status": "promoted", "version": 3})
    assert bool(failed) == bool(said)
    assert said in "".join(failed)
    assert "s3cret" not in str(failed)
    assert "t0ken" not in str(failed)


def test_no_secret_is_repeated(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "t0ken\n")
    for url in ("http://127.0.0.1:1/s3cret", "http://127.0.0.1:x/s3cret", "http://a b/s3cret", "ftp://s3cret", ""):
        monkeypatch.setenv("HOOK", url)
        (failed,) = notify.tell(Notify(url_env="HOOK", token_env="TOKEN", timeout=1), {"status": "refused"})
        assert "s3cret" not in failed
        assert "t0ken" not in failed
        assert "was not notified" in failed
    assert notify.tell(Notify(url_env="HOOK", on=("promoted",)), {"status": "refused"}) == []


def test_a_command_hears_each_outcome(job: Place, retrain: Retrain, tmp_path: Path) -> None:
    program = "import os, sys; open('{}', 'a').write(os.environ['BIGSVM_STATUS'] + sys.stdin.read()[:1] + ' ')"
    heard = tmp_path / "heard"
    command = json.dumps([sys.executable, "-c", program.format(heard)])
    config = job()
    config.write_text(config.read_text() + f"\n[notify]\ncommand = {command}\ntimeout = 600\n")
    assert retrain(config, "--quiet").code == 0
    assert retrain(config, "--quiet").code == 0
    write_store(tmp_path / "train.zarr", 3, one_class=True)
    assert retrain(config, "--quiet").code == 65
    assert heard.read_text() == "promoted{ unchanged{ error{ "


def test_a_folder_that_is_not_utf8(job: Place, retrain: Retrain, tmp_path: Path) -> None:
    """What a command hears, and the record of the nights, have the bytes of the path as escapes of JSON."""
    heard = tmp_path / "heard"
    command = json.dumps([sys.executable, "-c", f"import sys; open('{heard}', 'a').write(sys.stdin.read())"])
    text = job().read_text()
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    for path in tmp_path.iterdir():
        if path != folder:
            path.rename(folder / path.name)
    config = folder / "retrain.toml"
    config.write_text(f"{text}\n[notify]\ncommand = {command}\ntimeout = 600\n")
    said = retrain(config, "--quiet")
    assert (said.code, said.err) == (0, "")
    assert json.loads(heard.read_text())["status"] == "promoted"
    (line,) = (folder / "reg" / "work" / "retrain.jsonl").read_text().splitlines()
    assert json.loads(line)["status"] == "promoted"


def test_a_command_that_fails_or_hangs_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "_PAUSE_S", 0.0)
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def noted(*given: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*given, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    document = {"status": "promoted"}
    (failed,) = notify.tell(Notify(command=("false",), attempts=2, timeout=600), document)
    assert failed == "notify.command was not notified: it ended with 1 (attempt 2 of 2)"
    (failed,) = notify.tell(Notify(command=("no-such-program",)), document)
    assert "it cannot be started: No such file" in failed
    (failed,) = notify.tell(Notify(command=("sleep", "1000"), timeout=0.05, attempts=1), document)
    assert "it took more than 0.05 s" in failed
    assert len(started) == 3
    assert all(process.returncode is not None for process in started)  # somebody waited for each


@pytest.mark.parametrize(
    ("text", "named"),
    [('[notify]\nurl = "ftp://a"', "http"), ('[notify]\nurl = "https://me:pw@a"', "url_env"),
     ('[notify]\nurl = "https://a"\nurl_env = "A"', "exclude"), ('[notify]\ntoken_env = "A"', "webhook"),
     ('[notify]\non = ["sometimes"]', "on"), ("[drift]\nmax_mean = 1", "max_mean"),
     ("[drift]\nmax_label_psi = 0", "psi")],
)  # fmt: skip
def test_mistakes_in_the_tables_are_named(job: Place, text: str, named: str) -> None:
    config = job()
    config.write_text(config.read_text() + text + "\n")
    with pytest.raises(UsageError, match=named) as caught:
        read_job(config)
    assert "pw" not in str(caught.value)
