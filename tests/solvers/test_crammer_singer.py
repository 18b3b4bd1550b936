"""One loss of all classes together: its objective, gap and feasible duals by definition, however it is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.compiled.linear.gap_terms import N_SUMS
from bigsvm.compiled.linear.joint import certify_joint_rows
from bigsvm.compiled.shared.losses import JointModels
from bigsvm.config import FitConfig
from bigsvm.errors import BigSVMError
from bigsvm.problem.joint import clip_joint, joint_alpha, joint_slacks
from bigsvm.run.fit.fit import fit_store
from bigsvm.store.formats.array_rows import ArrayRows
from tests.run.test_checkpoint import classes, comes_to_the_same, same_folder

Real = np.longdouble
CS: dict[str, Any] = {"multi_class": "crammer-singer"}


def primal(W: np.ndarray, X: np.ndarray, y: np.ndarray, C: np.ndarray) -> Real:
    """P by definition; X with its constant feature, W (n_classes, n_features + 1), C of each row."""
    z = X.astype(Real) @ W.T.astype(Real)
    s = 1 + z - z[np.arange(len(y)), y][:, None]
    s[np.arange(len(y)), y] = 0
    return (W.astype(Real) ** 2).sum() / 2 + (C * s.max(axis=1)).sum()


def dual(alpha: np.ndarray, X: np.ndarray, y: np.ndarray, C: np.ndarray) -> Real:
    """D of alpha (n_rows, n_classes) by definition, which must be feasible but for rounding."""
    own = alpha[np.arange(len(y)), y]
    others = alpha - own[:, None] * (np.arange(alpha.shape[1]) == y[:, None])
    assert np.all(others <= 0)
    assert np.all(own <= C * (1 + 1e-14))
    assert np.all(np.abs(alpha.sum(axis=1)) <= 1e-14 * np.maximum(C, 1))
    return own.astype(Real).sum() - ((alpha.T.astype(Real) @ X.astype(Real)) ** 2).sum() / 2


@pytest.mark.parametrize(
    ("bias", "layout", "stream"),
    [("augmented", "dense", False), ("none", "csr", False), ("none", "dense", True), ("augmented", "csr", True)],
)
def test_the_gap_is_that_of_the_definition(
    tmp_path: Path, bias: str, layout: str, stream: bool, request: pytest.FixtureRequest
) -> None:
    if stream:
        request.getfixturevalue("streaming")
    X, y = classes(4, 300)
    X *= np.random.default_rng(1).random(X.shape) < 0.7
    weight = np.random.default_rng(2).random(300) * 2
    weight[:20] = 0.0
    rows = sparse.csr_array(X) if layout == "csr" else X
    result = bigsvm.fit((rows, y, weight), **CS, bias=bias, C=0.7, bias_scale=2.0, class_weight={"1": 3.0}, tol=1e-6)
    result.save_model(tmp_path / "m")
    assert (result.status, result.figures["solver"], result.figures["loss"]) == ("converged", "dcd", "crammer_singer")
    C, B = 0.7 * weight * np.where(y == 1, 3.0, 1.0), 2.0 if bias == "augmented" else 0.0
    X = np.hstack([X, np.full((300, 1), B)])
    model: Any = result.model
    W = np.hstack([model.coef, model.intercept[:, None] / (B or 1.0)])
    P, D = primal(W, X, y, C), dual(np.load(tmp_path / "m" / "alpha.npy").T, X, y, C)
    assert result.figures["objective"] == pytest.approx(float(P), rel=1e-12)
    assert float(P - D) <= result.figures["duality_gap"] * (1 + 1e-6) <= 1e-6 * float(P) * (1 + 1e-6)
    assert [found["class"] for found in result.figures["models"]] == [None]
    again = bigsvm.certify(tmp_path / "m", (rows, y, weight))
    assert again["relative_gap"] == pytest.approx(result.figures["relative_gap"], rel=1e-3)
    assert again["bound"] == "alpha"


def test_a_step_solves_its_row_exactly() -> None:
    X = np.eye(30) * np.arange(1, 31)[:, None]  # no row touches another one's weights
    y = np.arange(30) % 5
    result = bigsvm.fit((X, y), **CS, bias="none", C=0.3, tol=1e-12)
    assert result.status == "converged"
    again = bigsvm.fit((X, y), **CS, bias="none", C=0.3, tol=1e-5, solver_options={"max_sweeps_per_step": 1})
    assert again.figures["epochs"] <= 2
    assert again.figures["objective"] == pytest.approx(result.figures["objective"], rel=1e-12)


def test_no_term_is_negative_and_any_alpha_is_made_feasible() -> None:
    rng = np.random.default_rng(0)
    X, y, C = rng.standard_normal((50, 4)), rng.integers(0, 3, 50).astype(np.int32), rng.random(50) * 2
    for _ in range(20):
        W, alpha = rng.standard_normal((5, 3)) * rng.choice([0.01, 1, 100]), rng.standard_normal((50, 3))
        feasible = alpha.copy()
        clip_joint(feasible, y, C)
        Xb = np.hstack([X, np.full((50, 1), 0.5)])
        found = []
        for a in (alpha, feasible):
            V, sums = np.zeros((5, 3)), np.zeros((1, N_SUMS + 4))
            certify_joint_rows(X, y, C, JointModels(np.ones(3), 1.0, 0.5), a, W, V, np.array([0.3, 2.0]), sums)
            for k, t in enumerate((0.3, 2.0)):  # multiples of W
                gap, loss = sums[0, N_SUMS + 2 * k : N_SUMS + 2 * k + 2]
                assert loss + 0.5 * t * t * (W**2).sum() == pytest.approx(float(primal(t * W.T, Xb, y, C)))
                whole = float(primal(t * W.T, Xb, y, C) - dual(feasible, Xb, y, C))
                assert gap + 0.5 * ((t * W - V) ** 2).sum() == pytest.approx(whole)
            found.append(sums[0, 0] + 0.5 * ((W - V) ** 2).sum())
            assert sums[0, 0] >= 0
        expected = float(primal(W.T, Xb, y, C) - dual(feasible, Xb, y, C))
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_duals_of_slacks_are_a_subgradient() -> None:
    rng = np.random.default_rng(0)
    z, y, C = rng.standard_normal((40, 4)), rng.integers(0, 4, 40), rng.random(40)
    s = joint_slacks(z, y)
    alpha = joint_alpha(s, y, C)
    own = alpha[np.arange(40), y]
    # Fenchel-Young with equality: C max s - alpha_y + sum alpha z = 0
    np.testing.assert_allclose(C * s.max(axis=1) - own + (alpha * z).sum(axis=1), 0.0, atol=1e-14)


@pytest.mark.parametrize("stream", [False, True])
def test_same_bytes_after_stops_and_with_any_number_of_threads(
    tmp_path: Path, stream: bool, request: pytest.FixtureRequest
) -> None:
    if stream:
        request.getfixturevalue("streaming")
    X, y = classes(9, 200)  # of so many classes other losses would make two groups
    store = ArrayRows(X, y)
    options: dict[str, Any] = {
        **CS,
        "tol": 1e-2 if stream else 1e-3,
        "C": 0.1,
        "solver_options": {"max_sweeps_per_step": 3},
    }
    comes_to_the_same(store, FitConfig.of(**options), tmp_path, 7)
    for threads in (1, 3):
        fit_store(store, FitConfig.of(**options, threads=threads)).save_model(tmp_path / str(threads))
    assert same_folder(tmp_path / "1", tmp_path / "3")


def test_two_classes_are_the_hinge_with_twice_the_cost() -> None:
    X, y = classes(2, 200)
    one = bigsvm.fit((X, y), **CS, tol=1e-9)
    two = bigsvm.fit((X, y), loss="hinge", solver="dcd", C=2.0, tol=1e-9)
    assert (one.figures["loss"], one.figures["C"]) == ("hinge", 2.0)
    assert one.figures["objective"] == pytest.approx(two.figures["objective"], rel=1e-8)
    d = np.append(one.model.coef[0], one.model.intercept)  # type: ignore[union-attr]
    half = primal(np.array([-d / 2, d / 2]), np.hstack([X, np.ones((200, 1))]), y, np.ones(200))
    assert one.figures["objective"] == pytest.approx(2.0 * float(half), rel=1e-12)


def test_more_rows_go_on_from_the_duals_and_other_rules_do_not(tmp_path: Path) -> None:
    X, y = classes(4, 600)
    old = tmp_path / "old"
    options: dict[str, Any] = {**CS, "C": 0.1, "tol": 9e-5}
    bigsvm.fit((X[:540], y[:540]), **options).save_model(old)
    fresh, ours = bigsvm.fit((X, y), **options), bigsvm.fit((X, y), **options, warm_start=str(old))
    assert ours.figures["epochs"] < fresh.figures["epochs"]
    assert ours.figures["objective"] == pytest.approx(fresh.figures["objective"], rel=2e-4)
    with pytest.raises(BigSVMError, match=r"multi_class 'crammer-singer', but this fit uses 'ovr'"):
        bigsvm.fit((X, y), loss="hinge", warm_start=str(old))


def test_without_alpha_a_weaker_bound_is_proved_and_damage_is_seen(tmp_path: Path) -> None:
    X, y = classes(4, 300)
    result = bigsvm.fit((X, y), **CS, tol=1e-6, no_dual=True)
    result.save_model(tmp_path / "m")
    found = bigsvm.certify(tmp_path / "m", (X, y))
    assert found["bound"].startswith("weaker")
    assert result.figures["relative_gap"] <= found["relative_gap"] <= 1.0
    assert found["objective"] == pytest.approx(result.figures["objective"], rel=1e-12)
    document = json.loads((tmp_path / "m" / "model.json").read_text())
    assert document["problem"]["multi_class"] == "crammer-singer"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"loss": "squared_hinge"}, "and loss 'squared_hinge' exclude each other"),
        ({"kernel": "rbf"}, "without a kernel"),
        ({"bias": "free"}, "no free bias"),
        ({"shards": 2}, "is not trained on several shards"),
        ({"solver": "newton"}, "solvers that do: dcd"),
        ({"solver": "dcd", "solver_options": {"momentum": "on"}}, "momentum=on does not train"),
        ({"solver_options": {"momentum": "on"}}, "momentum=on does not train"),
    ],
)
def test_what_does_not_go_with_it_is_refused_by_name(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BigSVMError, match=said):
        bigsvm.fit(classes(3, 60), **CS, **options)


def test_liblinear_reads_it_and_gives_it_back(tmp_path: Path) -> None:
    X, y = classes(4, 200)
    result = bigsvm.fit((X, y), **CS, tol=1e-3)
    bigsvm.export_model(result.model, tmp_path / "m.txt", "liblinear")
    assert (tmp_path / "m.txt").read_text().startswith("solver_type MCSVM_CS\nnr_class 4\n")
    back = bigsvm.import_model(tmp_path / "m.txt", "liblinear", C=1.0)
    np.testing.assert_array_equal(back.predict(X), result.model.predict(X))
    back.save(tmp_path / "back")
    found = bigsvm.certify(tmp_path / "back", (X, y))
    assert found["objective"] == pytest.approx(result.figures["objective"], rel=1e-12)
