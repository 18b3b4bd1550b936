"""Matrices by a binsparse descriptor, in Zarr and in HDF5: read as the rows they are, or refused by their kind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from bigsvm.errors import DataError
from bigsvm.store.formats.opener import open_store
from bigsvm.testing.contracts import dense

h5py = pytest.importorskip("h5py")

X = sp.random(30, 6, 0.4, format="csr", random_state=0, dtype=np.float32)
Y = np.arange(30) % 2


def written(path: Path, form: str, **more) -> Path:
    """X in a form, with the descriptor as an attribute; `more` goes into that."""
    matrix = {"CSR": X, "CSC": X.tocsc()}.get(form)
    parts = {"values": X.toarray().ravel()}
    if matrix is not None:
        parts = {
            "values": matrix.data,
            "indices_1": matrix.indices.astype(np.uint64),
            "pointers_to_1": matrix.indptr.astype(np.uint64),
        }
    told = {"version": "0.1", "format": form, "shape": [30, 6], "number_of_stored_values": len(parts["values"])}
    told |= {"data_types": {"values": "float32"}, **more}
    if path.suffix == ".h5ad":
        with h5py.File(path, "w") as root:
            for name, values in parts.items():
                root.create_dataset(f"X/{name}", data=values, chunks=True)
            root["X"].attrs["binsparse"] = json.dumps({"binsparse": told})
            root.create_dataset("obs/label", data=Y)
        return path
    root = zarr.create_group(path)
    group = root.create_group("X", attributes={"binsparse": told})
    for name, values in parts.items():
        group.create_array(name, data=values, chunks=(16,), config={"write_empty_chunks": True})
    root.create_group("obs").create_array("label", data=Y)
    return path


@pytest.mark.parametrize("suffix", ["zarr", "h5ad"])
@pytest.mark.parametrize("form", ["CSR", "CSC", "DMATR"])
def test_rows_are_those_of_the_matrix(form: str, suffix: str, tmp_path: Path) -> None:
    store = open_store(written(tmp_path / f"rows.{suffix}", form))
    assert store.layout == ("dense" if form == "DMATR" else "csr")
    found = np.concatenate([dense(store.read(ref).X, 6) for ref in store.refs(7)])
    np.testing.assert_array_equal(found, X.toarray())


@pytest.mark.parametrize(
    ("form", "more", "what"),
    [
        ("DMATR", {"format": "COO"}, "format COO"),
        ("CSR", {"version": "0.2"}, "version 0.2"),
        ("CSR", {"structure": "symmetric_lower"}, "structure 'symmetric_lower'"),
        ("CSR", {"fill": True}, "fill True"),
        ("CSR", {"data_types": {"values": "iso[float32]"}}, r"values are iso\[float32\]"),
        ("CSR", {"shape": [30]}, "shape"),
        ("CSR", {"shape": "wide"}, "incomplete or wrong"),
        ("CSR", {"number_of_stored_values": 3}, "descriptor says 3"),
        ("DMATR", {"format": "CSR"}, "without indices_1"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_kind(form: str, more: dict, what: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=what):
        open_store(written(tmp_path / "rows.zarr", form, **more))


def test_a_collection_of_annbatch_is_refused_with_the_way(tmp_path: Path) -> None:
    about = {"encoding-type": "annbatch-preshuffled", "encoding-version": "0.1.0"}
    zarr.create_group(tmp_path / "cells.zarr", attributes=about).create_group("dataset_0")
    with pytest.raises(DataError, match=r"annbatch collection of 1 .*--append"):
        open_store(tmp_path / "cells.zarr")
