"""AnnData on Zarr and on HDF5: matrices of every form, labels that are missing, weights, and names of features.

The files here are written by zarr and h5py alone, as anndata 0.12 writes them; where anndata is installed, by itself.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from bigsvm.errors import DataError, UsageError
from bigsvm.store.formats import kept_rows
from bigsvm.store.formats.opener import open_store
from bigsvm.testing.contracts import N_FEATURES, RowBlocksContract
from tests.store import formats
from tests.store.cells import CODES, HOLES, NAMES, STORES, D, N, X, content
from tests.store.read_back import labels_of, rows_of

pytest.importorskip("h5py")


@pytest.mark.parametrize("name", STORES)
def test_every_matrix_is_read_as_rows(name: str, cells: Path) -> None:
    seen = set()
    for matrix in (None, "X", "layers/csc", "layers/dense", "raw/X"):
        store = open_store(cells / name, matrix=matrix)
        np.testing.assert_array_equal(rows_of(store), X.toarray())
        assert store.layout == ("dense" if matrix == "layers/dense" else "csr")
        assert store.feature_names == NAMES
        assert labels_of(store) == np.array(["b", "a", "c"])[CODES].tolist()
        assert pickle.loads(pickle.dumps(store)).identity == store.identity
        seen.add(store.identity.digest)
    assert len(seen) == 4  # X is the default
    pca = open_store(cells / name, matrix="obsm/pca")
    assert (pca.n_features, pca.feature_names, pca.dtype) == (4, None, np.float64)
    assert open_store(cells / name, like={"matrix": "obsm/pca"}, labelled=False).n_features == 4
    with pytest.raises(DataError, match="layers/csc, layers/dense, obsm/pca, raw/X"):
        open_store(cells / name, matrix="layers/counts")
    with pytest.raises(UsageError, match="no matrix is called"):
        open_store(cells / name, matrix="obs/label")


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("label", ["holes", "obs/number", "nullable"])
def test_missing_labels_are_counted_or_left_out(name: str, label: str, cells: Path, monkeypatch) -> None:
    monkeypatch.setattr(kept_rows, "_STEP", 16)
    with pytest.raises(DataError, match="9 of the 60 rows have no label, row 0 is the first"):
        _ = open_store(cells / name, label=label).classes
    kept = HOLES >= 0
    for matrix in (None, "layers/dense", "layers/csc"):
        store = open_store(cells / name, label=label, missing="drop", matrix=matrix)
        np.testing.assert_array_equal(rows_of(store), X.toarray()[kept])
        given = np.array(["b", "a", "c"])[HOLES[kept]] if label == "holes" else HOLES[kept]
        assert labels_of(store) == given.tolist()
        assert store.n_samples == kept.sum()
        assert store.nnz == (kept.sum() * D if store.layout == "dense" else np.count_nonzero(X.toarray()[kept]))
        assert "9 of the 60 rows have no label" in store.warnings[-1]
        again = pickle.loads(pickle.dumps(store))
        assert again.identity == store.identity
        np.testing.assert_array_equal(rows_of(again), rows_of(store))
    targets = open_store(cells / name, label="number", missing="drop", task="regression")
    y = np.concatenate([targets.read(ref).y for ref in targets.refs(7)])
    np.testing.assert_array_equal(y, CODES[kept])
    # Where nothing is missing nothing changes, the identity neither.
    whole = open_store(cells / name, missing="drop")
    assert whole.identity == open_store(cells / name).identity


def test_text_labels(cells: Path) -> None:
    for name in STORES:
        assert labels_of(open_store(cells / name, label="text")) == ["x", "y"] * (N // 2)


@pytest.mark.filterwarnings("ignore")  # of anndata, on what will be
@pytest.mark.parametrize("name", STORES)
def test_what_anndata_writes_is_read(name: str, tmp_path: Path) -> None:
    ad, pd = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    kinds = pd.Categorical.from_codes(HOLES, ["b", "a", "c"])
    obs = pd.DataFrame({"kind": kinds}, index=[f"cell{i}" for i in range(N)])
    data = ad.AnnData(X, obs=obs, var=pd.DataFrame(index=NAMES), layers={"csc": X.tocsc()})
    if name.endswith(".h5ad"):
        data.write_h5ad(tmp_path / name, compression="gzip" if name.startswith("gzip") else None)
    else:
        with ad.settings.override(zarr_write_format=int(name[1])):
            data.write_zarr(tmp_path / name)
    for matrix in ("X", "layers/csc"):
        options = {} if name.endswith(".h5ad") else {"empty_chunks": "zeros"}
        store = open_store(tmp_path / name, label="kind", matrix=matrix, missing="drop", **options)
        np.testing.assert_array_equal(rows_of(store), X.toarray()[HOLES >= 0])
        assert store.feature_names == NAMES


class _AnnData(RowBlocksContract):
    dtypes = ("float32", "float64", "int64", "uint8", "int8", "int16")
    name, form = "a.h5ad", "csr"

    def make(self, X, labels, weights, folder):
        matrix = X if self.form == "dense" else getattr(sp, f"{self.form}_matrix")(X)
        parts = {"X": matrix, "obs/label": labels, "var/_index": [f"f{j}" for j in range(N_FEATURES)]}
        if weights is not None:
            parts["obs/weight"] = weights
        return open_store(formats.anndata(folder / self.name, parts))


class TestH5adRows(_AnnData):
    pass


class TestH5adDense(_AnnData):
    form = "dense"


class TestZarrColumns(_AnnData):
    name, form = "a.zarr", "csc"


WEIGHTS = np.array([0.5, 2.0, 0.0])[np.arange(N) % 3]
WEIGHED = {
    "plain": WEIGHTS,
    "whole": (2 * WEIGHTS).astype(np.int8),
    "nullable": (2 * WEIGHTS, np.zeros(N, bool), "nullable-float"),
    "coded": ((np.arange(N) % 3).astype(np.int8), np.array([0.5, 2.0, 0.0])),
    "holed": (WEIGHTS, np.arange(N) == 40, "nullable-float"),
    "uncoded": (np.where(np.arange(N) == 40, -1, 0).astype(np.int8), np.array([0.5])),
}


@pytest.mark.parametrize("name", STORES)
def test_weights_are_any_column_of_numbers(name: str, tmp_path: Path) -> None:
    columns = {f"obs/{column}": values for column, values in WEIGHED.items()}
    path = formats.anndata(tmp_path / name, {**content(), **columns})
    for column, factor in {"plain": 1, "whole": 2, "nullable": 2, "coded": 1}.items():
        store = open_store(path, weight=column)
        weights = np.concatenate([store.read(ref).sample_weight for ref in store.refs(7)])
        np.testing.assert_array_equal(weights, factor * WEIGHTS)
        assert pickle.loads(pickle.dumps(store)).identity == store.identity
    assert open_store(path).has_weights is False
    for column in ("holed", "uncoded"):
        store = open_store(path, weight=f"obs/{column}")
        with pytest.raises(DataError, match="row 40 has no weight"):
            store.read(store.refs(N)[0])
    for column in ("holes", "text"):
        with pytest.raises(DataError, match="weights are not a column of numbers"):
            open_store(path, weight=column)


@pytest.mark.parametrize("name", ["v2.zarr", "plain.h5ad"])
def test_codes_of_older_files_are_no_weights(name: str, tmp_path: Path) -> None:
    """AnnData before 0.8 kept a categorical as a plain array of codes, which looks like numbers."""
    codes, values = (np.arange(N) % 3).astype(np.int8), np.array([0.5, 2.0, 0.0])
    older = {
        "obs/dose": codes,
        "obs/__categories/dose": values,
        "obs/kind": codes,
        "obs/__categories/kind": list("abc"),
    }
    path = formats.anndata(tmp_path / name, {**content(), **older})
    if name.endswith(".h5ad"):
        import h5py

        with h5py.File(path, "r+") as root:
            for column in ("dose", "kind"):
                root[f"obs/{column}"].attrs["categories"] = root[f"obs/__categories/{column}"].ref
    else:
        for column in ("dose", "kind"):
            zarr.open_group(path, mode="r+")[f"obs/{column}"].attrs["categories"] = f"__categories/{column}"
    store = open_store(path, weight="dose")
    weights = np.concatenate([store.read(ref).sample_weight for ref in store.refs(7)])
    np.testing.assert_array_equal(weights, values[codes])
    assert labels_of(open_store(path, label="kind")) == np.array(["a", "b", "c"])[codes].tolist()
    with pytest.raises(DataError, match="weights are not a column of numbers"):
        open_store(path, weight="kind")
