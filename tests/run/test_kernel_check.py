"""What a kernel must show before a gap is called proved: matrices that are none, nearly none, and those that are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.errors import DataError, PlanRefused
from bigsvm.problem.definite import ValueCheck, is_definite
from bigsvm.problem.kernel import Definite, Kernel
from bigsvm.run.fit.plan import make_plan
from bigsvm.run.proof.kernel_check import checked_kernel
from bigsvm.store.blocks import blocks_of, readonly_view
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import as_csr
from bigsvm.units import MIB

_X = np.random.default_rng(1).standard_normal((90, 3))
_Y = np.where(_X[:, 0] * _X[:, 1] > 0, 1, -1)


def wigner(n: int) -> np.ndarray:
    A = np.random.default_rng(n).standard_normal((n, n))
    return (A + A.T) / 2


def hidden(n: int) -> np.ndarray:
    """A diagonal of ones, all minors of two rows positive, and an eigenvalue of -0.4."""
    K = np.eye(n)
    K[:3, :3] = [[1.0, -0.7, -0.7], [-0.7, 1.0, -0.7], [-0.7, -0.7, 1.0]]
    return K


INDEFINITE = {
    "random, 8": wigner(8),
    "random, 90": wigner(90),
    "-I": -np.eye(40),
    "tanh": np.tanh(2 * _X @ _X.T - 1),
    "a minor": np.eye(30) + np.diag(np.full(29, 1.2), 1) + np.diag(np.full(29, 1.2), -1),
    "an eigenvalue": hidden(40),
}
DEFINITE = {
    "rbf": Kernel("rbf", 0.5).matrix(_X, _X),
    "smooth rbf": Kernel("rbf", 0.001).matrix(_X, _X),
    "of low rank": _X @ _X.T,
    "of low rank, far": (_X + 30.0) @ (_X + 30.0).T,
    "zeros": np.zeros((30, 30)),
}


def data(K: np.ndarray, layout: str = "dense", dtype: Any = np.float64) -> tuple[Any, np.ndarray]:
    K = K.astype(dtype)
    return (sparse.csr_array(K) if layout == "csr" else K), _Y[: len(K)]


def fitted(given: Any, **options: Any) -> Any:
    return bigsvm.fit(given, kernel="precomputed", solver="smo", max_passes=2000, **options)


@pytest.fixture
def too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """K in float64 fits no memory."""
    for module in ("fit.plan", "proof.beta_terms"):
        monkeypatch.setattr(f"bigsvm.run.{module}.whole_bytes", lambda n: 1 << 60)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("name", list(INDEFINITE))
def test_no_gap_is_proved_of_an_indefinite_matrix(tmp_path: Path, name: str, layout: str) -> None:
    given = data(INDEFINITE[name], layout)
    result = fitted(given)
    assert result.figures["certificate"] == "none"
    assert result.figures["positive_semidefinite"] == "refuted"
    assert result.status != "converged"
    assert any("not positive semidefinite" in warning for warning in result.warnings)
    result.save_model(tmp_path / "m")
    proof = bigsvm.certify(tmp_path / "m", given)
    assert proof["certificate"] == "none"
    assert proof["relative_gap"] is None


@pytest.mark.parametrize("name", [name for name in INDEFINITE if name != "an eigenvalue"])
def test_what_is_seen_for_nothing_is_refused_though_it_is_vouched_for(name: str) -> None:
    with pytest.raises(DataError, match="not positive semidefinite, though assume_psd=True") as refusal:
        fitted(data(INDEFINITE[name]), assume_psd=True)
    assert refusal.value.code == 65


def test_certify_factorises_what_was_vouched_for(tmp_path: Path) -> None:
    given = data(hidden(40))
    result = fitted(given, assume_psd=True)
    assert (result.figures["certificate"], result.figures["positive_semidefinite"]) == ("proved", "assumed")
    result.save_model(tmp_path / "m")
    with pytest.raises(DataError, match="an eigenvalue lies below"):
        bigsvm.certify(tmp_path / "m", given)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", list(DEFINITE))
def test_a_gap_of_a_gram_matrix_is_proved(tmp_path: Path, name: str, dtype: Any) -> None:
    given = data(DEFINITE[name], "dense", dtype)
    result = fitted(given)
    assert (result.status, result.figures["certificate"]) == ("converged", "proved")
    assert result.figures["positive_semidefinite"] == "checked"
    result.save_model(tmp_path / "m")
    proof = bigsvm.certify(tmp_path / "m", given)
    assert proof["certificate"] == "proved"
    assert proof["relative_gap"] == pytest.approx(result.figures["relative_gap"], rel=1e-6, abs=1e-11)
    known = bigsvm.load_model(tmp_path / "m").about["problem"]["positive_semidefinite"]
    eps = np.finfo(dtype).eps * max(len(given[1]), 64) * np.abs(np.diag(given[0])).max()
    assert known["how"] == "checked"
    assert known["tolerance"] == pytest.approx(eps * (8 if dtype == np.float64 else 1))


@pytest.mark.usefixtures("too_large")
def test_what_was_not_decided_is_an_estimate_unless_it_is_vouched_for(tmp_path: Path) -> None:
    given = data(DEFINITE["rbf"])
    result = fitted(given)
    assert (result.status, result.figures["certificate"]) == ("kkt", "estimate")
    assert any("assume_psd=True" in warning for warning in result.warnings)
    result.save_model(tmp_path / "m")
    proof = bigsvm.certify(tmp_path / "m", given)
    assert proof["certificate"] == "estimate"
    assert proof["relative_gap"] == pytest.approx(result.figures["relative_gap"], rel=1e-6, abs=1e-11)
    vouched = fitted(given, assume_psd=True)
    assert (vouched.status, vouched.figures["certificate"]) == ("converged", "proved")
    assert vouched.model.about["problem"]["positive_semidefinite"] == {"how": "assumed"}


@pytest.mark.usefixtures("too_large")
def test_a_dual_point_refutes_what_rows_do_not_show() -> None:
    """Two against one, so that beta lies along the negative eigenvector."""
    K, y = hidden(40), np.where(np.arange(40) == 2, -1, 1)
    K[:3, :3] = [[1.0, -0.7, 0.7], [-0.7, 1.0, 0.7], [0.7, 0.7, 1.0]]
    K[3:, 3:] = np.eye(37) * 1e-6
    result = fitted((K, y), C=10.0)
    assert result.figures["positive_semidefinite"] == "refuted"
    assert any("of the dual point is below 0" in warning for warning in result.warnings)
    with pytest.raises(DataError, match="of the dual point is below 0"):
        fitted((K, y), C=10.0, assume_psd=True)


def test_a_model_that_does_not_say_how_it_is_known_is_looked_at_anew(tmp_path: Path) -> None:
    """As models written before that was asked."""
    for name, K, kind in (("bad", hidden(40), "none"), ("good", DEFINITE["rbf"], "proved")):
        result = fitted(data(K), assume_psd=True)
        problem = dict(result.model.about["problem"])
        del problem["positive_semidefinite"]
        result.model = dataclasses.replace(result.model, about={**result.model.about, "problem": problem})
        result.save_model(tmp_path / name)
        assert bigsvm.certify(tmp_path / name, data(K))["certificate"] == kind


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("assume", [False, True])
def test_a_matrix_that_is_not_symmetric_is_refused_by_row_and_column(layout: str, assume: bool) -> None:
    K = DEFINITE["rbf"].copy()
    K[17, 53] += 1e-4
    with pytest.raises(DataError, match=r"not symmetric: K\[(17, 53|53, 17)\]") as refusal:
        fitted(data(K, layout), assume_psd=assume)
    assert refusal.value.code == 65


def seen_in_blocks(K: np.ndarray, layout: str, **known: Any) -> Kernel:
    """The kernel as rows show it that come in blocks, in an order of their own, and columns in another."""
    rng = np.random.default_rng(7)
    given, y = data(K, layout)
    store = ArrayRows(given, y, row_order=rng.permutation(len(y)), feature_order=rng.permutation(len(y)))

    def reading() -> Iterator[tuple[int, Any]]:
        for block in blocks_of(store, store.refs(16)):
            yield block.start, block.X

    return checked_kernel(Kernel("precomputed", definite=Definite(**known)), store, reading, MemoryBudget(MIB), False)


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_rows_that_stream_are_seen_the_same(layout: str) -> None:
    K = DEFINITE["rbf"].copy()
    assert seen_in_blocks(K, layout).definite.how == "undecided"
    assert seen_in_blocks(K, layout, how="checked").certificate == "proved"
    K[17, 53] += 1e-4
    with pytest.raises(DataError, match=r"not symmetric: K\[(17, 53|53, 17)\]"):
        seen_in_blocks(K, layout)
    K[53, 17] = K[17, 53] = -1.5
    assert seen_in_blocks(K, layout).certificate == "none"
    with pytest.raises(DataError, match=r"\|K\[(17, 53|53, 17)\]\| is above"):
        seen_in_blocks(K, layout, how="assumed")


def test_rounding_of_two_triangles_is_forgiven_in_the_type_that_holds_them() -> None:
    K = DEFINITE["rbf"]
    noisy = K * (1.0 + 1e-7 * np.random.default_rng(0).standard_normal(K.shape))
    assert fitted(data(noisy, dtype=np.float32)).figures["certificate"] == "proved"
    with pytest.raises(DataError, match="not symmetric"):
        fitted(data(noisy, dtype=np.float64))


@pytest.mark.parametrize("shift", [-3e-3, -1e-9, 0.0, 1e-9])
def test_the_factorisation_decides_at_its_tolerance(shift: float) -> None:
    Q = np.linalg.qr(np.random.default_rng(2).standard_normal((50, 50)))[0]
    K = Q @ np.diag(np.concatenate([[shift], np.linspace(0.1, 1.0, 49)])) @ Q.T
    assert is_definite(((K + K.T) / 2).copy(), 1e-6) == (shift > -1e-6)


def test_each_sight_of_the_rows_is_one_of_all_pairs() -> None:
    """Whatever block a pair's two rows come in."""
    K = np.eye(60)
    K[5, 50] = K[50, 5] = 1.01
    for rows in (7, 60):
        check = ValueCheck(60, np.dtype(np.float64))
        for start in range(0, 60, rows):
            check.add(K[start : start + rows], np.arange(start, min(start + rows, 60)))
        found = check.refutation()
        assert found is not None
        assert {found[1].row, found[1].column} == {5, 50}
        assert len(check.suspects()) == 0


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_a_value_below_0_on_the_diagonal_is_seen_alone(layout: str) -> None:
    K = np.eye(20)
    K[7, 7] = -1.0
    check = ValueCheck(20, np.dtype(np.float64))
    check.add(readonly_view(as_csr(K) if layout == "csr" else K), np.arange(20))
    found = check.refutation()
    assert found is not None
    assert (found[1].row, found[1].column) == (7, 7)


def test_a_sigmoid_may_be_vouched_for_and_is_looked_at(tmp_path: Path) -> None:
    options: dict[str, Any] = {"kernel": "sigmoid", "gamma": 0.05, "solver": "smo"}
    y = np.where(_X[:, 0] > 0, 1, -1)  # a dual point then lies along the large eigenvalues
    plain = bigsvm.fit((_X, y), coef0=0.0, **options)
    assert (plain.status, plain.figures["certificate"]) == ("kkt", "none")
    assert any("assume_psd=True" in warning for warning in plain.warnings)
    vouched = bigsvm.fit((_X, y), coef0=0.0, assume_psd=True, **options)
    assert (vouched.status, vouched.figures["certificate"]) == ("converged", "proved")
    vouched.save_model(tmp_path / "m")
    assert bigsvm.certify(tmp_path / "m", (_X, y))["certificate"] == "proved"
    with pytest.raises(DataError, match=r"K\(x, x\) = -[0-9.]+ of row [0-9]+ is below 0"):
        bigsvm.fit((_X, _Y), coef0=-0.5, assume_psd=True, **options)


def test_the_plan_reserves_what_decides() -> None:
    n = 4000
    store = ArrayRows(sparse.csr_array(sparse.eye_array(n, dtype=np.float32)), np.arange(n) % 2)
    least = make_plan(store, FitConfig.of(kernel="precomputed", memory="1GiB")).min_memory_bytes
    decides = {}
    for memory in (least, least + 8 * n * n):
        plan = make_plan(store, FitConfig.of(kernel="precomputed", memory=memory))
        decides[memory] = plan.decides_kernel
        held = sum(need.nbytes for need in plan.needs if need.what in ("kernel check", "resident data"))
        assert not plan.decides_kernel or held + 8 * n * n <= memory
    assert list(decides.values()) == [False, True]
    with pytest.raises(PlanRefused):
        make_plan(store, FitConfig.of(kernel="precomputed", memory=least - MIB))
