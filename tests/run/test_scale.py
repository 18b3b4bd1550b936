"""Rows scaled as they are read: the optimum of rows scaled before, and a model scales whatever it is given."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import bigsvm
from bigsvm.cli.main import run
from bigsvm.errors import DataError, UsageError
from bigsvm.model.linear_model import load_model
from bigsvm.run.proof.certify import certify_model
from bigsvm.store.formats.opener import open_store
from bigsvm.store.transforms.scaled_rows import ScaledRows
from bigsvm.store.transforms.scaling import Scaling
from bigsvm.testing.contracts import RowBlocksContract, dense
from tests.store import formats

N, D = 120, 6
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)) * (RNG.random((N, D)) < 0.6) * 10.0 ** np.arange(D)
X[3] = 0
LABELS = np.where(X[:, 5] / 1e5 + X[:, 0] + RNG.normal(size=N) / 3 > 0, 1, -1)
BEFORE = {
    "maxabs": X / np.abs(X).max(axis=0),
    "unit-norm": X / np.maximum(np.sqrt((X * X).sum(axis=1)), 1e-300)[:, None],
}
OPTIONS = {"tol": 1e-6, "memory": "64MiB", "threads": 1}


def rows(store) -> np.ndarray:
    return np.concatenate([dense(store.read(ref).X, store.n_features) for ref in store.refs(7)])


@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("kind", ["maxabs", "unit-norm"])
def test_the_optimum_is_that_of_rows_scaled_before(kind: str, layout: str, tmp_path: Path) -> None:
    path = formats.written(tmp_path / "s.zarr", X, LABELS, layout=layout)
    store = open_store(path, scale=kind)
    np.testing.assert_allclose(rows(store), BEFORE[kind], rtol=1e-15)
    assert store.nnz == open_store(path).nnz
    again = pickle.loads(pickle.dumps(store))
    assert (again.identity, again.recipe) == (store.identity, store.recipe)
    np.testing.assert_array_equal(rows(again), rows(store))
    result = bigsvm.fit(path, scale=kind, scratch=str(tmp_path), **OPTIONS)
    plain = bigsvm.fit(BEFORE[kind], LABELS, **OPTIONS)
    assert result.figures["objective"] == pytest.approx(plain.figures["objective"], rel=1e-6)
    result.save_model(tmp_path / "m")
    model = load_model(tmp_path / "m")
    wanted = rows(store) @ model.coef[0] + model.intercept[0]
    for given in (X, sp.csr_matrix(X)):
        np.testing.assert_allclose(model.decision_function(given), wanted, rtol=1e-12)
    proof = bigsvm.certify(tmp_path / "m", path)
    assert proof["relative_gap"] == pytest.approx(result.certificate.relative_gap, abs=1e-9)
    with pytest.raises(DataError, match=f"scaled by none, and those of the model by {kind}"):
        certify_model(tmp_path / "m", open_store(path), bigsvm.config.FitConfig())


def test_commands_scale_as_the_model_was(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    formats.written(tmp_path / "s.zarr", X, LABELS)
    lines = (
        f"{y} " + " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(x) if v)
        for y, x in zip(LABELS, X.tolist(), strict=True)
    )
    (tmp_path / "t.svm").write_text("\n".join(lines) + "\n")

    def said(*command: str) -> str:
        capsys.readouterr()
        assert run([*command]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    said("fit", "s.zarr", "--scale", "maxabs", "-o", "m")
    said("ingest", "s.zarr", "scaled.zarr", "--scale", "maxabs")
    said("fit", "scaled.zarr", "-o", "m2")
    for name in ("coef.npy", "alpha.npy"):
        assert (tmp_path / "m" / name).read_bytes() == (tmp_path / "m2" / name).read_bytes()
    first = said("predict", "m", "s.zarr")
    for model in ("m", "m2"):
        for source in ("s.zarr", "scaled.zarr", "t.svm"):
            assert said("predict", model, source) == first
    said("certify", "m2", "s.zarr")
    said("evaluate", "m", "t.svm")
    capsys.readouterr()
    assert run(["fit", "scaled.zarr", "--scale", "unit-norm", "-o", "m3"]) == 2
    assert "scaled already, by maxabs" in capsys.readouterr().err
    said("fit", "s.zarr", "-o", "plain")
    capsys.readouterr()
    assert run(["predict", "plain", "scaled.zarr"]) == 65
    assert "scaled by maxabs, and those of the model by none" in capsys.readouterr().err


def test_identities_tell_scales_apart(tmp_path: Path) -> None:
    path = formats.written(tmp_path / "s.zarr", X, LABELS)
    found = {open_store(path, scale=scale).identity.digest for scale in (None, "none", "maxabs", "unit-norm")}
    assert len(found) == 3
    with pytest.raises(UsageError, match="unknown scale"):
        open_store(path, scale="standardised")


def test_what_is_no_scaling_is_refused() -> None:
    for document in (
        {},
        {"kind": "maxabs"},
        {"kind": "unit-norm", "largest": [1.0]},
        {"kind": "maxabs", "largest": [0.0]},
        7,
    ):
        with pytest.raises(DataError, match="invalid scaling"):
            Scaling.of({"scale": document})


class TestScaledByOne(RowBlocksContract):
    """Columns divided by 1 are the columns given: what is left is how they are read."""

    def make(self, X, labels, weights, folder):
        store = open_store(formats.written(folder / "s.zarr", X, labels, weights))
        return ScaledRows(store, Scaling("maxabs", np.ones(X.shape[1])))


@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("size", [1e-320, 1e-170, 1e-140, 1.0, 1e140, 1e160, 1e300])
def test_rows_of_any_size_come_to_unit_norm(size: float, layout: str) -> None:
    """Where squares leave the range of float64, too; rows of other sizes keep their bits."""
    usual = RNG.integers(1, 9, size=(6, 4)).astype(np.float64)
    usual[1] = 0.0
    usual[2, 1:] = 0.0
    given = usual.copy()
    given[3:] *= size

    def scaled(values: np.ndarray) -> np.ndarray:
        made = Scaling("unit-norm").apply(formats.csr(values) if layout == "csr" else values)
        return dense(made, 4)

    found = scaled(given)
    np.testing.assert_array_equal(found[:3], scaled(usual)[:3])
    rtol = 1e-14 if size > 1e-300 else 1e-3  # a number below 1e-308 has few digits
    np.testing.assert_allclose(found, scaled(usual), rtol=rtol)


@pytest.mark.parametrize("kind", ["maxabs", "standard"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8])
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_columns_that_float32_cannot_hold_are_divided_all_the_same(kind: str, dtype: type, layout: str) -> None:
    largest = np.array([2.0, 1e-50, 1e-42, 1e60])
    mean = np.zeros(4) if kind == "standard" else None
    scaling = Scaling(kind, largest, mean, kind == "standard" and layout == "dense")
    values = np.array([[1, 0, 0, 1], [-1, 0, 0, 0]], dtype)
    made = dense(scaling.apply(formats.csr(values) if layout == "csr" else values), 4)
    np.testing.assert_allclose(made, [[0.5, 0, 0, 1e-60], [-0.5, 0, 0, 0]], rtol=1e-7, atol=1e-45)
    assert made.dtype == (np.float32 if dtype is np.int8 else dtype)
    usual = Scaling(kind, np.array([3.0, 7.0]), None if mean is None else mean[:2], scaling.centred)
    X = RNG.normal(size=(5, 2)).astype(np.float32)
    assert usual.divisors(X.dtype).dtype == np.float32  # and so to the bits of before


@pytest.mark.parametrize("kind", ["maxabs", "standard", "unit-norm"])
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_a_worker_with_another_cache_folder_has_the_same_rows(
    kind: str, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(formats.written(tmp_path / "s.zarr", X, LABELS, layout=layout), scale=kind)
    sent, wanted = pickle.dumps(store), rows(store)
    monkeypatch.setenv("BIGSVM_CACHE", str(tmp_path / "another"))
    received = pickle.loads(sent)
    np.testing.assert_array_equal(rows(received), wanted)
    assert received.identity == store.identity
