"""A fit that starts from an earlier model: the same proof sooner, and never from rows that are not the same."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import bigsvm
from bigsvm.cli.main import run
from bigsvm.errors import BigSVMError, Interrupted
from bigsvm.events import CheckpointSaved
from bigsvm.run.api import fit
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest
from tests.proofs import same_optimum

Rows = tuple[Any, np.ndarray]
N, OLD = 2200, 2000


def problem(n: int = N, d: int = 30, classes: int = 2, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)).astype(np.float32)
    score = X @ rng.standard_normal((d, classes)) / np.sqrt(d) + 0.5 * rng.standard_normal((n, classes))
    return X, score.argmax(axis=1)


def first(rows: Rows, n: int) -> Rows:
    return rows[0][:n], rows[1][:n]


def saved(rows: Any, path: Path, **options: Any) -> Path:
    result = fit(rows, **options)
    result.save_model(path)
    result.close()
    return path


STREAMED: dict[str, Any] = {"solver": "dcd", "loss": "hinge", "memory": "10MiB", "tol": 1e-3}


@pytest.fixture(scope="module")
def large() -> Rows:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((44_000, 40)).astype(np.float32)
    return X, np.where(X @ rng.standard_normal(40) / 6 + 0.5 * rng.standard_normal(len(X)) > 0, 1, -1)


def test_a_tenth_more_rows_that_stream_take_half_the_passes(large: Rows, tmp_path: Path) -> None:
    options = {**STREAMED, "scratch": str(tmp_path)}
    old = saved(first(large, 40_000), tmp_path / "old", **options)
    fresh, warm = fit(large, **options), fit(large, warm_start=old, **options)
    assert (fresh.status, warm.status) == ("converged", "converged")
    assert fresh.figures["passes"] > 1.5  # they do stream
    assert warm.figures["passes"] <= 0.5 * fresh.figures["passes"]
    assert warm.figures["warm_start"]["n_samples"] == 40_000
    same_optimum(warm, fresh)


def test_a_tenth_more_rows_of_a_kernel_take_half_the_steps(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5500, 10)).astype(np.float32)
    y = np.where(X[:, 0] * X[:, 1] + X[:, 2] + 0.3 * rng.standard_normal(len(X)) > 0, 1, -1)
    old = saved((X[:5000], y[:5000]), tmp_path / "old", kernel="rbf")
    fresh, warm = fit((X, y), kernel="rbf"), fit((X, y), warm_start=old, kernel="rbf")
    assert (fresh.status, warm.status) == ("converged", "converged")
    assert warm.figures["iterations"] <= 0.5 * fresh.figures["iterations"]
    assert warm.figures["kernel_values"] <= 0.9 * fresh.figures["kernel_values"]
    same_optimum(warm, fresh)


EVERY: dict[str, dict[str, Any]] = {
    "dcd": {"solver": "dcd", "loss": "hinge"},
    "newton-ws": {"solver": "newton-ws", "loss": "hinge"},
    "newton-cg": {"solver": "newton-cg"},
    "pcd": {"solver": "pcd"},
    "smo": {"kernel": "rbf"},
    "simplified-smo": {"kernel": "rbf", "solver": "simplified-smo", "tol": 1e-2},
    "rosen-block": {"kernel": "rbf", "solver": "rosen-block", "tol": 1e-2},
    "regression": {"solver": "dcd", "loss": "epsilon_insensitive"},
    "svr": {"kernel": "rbf", "loss": "epsilon_insensitive"},
}


@pytest.mark.parametrize("case", EVERY)
def test_every_start_ends_in_a_proof_that_certify_repeats(case: str, tmp_path: Path) -> None:
    options, (X, y) = EVERY[case], problem(330, 8, 3)
    if "epsilon" in options.get("loss", ""):
        y = X[:, 0] + 0.3 * y + 0.25
    old = saved((X[:300], y[:300]), tmp_path / "old", **options)
    # Another C: what was inside the old box need not be inside the new one.
    for C in (1.0, 0.2):
        new = fit((X, y), warm_start=old, C=C, **options)
        assert new.status == "converged"
        new.save_model(tmp_path / f"new{C}")
        again = bigsvm.certify(tmp_path / f"new{C}", (X, y))
        assert again["relative_gap"] == pytest.approx(new.certificate.relative_gap, rel=1e-3, abs=1e-9)
        assert again["certificate"] == "proved"


def test_a_third_class_comes_later(tmp_path: Path) -> None:
    X, y = problem(400, 8, 3)
    order = np.argsort(y == 2, kind="stable")  # the third class last
    X, y, known = X[order], y[order], int(np.count_nonzero(y != 2))
    for options in ({"solver": "dcd"}, {"kernel": "rbf"}):
        old = saved((X[:known], y[:known]), tmp_path / f"old{len(options)}{options.get('kernel')}", **options)
        new = fit((X, y), warm_start=old, **options)
        assert (new.status, len(new.model.classes)) == ("converged", 3)


def _changed(rows: Rows, what: str) -> Rows:
    X, y = rows[0].copy(), rows[1].copy()
    if what == "a value":
        X[7, 3] += 1.0
    elif what == "a label":
        y[7] = 1 - y[7]
    elif what == "the order":
        X[[3, 4]], y[[3, 4]] = X[[4, 3]], y[[4, 3]]
    return (X[:-1], y[:-1]) if what == "fewer rows" else (X, y)


@pytest.mark.parametrize("what", ["a value", "a label", "the order", "fewer rows"])
def test_other_rows_are_refused_by_name(what: str, tmp_path: Path) -> None:
    rows = problem(200, 5)
    old = saved(rows, tmp_path / "old", solver="dcd")
    more = (np.vstack([rows[0], rows[0]]), np.concatenate([rows[1], rows[1]]))
    with pytest.raises(BigSVMError, match=r"model to start from was trained on|first 200 rows are not those"):
        fit(_changed(rows if what == "fewer rows" else more, what), warm_start=old, solver="dcd")
    # Weights belong to no rows: any primal point bounds the optimum.
    assert fit(_changed(rows, what), warm_start=old, solver="newton-cg").status == "converged"


def test_what_cannot_start_is_refused_by_name(tmp_path: Path) -> None:
    rows = problem(120, 5)
    no_dual = saved(rows, tmp_path / "no_dual", solver="dcd", no_dual=True)
    kernel = saved(rows, tmp_path / "kernel", kernel="rbf")
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (tmp_path / "nowhere", {}, "no model"),
        (no_dual, {"solver": "dcd"}, "saved without them"),
        (no_dual, {"solver": "pegasos", "loss": "hinge"}, "starts from 0"),
        (kernel, {"solver": "newton-cg"}, "starts from weights, but the model has a kernel"),
        (no_dual, {"loss": "epsilon_insensitive"}, "for classes, but these rows have targets"),
    ]
    for path, options, says in cases:
        given = (rows[0], rows[0][:, 0] + 0.1) if "epsilon" in options.get("loss", "") else rows
        with pytest.raises(BigSVMError) as caught:
            fit(given, warm_start=path, **options)
        assert says in str(caught.value)
    assert fit(rows, warm_start=no_dual, solver="newton-cg").status == "converged"


def test_appended_rows_are_known_by_the_manifest_and_the_model_says_whence(tmp_path: Path) -> None:
    rows, path = problem(300, 6), tmp_path / "s.zarr"
    X = sp.csr_matrix(rows[0])
    ingest((X[:270], rows[1][:270]), path)
    old = saved(path, tmp_path / "old", solver="dcd")
    before = open_store(path)
    ingest((X[270:], rows[1][270:]), path, append=True)
    new = fit(path, warm_start=old, solver="dcd")
    new.save_model(tmp_path / "new")
    said = json.loads((tmp_path / "new" / "model.json").read_text())["warm_start"]
    assert (said["n_samples"], said["taken"]) == (270, "duals")
    assert said["content_fingerprint"] == json.loads((old / "model.json").read_text())["content_fingerprint"]
    assert fit(before, solver="dcd").figures["n_samples"] == 270  # who opened it before fits what was there
    # The identity has the model, not where it lies.
    (tmp_path / "elsewhere").mkdir()
    moved = old.rename(tmp_path / "elsewhere" / "moved")
    fit(path, warm_start=moved, solver="dcd").save_model(tmp_path / "again")
    assert (tmp_path / "again" / "model.json").read_bytes() == (tmp_path / "new" / "model.json").read_bytes()


def test_stopped_and_resumed_it_is_the_same_model(large: Rows, tmp_path: Path) -> None:
    options = {**STREAMED, "tol": 3e-4, "scratch": str(tmp_path)}
    old = saved(first(large, 40_000), tmp_path / "old", **options)
    config = bigsvm.config.FitConfig.of(warm_start=old, **options)
    whole = fit_store(open_store(large), config)
    whole.save_model(tmp_path / "whole")

    class Stopped(Exception):
        """In the place of a signal, at a checkpoint."""

    for number in (1, 4):
        count = 0

        def stop(event: Any, number: int = number) -> None:
            nonlocal count
            count += isinstance(event, CheckpointSaved)
            if count == number:
                raise Stopped

        places = Checkpoints(tmp_path / f"run{number}", {}, 0.0)
        places.due = lambda: True  # type: ignore[method-assign]
        with pytest.raises((Stopped, Interrupted)):
            fit_store(open_store(large), config, stop, places)
        result = fit_store(open_store(large), config, checkpoints=Checkpoints(places.folder, {}, 1e9), resume=True)
        result.save_model(tmp_path / f"resumed{number}")
        assert (tmp_path / f"resumed{number}" / "model.json").read_bytes() == (
            tmp_path / "whole" / "model.json"
        ).read_bytes()
        assert result.figures["passes"] == whole.figures["passes"]
    other = saved(first(large, 40_000), tmp_path / "other", **{**options, "tol": 1e-2})
    again = bigsvm.config.FitConfig.of(warm_start=other, **options)
    with pytest.raises(BigSVMError, match="warm_start was"):
        fit_store(open_store(large), again, checkpoints=Checkpoints(tmp_path / "run1", {}, 1e9), resume=True)


def test_the_page_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "append.md").read_text()
    (example,) = re.findall(r"```bash\n(.+?)\n```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for day, n in (("monday", 300), ("tuesday", 30)):
        X = rng.standard_normal((n, 5))
        label = np.where(X[:, 0] + 0.3 * rng.standard_normal(n) > 0, 1, -1)
        lines = (" ".join(f"{j + 1}:{v:.3f}" for j, v in enumerate(x)) for x in X)
        (tmp_path / f"{day}.svm").write_text("".join(f"{y} {x}\n" for y, x in zip(label, lines, strict=True)))
    for line in example.splitlines():
        assert run(shlex.split(line)[1:]) == 0, (line, capsys.readouterr().err)
    assert json.loads((tmp_path / "tuesday.model" / "model.json").read_text())["warm_start"]["n_samples"] == 300
    again = ["fit", "rows.zarr", "--warm-start", "tuesday.model", "-o", "tuesday.model", "--overwrite"]
    assert run(again) == 2
    assert "would replace the one that it starts from" in capsys.readouterr().err
