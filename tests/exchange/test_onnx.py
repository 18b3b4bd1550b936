"""Models as ONNX graphs: onnxruntime gives the labels, and the scores to 1e-6 relative, on float32 rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.errors import UsageError
from bigsvm.problem.kernel import Kernel
from tests.exchange.made import CLASSES, KERNELS, D, kernel, linear, rows

SCALES = {
    "none": {},
    "maxabs": {"scale": {"kind": "maxabs", "largest": [2.0, 3.0, 0.7, 1.0, 5.0]}},
    **{
        f"standard {centred}": {
            "scale": {
                "kind": "standard",
                "largest": [2.0, 3.0, 0.7, 1.0, 5.0],
                "mean": [0.1, -9.0, 0.0, 3.0, 1.0],
                "centred": centred,
            }
        }
        for centred in (False, True)
    },
    "unit-norm": {"scale": {"kind": "unit-norm"}},
}


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Export a model and run the graph on float32 rows; (label or value, scores or None)."""
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")

    def runs(model: Any, X: np.ndarray) -> tuple[Any, Any]:
        bigsvm.export_model(model, tmp_path / "m.onnx", overwrite=True)
        found = runtime.InferenceSession(str(tmp_path / "m.onnx")).run(None, {"X": X.astype(np.float32)})
        return tuple(found) if len(found) > 1 else (*found, None)

    return runs


def agrees(run: Any, model: Any, X: np.ndarray) -> None:
    label, scores = run(model, X)
    expected = model.decision_function(X.astype(np.float32))
    if model.regression:
        np.testing.assert_allclose(label, expected, rtol=1e-6)
        return
    np.testing.assert_allclose(scores, expected, rtol=1e-6)
    assert label.tolist() == model.predict(X.astype(np.float32)).tolist()


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("classes", [*CLASSES.values(), ("no", "yes"), ("a", "b", "c"), (False, True), (0.5, 1.5, 4.0)])
def test_linear_models(run: Any, classes: Any, scale: str) -> None:
    agrees(run, linear(classes, rows=SCALES[scale]), rows())


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("classes", CLASSES.values(), ids=CLASSES)
def test_kernel_models(run: Any, classes: Any, name: str, layout: str) -> None:
    agrees(run, kernel(KERNELS[name], classes, layout, rows=SCALES["maxabs"]), rows())


def test_pairs_of_linear_models_and_given_kernels(run: Any) -> None:
    agrees(run, linear((1, 2, 3), pairs=True), rows())
    given = kernel(Kernel("precomputed"), (1, 2, 3))
    agrees(run, given, np.random.default_rng(1).standard_normal((7, given.n_features)))


def curves(method: str, n: int) -> list[dict[str, Any]]:
    """Of so many classes, each another; isotonic ones have plateaus, zeros, and now and then a single point."""
    rng = np.random.default_rng(3)
    if method == "sigmoid":
        return [{"A": -float(k + 1) * 40.0, "B": 0.3 * k} for k in range(n)]
    found = []
    for k in range(n):
        x = np.sort(rng.standard_normal(6))
        found.append({"x": x.tolist(), "y": [0.0, 0.0, 0.1, 0.4, 0.4, 1.0 - 0.1 * k]})
    return [*found[:-1], {"x": [0.25], "y": [0.0]}] if n > 1 else found


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_calibrated_models_give_probabilities(run: Any, method: str) -> None:
    for made in (
        linear((0, 1)),
        linear((2, 3, 5)),
        linear(("a", "b", "c"), pairs=True),
        kernel(KERNELS["rbf"], (-1, 1)),
        kernel(KERNELS["rbf"], (1, 2, 3)),
    ):
        n = 1 if len(made.classes) == 2 else len(made.classes)
        made.about["calibration"] = {"method": method, "curves": curves(method, n)}
        X = np.vstack([rows(), 1000.0 * rows(5, 1)])
        label, scores, found = run(made, X)
        expected = made.predict_proba(X.astype(np.float32))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
        assert np.ptp(expected) > 0.4
        np.testing.assert_allclose(scores, made.decision_function(X), rtol=1e-6, atol=1e-6)
        assert label.tolist() == made.predict(X).tolist()


def test_a_curve_that_rounding_decides_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    steep = {"x": [0.0, 1.0, 1.0 + 2**-40, 2.0], "y": [0.0, 0.1, 0.9, 1.0]}
    made = linear((0, 1), calibration={"method": "isotonic", "curves": [steep]})
    with pytest.raises(UsageError, match=r"curve of class 1 rises by 0.8 between scores that are 9.1e-13 apart"):
        bigsvm.export_model(made, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []
    # As large a step takes no harm where there is nothing near.
    steep["x"] = [0.0, 1.0, 1.0 + 2**-16, 2.0]
    bigsvm.export_model(made, tmp_path / "m.onnx")


def test_far_from_the_origin_no_digit_is_lost(run: Any) -> None:
    """Where ||x||^2 + ||s||^2 - 2 x.s in float32 would leave none."""
    model = kernel(KERNELS["rbf"], (0, 1))
    model.support[:, 0] += 2.0**20  # type: ignore[index]
    far = rows()
    far[:, 0] = np.round(far[:, 0]) + 2.0**20
    label, scores = run(model, far)
    expected = model.decision_function(far)
    np.testing.assert_allclose(scores, expected, rtol=1e-6)
    assert label.tolist() == model.predict(far).tolist()


@pytest.mark.parametrize("far", [1e6, 1e9, 1e12])
@pytest.mark.parametrize("n_far", [1, 5])
def test_one_row_that_lies_far_away_takes_no_digit_of_the_others(run: Any, far: float, n_far: int) -> None:
    """A sentinel in the place of a missing value: it is a support vector, and the mean of all goes with it."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 2)).astype(np.float32)
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    X[:n_far, 0] = far * (1 + np.arange(n_far))
    model = bigsvm.fit((X, y), kernel="rbf", gamma=1.0, tol=1e-2).model
    label, scores = run(model, X)
    np.testing.assert_allclose(np.ravel(scores), model.decision_function(X), rtol=1e-5, atol=1e-6)
    assert label.tolist() == model.predict(X).tolist()


def test_where_digits_may_be_lost_it_is_said(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((700, 1)) * 1e9
    model = bigsvm.fit((X, np.arange(700) % 2), kernel="rbf", gamma=1.0, tol=1e-2).model
    (warned,) = bigsvm.export_model(model, tmp_path / "m.onnx")["warnings"]
    assert "support vectors lie so far apart" in warned


@pytest.mark.parametrize("to", ["onnx", "liblinear", "libsvm", "npz"])
@pytest.mark.parametrize("hash_bits", [None, 4])
def test_columns_of_text_that_a_file_does_not_know_are_told(tmp_path: Path, to: Any, hash_bits: int | None) -> None:
    pytest.importorskip("onnx")
    lines = "".join(f"{i % 2},{i * 0.5},{'uv'[i % 2]}\n" for i in range(40))
    (tmp_path / "t.csv").write_text("y,a,city\n" + lines)
    model = bigsvm.fit(tmp_path / "t.csv", label="y", hash_bits=hash_bits).model
    warned = bigsvm.export_model(model, tmp_path / "m", to)["warnings"]
    assert len(warned) == (to != "npz")
    assert all("the encoding of text columns is left out" in said for said in warned)


def test_ties_of_an_imported_model_go_as_in_its_own_program(run: Any) -> None:
    for order in ([0, 2, 1], [2, 1, 0]):
        model = linear((1, 2, 3), pairs=True, imported={"label_order": order})
        model.coef[:] = [[1.0] + [0.0] * (D - 1), [-1.0] + [0.0] * (D - 1), [1.0] + [0.0] * (D - 1)]
        model.intercept[:] = 0.0
        label, _ = run(model, rows())
        assert label.tolist() == model.predict(rows()).tolist()
        assert len(set(label.tolist())) > 1
    two = linear((1, 2), imported={"label_order": [0, 1]})
    two.intercept[:] = 0.0
    assert run(two, rows()[:1])[0].tolist() == two.predict(rows()[:1]).tolist() == [2]


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    for name in ("a", "b"):
        bigsvm.export_model(kernel(KERNELS["rbf"], (1, 2, 3)), tmp_path / name, "onnx")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_without_onnx_one_line_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(UsageError, match=r"export to ONNX needs onnx \(pip install 'bigsvm\[onnx\]'\)"):
        bigsvm.export_model(linear((0, 1)), tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []
