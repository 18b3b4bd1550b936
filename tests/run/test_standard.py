"""--scale standard: the optimum of rows that scikit-learn's StandardScaler has filled up, without filling them up."""

from __future__ import annotations

import functools
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import StandardScaler

import bigsvm
from bigsvm.cli.main import run
from bigsvm.config import KERNEL_SOLVERS, FitConfig
from bigsvm.errors import DataError, Unsupported, UsageError
from bigsvm.model.linear_model import load_model
from bigsvm.problem.centre import Centre
from bigsvm.problem.loss import LOSSES
from bigsvm.run.fit.gamma import scale_gamma
from bigsvm.run.fit.plan import make_plan
from bigsvm.solvers.registry import SOLVERS
from bigsvm.store.formats.opener import open_store
from bigsvm.store.transforms import scaled_rows
from bigsvm.store.transforms.scaling import Scaling
from bigsvm.store.working_order import MANY_FEATURES
from bigsvm.testing.contracts import RowBlocksContract, dense
from bigsvm.testing.problems import random_problem
from bigsvm.testing.reference import optimum
from tests.products import pairs_of
from tests.store import formats

N, D = 90, 6
X, Y = random_problem(N, D, 0.5, seed=61, noise=0.2)
X *= 10.0 ** np.arange(-2, D - 2)
X[:, 3] += 40.0 * (X[:, 3] != 0)
X[:, 4], X[:, 5] = 3.0, 0.0  # columns that do not vary
Z = StandardScaler().fit_transform(X)
FORMS: dict[str, Any] = {"csr": sp.csr_array(X), "dense": X}
OPTIONS: dict[str, Any] = {"memory": "64MiB", "threads": 1}
APPROXIMATE = ("ssvm", "pegasos")
CASES = [
    (name, loss, bias)
    for name, solver in SOLVERS.items()
    for loss in solver.losses
    for bias in solver.biases
    if name not in (*KERNEL_SOLVERS, *APPROXIMATE) and loss in LOSSES and not LOSSES[loss].regression
]
VIRTUAL = [(name, loss, bias) for name, loss, bias in CASES if bias == "free" or SOLVERS[name].centres]


@functools.cache
def expected(loss: str, bias: str) -> float:
    return optimum(Z, Y, np.full(N, 0.5), loss, bias)


def rows(store: Any, block_rows: int = 7) -> np.ndarray:
    return np.concatenate([dense(store.read(ref).X, store.n_features) for ref in store.refs(block_rows)])


def test_virtual_solvers_are_those_of_either_loss_with_every_bias() -> None:
    assert {(loss, bias) for _, loss, bias in VIRTUAL} == {
        (loss, bias) for loss in ("hinge", "squared_hinge") for bias in ("augmented", "none", "free")
    }


@pairs_of(name__loss__bias=VIRTUAL, stream=[False, True])
def test_sparse_rows_have_the_optimum_of_filled_up_ones(
    name: str, loss: str, bias: str, stream: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if stream:
        request.getfixturevalue("streaming")
    tol = 1e-6 if name in ("pcd", "cd", "rosenbrock") else 1e-9
    result = bigsvm.fit(FORMS["csr"], Y, scale="standard", solver=name, loss=loss, bias=bias, C=0.5, tol=tol, **OPTIONS)
    assert result.status == "converged"
    assert result.model.about["plan"]["resident"] is not stream
    assert result.figures["objective"] == pytest.approx(expected(loss, bias), rel=max(tol, 1e-8))
    result.save_model(tmp_path / "m")
    proof = bigsvm.certify(tmp_path / "m", FORMS["csr"], Y)
    assert proof["objective"] == pytest.approx(result.figures["objective"], rel=1e-12)
    assert proof["relative_gap"] == pytest.approx(result.certificate.relative_gap, abs=1e-13)
    # The objective straight from its definition, with the filled up rows: w is that of the model, b what is left.
    model = load_model(tmp_path / "m")
    scores = model.decision_function(FORMS["csr"])
    w = model.coef[0]
    b = (scores - Z @ w).mean()
    np.testing.assert_allclose(scores, Z @ w + b, atol=1e-9)
    slack = np.maximum(1.0 - Y * (Z @ w + b), 0.0)
    losses = 0.5 * float(np.sum(slack**2 if loss == "squared_hinge" else slack))
    primal = 0.5 * float(w @ w) + (0.5 * b * b if bias == "augmented" else 0.0) + losses
    assert primal == pytest.approx(result.figures["objective"], rel=1e-9)
    if bias == "none":
        assert b == pytest.approx(0.0, abs=1e-10)
    np.testing.assert_allclose(model.decision_function(FORMS["dense"]), scores, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "loss", "bias"), [case for case in CASES if case not in VIRTUAL])
def test_solvers_that_would_have_to_fill_rows_up_refuse_sparse_ones(name: str, loss: str, bias: str) -> None:
    with pytest.raises(Unsupported, match=f"'{name}' cannot take the means of sparse rows off") as refused:
        bigsvm.fit(FORMS["csr"], Y, scale="standard", solver=name, loss=loss, bias=bias, **OPTIONS)
    assert 'bias="free"' in str(refused.value.hint)


@pytest.mark.parametrize(("loss", "bias"), [("hinge", "augmented"), ("squared_hinge", "none"), ("hinge", "free")])
def test_dense_rows_are_centred_as_they_are_read(loss: str, bias: str, tmp_path: Path) -> None:
    result = bigsvm.fit(X, Y, scale="standard", loss=loss, bias=bias, C=0.5, tol=1e-9, **OPTIONS)
    assert result.figures["objective"] == pytest.approx(expected(loss, bias), rel=1e-8)
    result.save_model(tmp_path / "m")
    assert bigsvm.certify(tmp_path / "m", X, Y)["relative_gap"] <= 1e-9
    model = load_model(tmp_path / "m")
    scores = Z @ model.coef[0] + model.intercept[0]
    for form in FORMS.values():
        np.testing.assert_allclose(model.decision_function(form), scores, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("loss", "solver"), [("squared_hinge", "newton-cg"), ("hinge", "hyperpass")])
def test_means_follow_features_that_are_renumbered(loss: str, solver: str, tmp_path: Path) -> None:
    n, d = 200, MANY_FEATURES + 100
    rng = np.random.default_rng(0)
    columns = rng.permutation(d)[(d * rng.random(20 * n) ** 6).astype(np.int64)]
    wide = sp.csr_array((rng.random(20 * n) + 0.1, columns, 20 * np.arange(n + 1)), shape=(n, d))
    wide.sum_duplicates()
    y = np.where(wide @ rng.normal(size=d) > 0, 1, -1)
    result = bigsvm.fit(wide, y, scale="standard", solver=solver, loss=loss, C=1e-3, max_passes=8, **OPTIONS)
    result.save_model(tmp_path / "m")
    proof = bigsvm.certify(tmp_path / "m", wide, y)  # which knows the store's order alone
    assert proof["objective"] == pytest.approx(result.figures["objective"], rel=1e-12)
    assert proof["relative_gap"] == pytest.approx(result.certificate.relative_gap, rel=1e-9)


def test_a_system_takes_the_products_of_filled_up_rows() -> None:
    """Conjugate gradients are preconditioned alike, so that virtual rows cost no further passes."""
    asked: dict[str, Any] = {"solver": "newton-cg", "bias": "none", "tol": 1e-6, **OPTIONS}
    ours = bigsvm.fit(FORMS["csr"], Y, scale="standard", **asked)
    theirs = bigsvm.fit(sp.csr_array(Z), Y, **asked)
    assert ours.figures["epochs"] == theirs.figures["epochs"]


def test_the_bias_scale_counts(tmp_path: Path) -> None:
    found = [
        bigsvm.fit(given, Y, scale=scale, bias_scale=3.0, tol=1e-9, **OPTIONS).figures["objective"]
        for given, scale in ((FORMS["csr"], "standard"), (Z, None))
    ]
    assert found[0] == pytest.approx(found[1], rel=2e-9)


def test_targets_and_several_classes() -> None:
    targets = Z @ np.arange(1.0, D + 1) + np.cos(np.arange(N))
    three = np.arange(N) % 3
    for y, options in (
        (targets, {"loss": "squared_epsilon_insensitive", "solver": "newton-cg"}),
        (targets, {"loss": "squared_epsilon_insensitive", "solver": "newton-cg", "bias": "none"}),
        (three, {"solver": "newton-cg", "bias": "none"}),
        (three, {"loss": "hinge", "solver": "hyperpass", "bias": "augmented"}),
    ):
        ours, theirs = (
            bigsvm.fit(given, y, scale=scale, C=0.5, tol=1e-8, **options, **OPTIONS)
            for given, scale in ((FORMS["csr"], "standard"), (sp.csr_array(Z), None))
        )
        assert ours.figures["objective"] == pytest.approx(theirs.figures["objective"], rel=2e-8)
        np.testing.assert_allclose(
            ours.model.decision_function(FORMS["csr"]), theirs.model.decision_function(sp.csr_array(Z)), atol=1e-3
        )
    with pytest.raises(Unsupported, match="takes the means of sparse rows off") as refused:
        bigsvm.fit(FORMS["csr"], targets, scale="standard", loss="epsilon_insensitive", bias="augmented")
    assert "squared_epsilon_insensitive" in str(refused.value.hint)


def test_a_kernel_that_sees_no_place_takes_them_and_another_is_refused() -> None:
    options: dict[str, Any] = {"kernel": "rbf", "gamma": 0.2, "tol": 1e-6, **OPTIONS}
    found = {name: bigsvm.fit(form, Y, scale="standard", **options) for name, form in FORMS.items()}
    plain = bigsvm.fit(sp.csr_array(Z), Y, **options)
    for result in found.values():
        assert result.figures["objective"] == pytest.approx(plain.figures["objective"], rel=1e-6)
    scores = plain.model.decision_function(sp.csr_array(Z))
    np.testing.assert_allclose(found["csr"].model.decision_function(FORMS["csr"]), scores, atol=1e-4)
    with pytest.raises(DataError, match="subtracts the means of features"):
        found["dense"].model.decision_function(FORMS["csr"])
    with pytest.raises(Unsupported, match="the poly kernel sees them"):
        bigsvm.fit(FORMS["csr"], Y, scale="standard", kernel="poly")
    dense_rows = open_store((X, Y), scale="standard")
    assert make_plan(dense_rows, FitConfig.of(kernel="poly", **OPTIONS)).problem.centre is None


def test_gamma_scale_is_that_of_filled_up_rows() -> None:
    found = [scale_gamma(open_store((form, Y), scale="standard")) for form in FORMS.values()]
    wanted = 1.0 / (D * Z.var())
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_moments_are_those_of_scikit_learn_however_rows_come() -> None:
    far = np.array([[1e6 + 1.0], [1e6 + 3.0], [1e6 + 2.0]])
    wanted = StandardScaler().fit(np.column_stack([far, [0.0, 2.0, 0.0], [7.0, 7.0, 7.0]]))
    for form in (np.asarray, sp.csr_array):
        given = form(np.column_stack([far, [0.0, 2.0, 0.0], [7.0, 7.0, 7.0]]))
        found = Scaling.of(open_store((given, [0, 1, 1]), scale="standard").recipe)
        assert found is not None
        np.testing.assert_allclose(found.mean, wanted.mean_, rtol=1e-15)
        np.testing.assert_allclose(found.largest, wanted.scale_, rtol=1e-12)
    with pytest.raises(DataError, match=r"variance of feature 1 .* overflows float64"):
        open_store((np.array([[1.0, 1e200], [0.0, -1e200]]), [0, 1]), scale="standard")
    with pytest.raises(DataError, match="row 1"):
        open_store((np.array([[1.0], [np.nan]]), [0, 1]), scale="standard")


@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_a_store_keeps_its_moments(layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = formats.written(tmp_path / "s.zarr", X, Y, layout=layout)
    store = open_store(path, scale="standard")
    wanted = Z if layout == "dense" else X / StandardScaler().fit(X).scale_
    np.testing.assert_allclose(rows(store), wanted, rtol=1e-12, atol=1e-12)
    assert store.nnz == open_store(path).nnz
    again = pickle.loads(pickle.dumps(store))
    assert (again.identity, again.recipe) == (store.identity, store.recipe)
    np.testing.assert_array_equal(rows(again, 11), rows(store, 11))
    digests = {open_store(path, scale=scale).identity.digest for scale in (None, "maxabs", "standard")}
    assert len(digests) == 3
    assert json.loads(json.dumps(store.recipe)) == store.recipe
    monkeypatch.setattr(scaled_rows, "_BLOCK", 300)  # other blocks are read, if they are read at all
    monkeypatch.setattr(scaled_rows, "column_moments", lambda *_: pytest.fail("moments were kept"))
    assert open_store(path, scale="standard").identity == store.identity


def test_other_blocks_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for nbytes in (1 << 21, 200):
        monkeypatch.setattr(scaled_rows, "_BLOCK", nbytes)
        found.append(open_store((FORMS["csr"], Y), scale="standard").recipe)
    assert found[0] == found[1]


def test_commands_go_by_the_model(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for layout in ("csr", "dense"):
        formats.written(tmp_path / f"{layout}.zarr", X, Y, layout=layout)

    def said(*command: str) -> Any:
        capsys.readouterr()
        assert run([*command]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    labels = {}
    for layout in ("csr", "dense"):
        said("fit", f"{layout}.zarr", "--scale", "standard", "-o", layout, "--tol", "1e-6")
        said("ingest", f"{layout}.zarr", f"{layout}-scaled.zarr", "--scale", "standard")
        said("fit", f"{layout}-scaled.zarr", "-o", f"{layout}-2", "--tol", "1e-6")
        for name in ("coef.npy", "intercept.npy", "alpha.npy"):
            assert (tmp_path / layout / name).read_bytes() == (tmp_path / f"{layout}-2" / name).read_bytes()
        said("certify", f"{layout}-2", f"{layout}.zarr")
        said("predict", layout, f"{layout}.zarr", "-o", "p.csv", "--overwrite")
        labels[layout] = (tmp_path / "p.csv").read_bytes()
    assert labels["csr"] == labels["dense"]
    assert run(["fit", "csr.zarr", "--scale", "standard", "-s", "dcd", "-o", "m3"]) == 2
    assert "--bias free" in capsys.readouterr().err


def test_the_centre_is_its_formula() -> None:
    rng = np.random.default_rng(5)
    mu, H = rng.normal(size=4), rng.normal(size=(5, 5))
    H = H @ H.T
    for B, biased in ((2.0, True), (1.0, False)):
        centre = Centre(mu, B, biased)
        T = np.eye(5)
        T[-1, :4], T[-1, -1] = -mu / B, float(biased)
        for w in (rng.normal(size=5), rng.normal(size=(5, 3))):
            np.testing.assert_allclose(centre.met(w), T @ w, rtol=1e-13)
            np.testing.assert_allclose(centre.summed(w), T.T @ w, rtol=1e-13)
        last = np.append(H[:4, -1] / B, H[-1, -1] / B)
        diagonal, column = centre.arrowhead(np.diag(H), last)
        np.testing.assert_allclose(diagonal, np.diag(T.T @ H @ T), atol=1e-12)
        np.testing.assert_allclose(column * B, (T.T @ H @ T)[:, -1], atol=1e-12)
        upper = np.triu(H)
        centre.matrix(upper)
        np.testing.assert_allclose(np.triu(upper), np.triu(T.T @ H @ T), atol=1e-12)


class TestStandardByNothing(RowBlocksContract):
    """Columns less 0 and divided by 1 are the columns given: what is left is how they are read."""

    def make(self, X, labels, weights, folder):
        store = open_store(formats.written(folder / "s.zarr", X, labels, weights))
        d = X.shape[1]
        return scaled_rows.ScaledRows(store, Scaling("standard", np.ones(d), np.zeros(d), store.layout == "dense"))


def test_what_is_no_standard_scaling_is_refused() -> None:
    whole = {"kind": "standard", "largest": [1.0], "mean": [0.5], "centred": True}
    assert Scaling.of({"scale": whole}) is not None
    for change in ({"mean": None}, {"mean": [0.5, 1.0]}, {"mean": [float("inf")]}, {"centred": 1}, {"kind": "maxabs"}):
        with pytest.raises(DataError, match="invalid scaling"):
            Scaling.of({"scale": {**whole, **change}})
    with pytest.raises(UsageError, match="at most 1048576"):
        open_store((sp.csr_array((2, (1 << 20) + 1)), [0, 1]), scale="standard")
