"""Names of many features: held once, as packed text, and part of what every command asks of the memory budget."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import DataError, PlanRefused
from bigsvm.files import packed_text, rows_file
from bigsvm.files.packed_text import PackedText, packed, text_bytes
from bigsvm.model.linear_model import load_model
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.apply.predict import predict
from bigsvm.run.fit.plan import make_plan
from bigsvm.run.proof.certify import certify_model
from bigsvm.store.formats.opener import open_store
from bigsvm.store.sealing.seal import seal
from bigsvm.units import MIB
from tests.products import pairs_of

N_FEATURES = 30_000
NAMES = [
    f"peak of chromosome {j:08d}, which has a name of some length \u00e9\u2713" + 140 * "x" for j in range(N_FEATURES)
]
OPTIONS = {"tol": 0.1, "threads": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`named.zarr` and `named.h5ad`, the same rows without names in `plain.zarr`, and models of both."""
    folder = tmp_path_factory.mktemp("names")
    X = sp.random_array((60, N_FEATURES), density=1e-3, rng=np.random.default_rng(4), format="csr").astype(np.float32)
    for name in ("plain", "named"):
        bigsvm.ingest((X, np.arange(60) % 2), folder / f"{name}.zarr")
    _name(zarr.open_group(folder / "named.zarr", mode="r+"))
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "named.h5ad", "w") as root:
        matrix = root.create_group("X")
        matrix.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": X.shape})
        for part in ("data", "indices", "indptr"):
            matrix.create_dataset(part, data=getattr(X, part))
        root.create_group("obs").create_dataset("label", data=np.arange(60) % 2)
        frame = root.create_group("var")
        frame.attrs["_index"] = "_index"
        frame.create_dataset("_index", data=np.array(NAMES, object), dtype=h5py.string_dtype(), chunks=(7000,))
    seal(folder / "named.zarr")
    for name in ("plain", "named"):
        bigsvm.fit(folder / f"{name}.zarr", memory="256MiB", **OPTIONS).save_model(folder / f"{name}.model")
    return folder


def _name(group: Any) -> None:
    del group["var/_index"]
    index = group.create_array("var/_index", shape=(N_FEATURES,), chunks=(7000,), dtype=str)
    index[:] = np.array(NAMES, object)


def least_of(call: Callable[[int], Any]) -> int:
    """The memory that a refusal names; with it the call ends well, and with less it is refused again."""
    with pytest.raises(PlanRefused) as refused:
        call(MIB // 8)
    least = refused.value.min_memory_bytes
    assert least is not None
    call(least)
    with pytest.raises(PlanRefused):
        call(least - MIB)
    return least


@pairs_of(command=["plan", "fit", "predict", "evaluate", "certify", "ingest"], store=["named.zarr", "named.h5ad"])
def test_names_are_part_of_the_memory_that_a_refusal_names(
    command: str, store: str, folder: Path, tmp_path: Path
) -> None:
    def least(data: str, model: str) -> int:
        rows, saved = open_store(folder / data), load_model(folder / model)

        def call(memory: int) -> Any:
            config = FitConfig.of(memory=memory, **OPTIONS)
            if command == "plan":
                return make_plan(rows, config)
            if command == "fit":
                return bigsvm.fit(folder / data, memory=memory, **OPTIONS)
            if command == "predict":
                return predict(saved, rows, tmp_path / "p.csv", "csv", config, overwrite=True)
            if command == "evaluate":
                return evaluate(saved, rows, config)
            if command == "certify":
                return certify_model(folder / model, rows, config)
            return bigsvm.ingest(folder / data, tmp_path / "o.zarr", memory=memory, overwrite=True)

        return least_of(call)

    text = sum(len(name.encode()) for name in NAMES)
    known_to = {"predict": 2, "evaluate": 2, "certify": 2, "ingest": 4}.get(command, 1)
    # The file without names is one of Zarr: reading HDF5 takes more, not less.
    assert least(store, "named.model") >= least("plain.zarr", "plain.model") + known_to * text - 2 * MIB


def test_a_model_has_the_names_and_the_weights_that_it_had(folder: Path) -> None:
    named, plain = load_model(folder / "named.model"), load_model(folder / "plain.model")
    assert np.array_equal(named.weights, plain.weights)
    assert named.about["rows"]["features"] == NAMES
    assert json.loads((folder / "named.model" / "rows.json").read_text())["features"] == NAMES
    again = load_model(folder / "named.model")
    assert again.about["rows"]["features"] is named.about["rows"]["features"]
    for store in ("named.zarr", "named.h5ad"):
        assert open_store(folder / store).feature_names == NAMES


@pairs_of(
    names=[None, [], ["a"], ["", "a\nb", 'quo"te', "\u2028", "\\"], NAMES[:3]],
    others=[{}, {"matrix": "X"}, {"a": {"b": [1, "x\ny"]}, "zz": [], "columns": ["features"]}],
    many=[False, True],
)
def test_rows_are_written_as_one_document_would_be(
    names: list[str] | None, others: dict[str, Any], many: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_text, "MANY_BYTES", 0 if many else 1 << 20)
    plain = {**others, **({} if names is None else {"features": names})}
    rows = {**others, **({} if names is None else {"features": packed([names])})}
    digest = rows_file.write_rows(tmp_path, rows)
    text = json.dumps(plain, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    assert (tmp_path / rows_file.FILE).read_bytes() == text.encode() + b"\n"
    read = rows_file.read_rows(tmp_path, {rows_file.FILE: digest})
    assert read == plain
    assert isinstance(read.get("features", []), PackedText) == (many and bool(names))


@pytest.mark.parametrize("features", ["null", "{}", "[1]", "[\n  1\n ]", '[\n  "a"\n  "b"\n ]', '[\n  "a"'])
def test_names_that_are_none_are_refused(features: str, tmp_path: Path) -> None:
    (tmp_path / rows_file.FILE).write_text(f'{{\n "features": {features}\n}}\n')
    digest = rows_file.file_digest(tmp_path / rows_file.FILE)
    with pytest.raises(DataError):
        rows_file.read_rows(tmp_path, {rows_file.FILE: digest})


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_packed_text_is_a_sequence_of_the_same_strings(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["", "\u00e9", "\U0001f600 b", "\ud800", *NAMES[:20]][:size]
    assert packed([texts[:1], texts[1:]]) == texts
    assert text_bytes(packed([texts])) == 0
    monkeypatch.setattr(packed_text, "MANY_BYTES", 0)
    found = packed([texts[:1], [], texts[1:]])
    assert isinstance(found, PackedText)
    assert list(found) == texts
    assert found == texts
    assert texts == found
    assert found != [*texts, "more"]
    assert found != [*texts[:-1], "other"]
    assert [found[k] for k in range(-len(texts), 0)] == texts
    assert found[1:3] == texts[1:3]
    assert np.array(found, dtype=object).tolist() == texts
    assert pickle.loads(pickle.dumps(found)) == texts
    assert text_bytes(found) == sum(len(t.encode("utf-8", "surrogatepass")) for t in texts) + 8 * len(texts)
    with pytest.raises(IndexError):
        found[len(texts)]


@pytest.mark.parametrize("form", ["npz", "liblinear", "onnx"])
@pytest.mark.parametrize("loaded", [True, False])
def test_a_model_with_many_names_is_exported(form: str, loaded: bool, folder: Path, tmp_path: Path) -> None:
    if form == "onnx":
        pytest.importorskip("onnx")
    fitted: Any = folder / "named.model"
    if not loaded:
        fitted = bigsvm.fit(folder / "named.zarr", memory="256MiB", **OPTIONS).model
    bigsvm.export_model(fitted, tmp_path / "m", form)
    if form == "npz":
        with np.load(tmp_path / "m", allow_pickle=False) as arrays:
            assert json.loads(str(arrays["about"]))["rows"]["features"] == NAMES


def test_a_fit_of_many_values_is_exported(tmp_path: Path) -> None:
    """Its names of features are made when they are asked for."""
    lines = ["city,label", *(f"{'x' * 40}{row:06d},{row % 2}" for row in range(8000))]
    (tmp_path / "c.csv").write_text("\n".join(lines) + "\n")
    model = bigsvm.fit(tmp_path / "c.csv", memory="256MiB", **OPTIONS).model
    assert not isinstance(model.about["rows"]["features"], list)
    bigsvm.export_model(model, tmp_path / "m.npz")
    with np.load(tmp_path / "m.npz", allow_pickle=False) as arrays:
        assert len(json.loads(str(arrays["about"]))["rows"]["features"]) == 8000
