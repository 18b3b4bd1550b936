"""Bad values in rows that a condition leaves out harm nobody; those in chosen rows are refused with their row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import bigsvm
from bigsvm.errors import DataError
from bigsvm.store.blocks import BlockRef
from bigsvm.store.formats import kept_rows, parquet_files
from bigsvm.store.formats.opener import open_store
from bigsvm.testing.contracts import dense
from tests.store import formats

N = 60
RNG = np.random.default_rng(8)
X = RNG.normal(size=(N, 3)).round(3)
LABELS = np.array(["no", "yes"])[(X[:, 0] > 0).astype(int)]
BAD = {
    "one": [30], "the first and the last": [0, N - 1], "a run": list(range(20, 33)), "many": list(range(1, N, 2)),
    "all but two": [k for k in range(N) if k not in (7, 40)],
}  # fmt: skip
"""Which rows have a bad value."""
FILES = ["rows.csv", "rows.feather", "rows.parquet", "lists.parquet", "fixed.parquet", "texts.csv"]
ARRAYS = ["rows.zarr", "rows.h5ad"]


def written(name: str, bad: list[int], left_out: list[int], folder: Path) -> Path:
    """A store in which the rows `bad` have a null, or an infinite value, and `keep` is 0 for the rows `left_out`."""
    keep = np.ones(N, int)
    keep[left_out] = 0
    hole = np.isin(np.arange(N), bad)
    path = folder / name
    if name in ARRAYS:
        pytest.importorskip("h5py")
        values = X.copy()
        values[bad, 1] = np.inf
        codes = (LABELS == "yes").astype(np.int8)
        formats.anndata(path, {"X": values, "obs/label": (codes, ["no", "yes"]), "obs/keep": keep})
        return path
    beside = {"label": LABELS.tolist(), "keep": keep}
    rows = [None if h else row for h, row in zip(hole, X.tolist(), strict=True)]
    if name == "lists.parquet":
        table = {"indices": [[0, 1, 2]] * N, "values": rows}
    elif name == "fixed.parquet":
        table = {"x": pa.array(rows, pa.list_(pa.float64(), 3))}
    else:
        table = {f"f{j}": pa.array(X[:, j], mask=hole if j == 1 else None) for j in range(3)}
        if name == "texts.csv":
            table["town"] = pa.array(["Oslo"] * N)
    whole = pa.table({**table, **beside})
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(whole, path)
    elif path.suffix == ".feather":
        pyarrow.feather.write_feather(whole, path)
    else:
        pyarrow.parquet.write_table(whole, path, row_group_size=13)
    return path


def opened(path: Path):
    columns = {"fixed.parquet": ("x",), "texts.csv": ("f0", "f1", "f2", "town")}
    named = () if path.name in (*ARRAYS, "lists.parquet") else columns.get(path.name, ("f0", "f1", "f2"))
    return open_store(path, rows="keep == 1", columns=named)


@pytest.mark.parametrize("name", FILES + ARRAYS)
@pytest.mark.parametrize("which", BAD)
def test_a_bad_value_of_a_row_that_is_left_out_is_no_error(
    name: str, which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_rows, "_SPAN", 16)  # so that rows lie in several spans
    bad = BAD[which]
    store = opened(written(name, bad, bad, tmp_path))
    there = np.setdiff1d(np.arange(N), bad)
    expected = np.column_stack([X[there], np.ones(len(there))]) if name == "texts.csv" else X[there]
    store.refuse_known()
    for n_rows in (1, 5, N):
        blocks = [store.read(ref) for ref in store.refs(n_rows)]
        found = np.concatenate([dense(block.X, store.n_features) for block in blocks])
        np.testing.assert_array_equal(found, expected)
        labels = np.concatenate([store.classes[block.y] for block in blocks])
        assert labels.tolist() == LABELS[there].tolist()


@pytest.mark.parametrize("name", FILES + ARRAYS)
@pytest.mark.parametrize("which", ["one", "many"])
def test_a_bad_value_of_a_chosen_row_is_refused_by_its_number(name: str, which: str, tmp_path: Path) -> None:
    """Also beside bad values that are left out."""
    left_out = [k for k in BAD[which] if k != 41]
    store = opened(written(name, [*left_out, 41], left_out, tmp_path))
    last = store.n_samples
    with pytest.raises(DataError, match="row 41 "):
        store.read(BlockRef(0, last, 0))
    before = int(np.searchsorted(store.store_rows(0, last), 41))
    assert store.read(BlockRef(0, before, 0)).n_rows == before
    assert store.read(BlockRef(before + 1, last, 0)).n_rows == last - before - 1


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_the_remedy_of_a_missing_value_is_one(name: str, tmp_path: Path) -> None:
    """The error of a fit says which rows to leave out, and a fit without these rows gives the model of the others."""
    path = written(name, BAD["one"], [], tmp_path)
    options = {"label": "label", "columns": ["f0", "f1", "f2"], "memory": "300MiB", "tol": 1e-6}
    with pytest.raises(DataError, match="row 30 holds a null") as error:
        bigsvm.fit(str(path), **options)
    assert "rows='`f1` is not null'" in str(error.value)
    there = np.setdiff1d(np.arange(N), BAD["one"])
    found = bigsvm.fit(str(path), rows="`f1` is not null", **options)
    expected = bigsvm.fit((X[there], LABELS[there]), memory="300MiB", tol=1e-6)
    np.testing.assert_array_equal(found.model.coef, expected.model.coef)


def test_a_row_group_is_not_read_anew_for_each_bad_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt to read across a bad value began at the row group again: time grew with the square of the rows."""
    path, bad = tmp_path / "rows.parquet", list(range(10, 4000, 50))
    hole = np.isin(np.arange(4000), bad)
    columns = {
        "x": pa.array(RNG.normal(size=4000), mask=hole),
        "label": np.arange(4000) % 2,
        "keep": (~hole).astype(int),
    }
    pyarrow.parquet.write_table(pa.table(columns), path)
    store = open_store(path, rows="keep == 1", columns=("x",), label="label")
    begun, read = [], parquet_files._read
    monkeypatch.setattr(parquet_files, "_read", lambda *given: begun.append(given) or read(*given))
    for ref in store.refs(500):
        store.read(ref)
    assert 0 < len(begun) <= 4
