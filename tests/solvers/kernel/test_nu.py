"""nu-SVC, nu-SVR and one-class SVMs: LIBSVM's optimum, a proof of it, and what nu cannot be."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.svm import NuSVC, NuSVR, OneClassSVM

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import DataError, UsageError
from bigsvm.model.exchange.exchange import export_model, import_model
from bigsvm.model.linear_model import load_model
from bigsvm.problem.nu import NuSums, NuTotals, imbalance_of_tube, priced
from bigsvm.run.proof.certify import certify_model
from bigsvm.solvers.kernel.smo import active_set
from bigsvm.store.formats.opener import open_store
from tests.run.test_checkpoint import comes_to_the_same

GAMMA = 0.2
RNG = np.random.default_rng(3)
X = RNG.normal(size=(150, 4))
NOISY = X[:, 0] + 0.5 * RNG.normal(size=150)
TWO, THREE = np.where(NOISY > 0.1, 7, 3), np.digitize(NOISY, [-0.5, 0.5])
TARGETS = 2.0 * X[:, 0] + np.sin(X[:, 1])
WEIGHTS = np.where(np.arange(150) % 9 == 0, 0.0, RNG.uniform(0.2, 2.0, 150))
CASES = {
    "two classes": ("nu_svc", TWO, NuSVC, {"nu": 0.4}),
    "pairs": ("nu_svc", THREE, NuSVC, {"nu": 0.4}),
    "targets": ("nu_svr", TARGETS, NuSVR, {"nu": 0.3, "C": 1.5}),
    "targets, no tube": ("nu_svr", TARGETS, NuSVR, {"nu": 1.0, "C": 1.5}),
    "one class": ("one_class", THREE, OneClassSVM, {"nu": 0.3}),
}


def rows(loss: str, y: np.ndarray, weights: np.ndarray | None = None) -> Any:
    return open_store((X, y) if weights is None else (X, y, weights), task="regression" if loss == "nu_svr" else "auto")


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
@pytest.mark.parametrize("case", CASES)
def test_libsvm_has_the_same_scores(case: str, weights: np.ndarray | None, tmp_path: Path) -> None:
    loss, y, theirs, options = CASES[case]
    store = rows(loss, y, weights)
    found = bigsvm.fit(store, loss=loss, kernel="rbf", gamma=GAMMA, tol=1e-8, **options)
    assert (found.status, found.certificate.kind) == ("converged", "proved")
    shape = {"decision_function_shape": "ovo"} if theirs is NuSVC else {}
    reference = theirs(gamma=GAMMA, tol=1e-7, **shape, **options).fit(X, y, sample_weight=weights)
    scores = reference.predict(X) if loss == "nu_svr" else reference.decision_function(X)
    np.testing.assert_allclose(found.model.decision_function(X), scores, atol=1e-5 * max(np.abs(scores).max(), 1.0))
    # A proof of the written model, apart from the solver and from the run.
    found.save_model(tmp_path / "m")
    again = certify_model(tmp_path / "m", store, FitConfig())
    assert again["objective"] == pytest.approx(found.figures["objective"], rel=1e-12)
    assert 0 <= again["relative_gap"] < 1e-8


@pytest.mark.parametrize("loss", ["nu_svc", "nu_svr", "one_class"])
@pytest.mark.usefixtures("streaming")
def test_rows_that_stream_have_the_same_optimum(loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Active sets of some rows, and passes over the others."""
    monkeypatch.setattr(active_set, "_SMALL", 16)
    y = TARGETS if loss == "nu_svr" else TWO
    ours = {"loss": loss, "kernel": "rbf", "gamma": GAMMA, "nu": 0.3, "tol": 1e-6}
    in_memory = bigsvm.fit(rows(loss, y), memory="1GiB", **ours)
    bigsvm.ingest((X, y), tmp_path / "s.zarr", task="regression" if loss == "nu_svr" else "classification")
    streamed = bigsvm.fit(tmp_path / "s.zarr", memory="64MiB", scratch=str(tmp_path), **ours)
    assert streamed.figures["objective"] == pytest.approx(in_memory.figures["objective"], rel=1e-6)


@pytest.mark.parametrize("loss", ["nu_svc", "nu_svr"])
@pytest.mark.usefixtures("streaming")
def test_stopped_anywhere_it_comes_to_the_same_bytes(
    loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_set, "_SMALL", 16)
    y = TARGETS if loss == "nu_svr" else TWO
    asked = {"loss": loss, "kernel": "rbf", "gamma": GAMMA, "nu": 0.3, "tol": 1e-6, "memory": "64MiB"}
    comes_to_the_same(rows(loss, y), FitConfig.of(**asked), tmp_path, 6)


def test_what_nu_cannot_be_is_one_line() -> None:
    fit = {"loss": "nu_svc", "kernel": "rbf"}
    few = np.where(np.arange(150) < 15, 1, 0)
    with pytest.raises(DataError, match=r"nu = 0\.5 is infeasible: of the classes 1 and 0 .*at most nu=0\.2"):
        bigsvm.fit((X, few), nu=0.5, **fit)
    with pytest.raises(UsageError, match="nu must be at most 1"):
        bigsvm.fit((X, TWO), nu=1.5, **fit)
    with pytest.raises(UsageError, match="nu must be a positive number"):
        bigsvm.fit((X, TWO), nu=0.0, **fit)
    with pytest.raises(UsageError, match="has no cost C"):
        bigsvm.fit((X, TWO), C=2.0, **fit)
    with pytest.raises(UsageError, match="positive semidefinite"):
        bigsvm.fit((X, TWO), loss="nu_svc", kernel="sigmoid")
    with pytest.raises(UsageError, match=r"does not support wss=wr \("):
        bigsvm.fit((X, TWO), wss="wr", **fit)
    with pytest.raises(UsageError, match=r"does not support working_set=2 \("):
        bigsvm.fit((X, TWO), working_set=2, **fit)
    with pytest.raises(DataError, match=r"leaves no margin.*choose a larger nu, or a larger gamma"):
        bigsvm.fit((np.repeat(X[:20], 2, axis=0), np.tile([0, 1], 20)), nu=0.5, **fit)


def test_one_class_of_targets_is_judged_by_no_labels() -> None:
    options: dict[str, Any] = {"loss": "one_class", "kernel": "rbf", "nu": 0.3}
    said: list[Any] = []
    found = bigsvm.fit(X, TARGETS, split=0.7, emit=said.append, **options)
    assert "held_out" not in found.figures
    assert any("a one_class model cannot be evaluated" in str(event) for event in said)
    with pytest.raises(DataError, match="compared by labels"):
        bigsvm.tune((X, TARGETS), Cs=[1.0], folds=2, **options)


def test_a_dual_point_that_nu_does_not_allow_proves_nothing() -> None:
    one = [np.array([value]) for value in (0.1, 0.2, 1.0, 0.0)]
    for totals, size in ((NuTotals(2.0, False, True), 1.0), (NuTotals(2.0, True, False), 3.0)):
        at = [np.array([value]) for value in (size if totals.one_sided else 0.0, size, 0.0, 0.5)]
        gap, primal, _ = priced(totals, *one, *at)
        assert np.isinf(gap)
        assert totals.at_most or np.isinf(primal)


def test_what_a_bound_leaves_is_in_the_gap() -> None:
    """At b = 0: brackets are loss + epsilon |beta| + beta'K beta - t'beta."""
    brackets, loss, quadratic, beta_t, size, epsilon, total = 1.7, 0.2, 1.0, 0.0, 1.0, 0.5, 3.0
    at = [np.array([value]) for value in (brackets, loss, quadratic, beta_t, 0.0, size, 0.0, epsilon)]
    gap, primal, dual = priced(NuTotals(total, True, False), *at)
    assert primal == pytest.approx(0.5 * quadratic + loss + epsilon * total)
    assert gap == pytest.approx(primal - dual)


@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e12])
def test_sides_that_miss_their_sums_pay_for_their_parts_of_w(unit: float) -> None:
    """Two rows whose parts cancel in w: with the sums that nu asks for, in exact numbers, the objective is no less."""
    off, total = Fraction(1, 2**42), Fraction(2)
    rows = [Fraction(unit), Fraction(unit) + 1]
    beta = [total / 2 + off, -total / 2]
    w = sum(b * x for b, x in zip(beta, rows, strict=True))
    feasible = sum(b * x for b, x in zip([total / 2, -total / 2], rows, strict=True))
    spread = sum(abs(b) * x for b, x in zip(beta, rows, strict=True))
    at = [0.0, 0.0, w * w, 0, beta[0] + beta[1], beta[0] - beta[1], 0.0, 0.0, spread]
    gap, primal, _ = priced(NuTotals(float(total), False, False), *[np.array([float(value)]) for value in at])
    assert abs(feasible * feasible - w * w) / 2 <= Fraction(float(gap[0])) * (1 + Fraction(1, 2**40))
    assert primal == pytest.approx(float(w * w) / 2)


@pytest.mark.parametrize("unit", [1.0, 1e-12, 1e9])
def test_a_tube_pays_for_what_makes_its_sum_0(unit: float) -> None:
    """In whatever unit targets and weights are: that of scores is `unit`, and P has its square."""
    off, size, P, spread, epsilon = (
        np.array([value]) for value in (unit * 2.0**-45, 2.0 * unit, 3.0 * unit**2, 5.0 * unit, 0.5 * unit)
    )
    share = 2.0**-45 + 2.0**-49
    expected = 3.0 * share + 0.5 * (5.0 * share) ** 2 + 0.5 * 2.0**-45
    assert imbalance_of_tube(off, size, P, spread, epsilon) == pytest.approx(expected * unit**2, rel=1e-9, abs=0.0)
    assert imbalance_of_tube(1e-6 * size, size, P, spread, epsilon) == np.inf


def test_where_the_sides_meet() -> None:
    assert NuSums(False, False).multiplier((-3.0, -1.0, 1.0, 5.0)) == pytest.approx(2.5)
    assert NuSums(False, True).multiplier((2.0, 4.0, np.inf, -np.inf)) == -3.0
    assert NuSums(True, False).multiplier((1.0, 1.0, -1.0, -1.0)) == 0.0  # a tube has no negative width
    assert NuSums(True, False, slack=0.1).multiplier((-3.0, -1.0, 1.0, 5.0)) == 0.0


@pytest.mark.parametrize("case", ["two classes", "targets", "one class"])
def test_as_libsvm_text_and_back(case: str, tmp_path: Path) -> None:
    loss, y, _, options = CASES[case]
    found = bigsvm.fit(rows(loss, y), loss=loss, kernel="rbf", gamma=GAMMA, **options)
    found.save_model(tmp_path / "m")
    export_model(load_model(tmp_path / "m"), tmp_path / "m.txt", "libsvm")
    assert (tmp_path / "m.txt").read_text().startswith(f"svm_type {loss}\n")
    back = import_model(tmp_path / "m.txt", "libsvm")
    np.testing.assert_allclose(back.decision_function(X), found.model.decision_function(X), rtol=1e-9, atol=1e-9)
    if loss != "nu_svr":
        np.testing.assert_array_equal(back.predict(X), found.model.predict(X))


@pytest.mark.parametrize("kernel", ["linear", "poly"])
@pytest.mark.parametrize("loss", ["nu_svc", "one_class"])
def test_rows_far_from_the_origin_have_a_margin(loss: str, kernel: str) -> None:
    """Of kernel values of 1e8 float32 knows ||w||^2 no better than to 10, and it is 0.1: float64 values decide."""
    rng = np.random.default_rng(5)
    near = rng.normal(size=(40, 6))
    far = np.hstack([near, np.full((40, 2), 1e4)])
    options: dict[str, Any] = {"loss": loss, "kernel": kernel, "degree": 1, "gamma": 1.0, "nu": 0.1, "tol": 1e-5}
    found = bigsvm.fit((far, np.where(near[:, 0] > 0, 1, -1)), **options)
    assert (found.status, found.certificate.kind) == ("converged", "proved")
    if loss == "nu_svc":  # where a bias takes up what all rows share
        there = bigsvm.fit((near, np.where(near[:, 0] > 0, 1, -1)), **options)
        assert found.figures["objective"] == pytest.approx(there.figures["objective"], rel=1e-4)


@pytest.mark.parametrize("weightless", [(0,), (3,), (0, 1), (1, 3)])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_classes_without_weight_are_refused_by_name(weightless: tuple[int, ...], kernel: str) -> None:
    """A pair of two such classes wants a sum of 0 over rows that weigh 0, which is no division."""
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(80, 3)), np.repeat(np.arange(4), 20)
    weight = np.where(np.isin(y, weightless), 0.0, 1.0)
    options: dict[str, Any] = {"solver": "smo", "loss": "nu_svc", "bias": "free", "kernel": kernel, "nu": 0.3}
    with pytest.raises(
        DataError, match=f"no nu is feasible: no row of the class [{''.join(map(str, weightless))}] has"
    ):
        bigsvm.fit((X, y, weight), **options)
