"""Predictions with NumPy alone: those of `bigsvm.load_model`, and the same refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from bigsvm import predictor
from bigsvm.csr import CSR
from bigsvm.errors import DataError, MissingInput
from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.linear_model import LinearModel, load_model
from bigsvm.problem.kernel import Kernel

D = 9
KERNELS = {
    "rbf": Kernel("rbf", 0.3),
    "poly": Kernel("poly", 0.4, 3, 1.0),
    "sigmoid": Kernel("sigmoid", 0.1, 3, -0.2),
}
SCALES = {
    "none": {},
    "maxabs": {"scale": {"kind": "maxabs", "largest": [2.0 + j for j in range(D)]}},
    **{
        f"standard {centred}": {
            "scale": {
                "kind": "standard",
                "largest": [2.0 + j for j in range(D)],
                "mean": [1.0 - j for j in range(D)],
                "centred": centred,
            }
        }
        for centred in (False, True)
    },
    "unit-norm": {"scale": {"kind": "unit-norm"}},
}


def rows(n: int = 30, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, D)) < 0.6, rng.standard_normal((n, D)), 0.0)
    X[:1] = 0.0
    return X


def linear(classes: Any = (1, 2, 3), **about: Any) -> LinearModel:
    rng = np.random.default_rng(1)
    n_models = 1 if len(classes) < 3 else len(classes)
    coef, intercept = rng.standard_normal((n_models, D)), rng.standard_normal(n_models)
    return LinearModel(coef, intercept, np.array(classes), about)


def kernel(name: str, layout: str = "dense", support: np.ndarray | None = None, **about: Any) -> KernelModel:
    rng = np.random.default_rng(2)
    S: Any = rows(40, seed=3) if support is None else support
    n = len(S)
    S = to_csr(S) if layout == "csr" else S
    return KernelModel(
        KERNELS[name], S, np.arange(n), rng.standard_normal((3, n)), rng.standard_normal(3),
        np.array(["a", "b", "c"]), D, about=about,
    )  # fmt: skip


def to_csr(X: np.ndarray) -> CSR:
    found = sparse.csr_array(X)
    return CSR(found.data, found.indices, found.indptr.astype(np.int64))


def forms(X: np.ndarray) -> dict[str, Any]:
    found = to_csr(X)
    return {"dense": X, "csr": found, "scipy": sparse.csr_array(X), "triple": tuple(found), "float32": np.float32(X)}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("classes", [(), (-1, 1), ("x", "y", "z")])
def test_a_linear_model_gives_the_bits_of_the_trainer(tmp_path: Path, classes: Any, scale: str) -> None:
    linear(classes, rows=SCALES[scale]).save(tmp_path / "m")
    ours, theirs = predictor.load(tmp_path / "m"), load_model(tmp_path / "m")
    for name, X in forms(rows()).items():
        as_theirs = forms(rows())["csr"] if name == "triple" else X
        np.testing.assert_array_equal(ours.decision_function(X), theirs.decision_function(as_theirs))
        np.testing.assert_array_equal(ours.predict(X), theirs.predict(as_theirs))
        assert ours.predict(X).dtype == theirs.predict(as_theirs).dtype


def test_many_rows_of_many_products_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linear().save(tmp_path / "m")
    monkeypatch.setattr(predictor, "_PRODUCTS", 100)
    for X in (rows(5000), rows(0)):
        expected = load_model(tmp_path / "m").decision_function(X)
        np.testing.assert_array_equal(predictor.load(tmp_path / "m").decision_function(X), expected)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_model_agrees_to_rounding(
    tmp_path: Path, name: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = kernel(name, layout, rows=SCALES["maxabs"])
    model.save(tmp_path / "m")
    theirs = load_model(tmp_path / "m")
    for kept in (1 << 20, 0):
        monkeypatch.setattr("bigsvm.model.plain_kernel._KEPT", kept)
        ours = predictor.load(tmp_path / "m")
        for form, X in forms(rows()).items():
            as_theirs = forms(rows())["csr"] if form == "triple" else X
            expected = theirs.decision_function(as_theirs)
            largest = np.abs(model.dual_coef).sum(axis=1) * (1.0 if name != "poly" else np.abs(expected).max())
            assert np.all(np.abs(ours.decision_function(X) - expected) <= 1e-12 * largest), form
            np.testing.assert_array_equal(ours.predict(X), theirs.predict(as_theirs))
        monkeypatch.setattr("bigsvm.model.plain_kernel._VALUES", 50)  # a few rows and support vectors at a time


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_far_from_the_origin_distances_are_taken_from_differences(tmp_path: Path, layout: str) -> None:
    """At 1e9 nothing of a distance is left in sums of products."""
    far = rows(40, seed=3)
    far[:, 0] += 1e9
    model = kernel("rbf", layout, far)
    model.save(tmp_path / "m")
    new = rows(20, seed=5)
    new[:, 0] += 1e9
    new[3] = 0.0
    for X in forms(new).values():
        if isinstance(X, np.ndarray) and X.dtype == np.float32:
            continue
        found = predictor.load(tmp_path / "m").decision_function(X)
        K = KERNELS["rbf"].matrix(new, far)
        np.testing.assert_allclose(found, K @ model.dual_coef.T + model.intercept, rtol=0, atol=1e-9)
        assert np.abs(found[3] - model.intercept).max() == 0.0


def test_sparse_rows_may_be_narrower_and_precomputed_rows_are_picked_from(tmp_path: Path) -> None:
    narrow = np.ascontiguousarray(rows()[:, :4])
    padded = np.hstack([narrow, np.zeros((len(narrow), D - 4))])
    for layout in ("dense", "csr"):
        kernel("rbf", layout).save(tmp_path / layout)
        model = predictor.load(tmp_path / layout)
        np.testing.assert_allclose(
            model.decision_function(sparse.csr_array(narrow)), model.decision_function(padded), rtol=1e-12
        )
    given = KernelModel(
        Kernel("precomputed"), None, np.array([1, 4]), np.array([[2.0, -3.0]]), np.array([0.5]), np.array([0, 1]), D
    )
    given.save(tmp_path / "given")
    expected = 2.0 * rows()[:, 1] - 3.0 * rows()[:, 4] + 0.5
    for X in (rows(), sparse.csr_array(rows())):
        np.testing.assert_allclose(predictor.load(tmp_path / "given").decision_function(X), expected, rtol=1e-14)


@pytest.mark.parametrize("made", [linear, lambda: kernel("rbf"), lambda: kernel("rbf", "csr")])
def test_what_the_trainer_refuses_is_refused_with_the_same_words(tmp_path: Path, made: Any) -> None:
    made().save(tmp_path / "m")
    ours, theirs = predictor.load(tmp_path / "m"), load_model(tmp_path / "m")
    nan, wide, beyond = rows(), np.zeros((2, D + 1)), sparse.csr_array(([1.0], [D], [0, 0, 1]), shape=(2, D + 1))
    nan[4, 2] = np.nan
    for bad in (nan, sparse.csr_array(nan), wide, wide[:, 2:], beyond, rows()[0]):
        with pytest.raises(DataError) as of_theirs:
            theirs.predict(bad)
        with pytest.raises(DataError) as of_ours:
            ours.predict(bad)
        assert str(of_ours.value) == str(of_theirs.value)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (([1.0], [0]), "2 arrays are not CSR rows"),
        (([1.0], [0.5], [0, 1]), "not whole numbers"),
        (([1.0], [0], [[0, 1]]), "have the shapes"),
        (([1.0], [0], []), "have the shapes"),
        (([1.0], [0], [0, 2]), "indptr does not fit"),
        (([1.0, 1.0], [3, 3], [0, 2]), "column 3 twice"),
        (([1.0], [-1], [0, 1]), "index -1"),
    ],
)
def test_triples_that_are_no_rows_are_refused(tmp_path: Path, bad: Any, said: str) -> None:
    linear().save(tmp_path / "m")
    with pytest.raises(DataError, match=said):
        predictor.load(tmp_path / "m").predict(bad)


def test_a_triple_of_lists_and_of_no_entries_is_rows(tmp_path: Path) -> None:
    linear((0, 1)).save(tmp_path / "m")
    model = predictor.load(tmp_path / "m")
    assert model.decision_function(([], [], [0, 0])).tolist() == model.intercept.tolist()
    dense = np.zeros((1, D))
    dense[0, 2] = 2
    assert model.decision_function(([2], [2], [0, 1])).tolist() == model.decision_function(dense).tolist()


def test_digests_and_versions_are_held_to_as_by_the_main_loader(tmp_path: Path) -> None:
    kernel("rbf").save(tmp_path / "m")
    with pytest.raises(MissingInput):
        predictor.load(tmp_path / "none")
    array = tmp_path / "m" / "dual_coef.npy"
    whole = array.read_bytes()
    array.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(DataError, match="damaged"):
        predictor.load(tmp_path / "m")
    array.write_bytes(whole)
    document = json.loads((tmp_path / "m" / "model.json").read_text())
    (tmp_path / "m" / "model.json").write_text(json.dumps({**document, "n_features": D + 1}))
    with pytest.raises(DataError, match="does not match its own digest"):
        predictor.load(tmp_path / "m")


def test_numpy_is_all_that_a_prediction_loads(tmp_path: Path) -> None:
    """Of what is installed from outside: and xxhash, for digests."""
    linear().save(tmp_path / "linear")
    kernel("rbf", "csr").save(tmp_path / "kernel")
    code = (
        "import sys, bigsvm\n"
        f"for kind in ('linear', 'kernel'): bigsvm.predictor.load('{tmp_path}/' + kind).predict([[0.0] * {D}])\n"
        "roots = {name.partition('.')[0] for name, m in sys.modules.items() if getattr(m, '__file__', None)}\n"
        "print(*sorted(r for r in roots if r[0] != '_' and r not in sys.stdlib_module_names))\n"
        "print(len([name for name in sys.modules if name.startswith('bigsvm')]), 'bigsvm.compiled' in sys.modules)\n"
        "print(*sorted({'difflib', 'hmac', 'secrets'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"bigsvm", "numpy", "xxhash"} >= set(done[0].split()) - {"sitecustomize", "usercustomize"}
    n, compiled = done[1].split()
    assert int(n) <= 49
    assert compiled == "False"
    assert done[2] == "", "what only mends a typing error or makes a name costs every start"
