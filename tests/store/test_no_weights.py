"""An empty name of the column of weights, `--weight ''`: rows of every source are read without weights."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

import bigsvm
from bigsvm.errors import DataError, UsageError
from tests.cli.conftest import Bigsvm
from tests.cli.conftest import bigsvm as command
from tests.store.formats import anndata

__all__ = ["command"]

OPENED = ["csv", "arrow", "parquet", "lists", "zarr", "h5ad", "ingested", "arrays"]
MADE = [*OPENED, "npz", "folder", "frame", "dask"]
RNG = np.random.default_rng(0)
X, Y, WEIGHTS = RNG.standard_normal((40, 2)), np.arange(40) % 2, RNG.uniform(0.5, 2.0, 40)


def weighted(form: str, folder: Path) -> Any:
    """A source of 40 rows with weights that are read unasked."""
    path, columns = folder / f"rows.{form}", {"label": Y, "weight": WEIGHTS}
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], **columns})
    if form in ("zarr", "h5ad"):
        if form == "h5ad":
            pytest.importorskip("h5py")
        return anndata(path, {"X": X, **{f"obs/{name}": column for name, column in columns.items()}})
    if form in ("arrays", "frame"):
        return (X if form == "arrays" else frame[["a", "b"]], Y, WEIGHTS)
    if form == "ingested":
        bigsvm.ingest((X, Y, WEIGHTS), folder / "rows.zarr")
        return folder / "rows.zarr"
    if form == "dask":
        return pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=2)
    if form == "npz":
        np.savez(path, X=X, y=Y, weight=WEIGHTS)
    elif form == "folder":
        path.mkdir()
        for name, array in {"X": X, "y": Y, "sample_weight": WEIGHTS}.items():
            np.save(path / f"{name}.npy", array)
    elif form == "lists":
        path = folder / "rows.parquet"
        lists = {"indices": [[0, 1]] * 40, "values": X.tolist(), **columns}
        pyarrow.parquet.write_table(pa.table(lists), path)
    else:
        {"csv": functools.partial(frame.to_csv, index=False), "arrow": frame.to_feather}.get(form, frame.to_parquet)(
            path
        )
    return path


def arrays_of(store: Any) -> tuple[Any, Any, Any]:
    (ref,) = store.refs(store.n_samples)
    block = store.read(ref)
    return block.X, block.y, block.sample_weight


@pytest.mark.parametrize("form", OPENED)
def test_no_weights_are_read_and_the_features_stay(form: str, tmp_path: Path) -> None:
    """A Zarr store was read with its weights in silence, and tables had no column of that name."""
    source = weighted(form, tmp_path)
    usual, without = bigsvm.open_store(source), bigsvm.open_store(source, weight="")
    assert (usual.has_weights, without.has_weights, without.weight_column) == (True, False, "")
    assert without.identity != usual.identity
    (theirs, y, weights), (ours, same, none) = arrays_of(usual), arrays_of(without)
    np.testing.assert_array_equal(weights, WEIGHTS)
    assert none is None
    np.testing.assert_array_equal(same, y)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)
    assert without.feature_names == usual.feature_names
    plain = bigsvm.fit((X, Y), loss="hinge")
    assert bigsvm.fit(source, weight="", loss="hinge").certificate.primal == pytest.approx(plain.certificate.primal)
    scored = bigsvm.open_store(source, weight="", labelled=False) if form != "arrays" else without
    assert (scored.n_features, scored.has_weights) == (2, False)


@pytest.mark.parametrize("form", MADE)
def test_ingest_leaves_weights_out(form: str, tmp_path: Path) -> None:
    source = weighted(form, tmp_path)
    assert bigsvm.ingest(source, tmp_path / "usual.zarr")["weights_from"] is not None
    told = bigsvm.ingest(source, tmp_path / "out.zarr", weight="")
    assert (told["weights_from"], told["n_features"]) == (None, 2)
    assert not bigsvm.open_store(tmp_path / "out.zarr").has_weights
    with pytest.raises(DataError, match="the rows have weights, but the store has none") as caught:
        bigsvm.ingest(source, tmp_path / "out.zarr", append=True)
    assert caught.value.hint == "weight='' leaves theirs out"
    assert bigsvm.ingest(source, tmp_path / "out.zarr", append=True, weight="")["n_samples"] == 80


@pytest.mark.parametrize("form", OPENED)
def test_the_remedy_for_weights_that_a_model_lacks_can_be_followed(form: str, tmp_path: Path, command: Bigsvm) -> None:
    model = tmp_path / "model"
    source = weighted(form, tmp_path)
    result = bigsvm.fit(source, weight="", loss="hinge")
    result.save_model(model)
    if form == "arrays":
        (said,) = bigsvm.certify(model, (X, Y, np.ones(40)))["warnings"]
        assert said.endswith("train with them, or give (X, y)")
        assert "warnings" not in bigsvm.certify(model, source, weight="")
        return
    (said,) = command("evaluate", str(model), str(source), "--json").document["warnings"]
    assert said.endswith("train with them, or read rows without: --weight ''")
    # certify reads the rows of training, and knows that it had no weights
    for name, how in (("evaluate", ["--weight="]), ("certify", ["--weight="]), ("certify", [])):
        done = command(name, str(model), str(source), *how, "--json")
        assert (done.code, done.document["warnings"]) == (0, [])
    assert bigsvm.certify(model, source)["relative_gap"] == pytest.approx(result.certificate.relative_gap)
    assert command("predict", str(model), str(source), "--weight", "", "-o", "-").code == 0


def test_certify_of_a_frame_knows_that_there_were_no_weights(tmp_path: Path) -> None:
    frame = weighted("dask", tmp_path)
    result = bigsvm.fit(frame, weight="", loss="hinge")
    result.save_model(tmp_path / "model")
    proved = bigsvm.certify(tmp_path / "model", frame)
    assert proved["relative_gap"] == pytest.approx(result.certificate.relative_gap)


def test_text_has_no_weights_to_leave_out(tmp_path: Path, command: Bigsvm) -> None:
    path = tmp_path / "rows.svm"
    path.write_text("0 1:1 2:1\n1 1:-1\n")
    bigsvm.fit((X, Y)).save_model(tmp_path / "model")
    for name in ("evaluate", "predict"):
        assert command(name, str(tmp_path / "model"), str(path), "--weight=").code == 0
    assert command("ingest", str(path), str(tmp_path / "made.zarr"), "--weight=").code == 0


@pytest.mark.parametrize("form", ["csv", "arrow", "parquet"])
def test_weight_is_a_feature_where_it_is_asked_for(form: str, tmp_path: Path) -> None:
    source = weighted(form, tmp_path)
    for weight in ("", None):
        rows = bigsvm.open_store(source, columns=("a", "weight"), weight=weight)
        assert (list(rows.feature_names or ()), rows.has_weights) == (["a", "weight"], False)


@pytest.mark.parametrize("given", [(X, Y), (X, Y, WEIGHTS), "open"])
def test_rows_without_columns_refuse_the_name_of_one(given: Any, tmp_path: Path) -> None:
    """It was passed over: the rows counted alike, or had the labels that they were opened with."""
    source = bigsvm.open_store((X, Y, WEIGHTS)) if given == "open" else given
    for name in ("weight", "label"):
        for read in (bigsvm.open_store, bigsvm.fit, lambda rows, **named: bigsvm.ingest(rows, tmp_path / "o", **named)):
            with pytest.raises(UsageError, match=name):
                read(source, **{name: "cost"})
            if given == "open" and name == "weight":
                with pytest.raises(UsageError, match=name):
                    read(source, weight="")
