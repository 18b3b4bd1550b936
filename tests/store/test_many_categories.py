"""Values of text columns: held once, whatever refers to them, and part of what every command asks of the budget."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pytest
import xxhash

import bigsvm
from bigsvm.compiled.shared.rows import CSR
from bigsvm.config import FitConfig
from bigsvm.errors import PlanRefused
from bigsvm.files import packed_text, sealed_json
from bigsvm.files.packed_text import text_bytes
from bigsvm.files.sealed_json import json_digest
from bigsvm.model.linear_model import load_model
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.apply.predict import predict
from bigsvm.run.fit.plan import make_plan
from bigsvm.run.proof.certify import certify_model
from bigsvm.store.formats.opener import open_store
from bigsvm.store.formats.tables import encoding
from bigsvm.store.formats.tables.encoding import Column, EncodedNames, Encoding, KnownTexts, known_texts
from bigsvm.units import MIB
from tests.products import each_of, pairs_of

N = 600
OPTIONS = {"tol": 0.1, "threads": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables with a text column of 8 MiB of different values, with one of two values, and a model of each."""
    folder = tmp_path_factory.mktemp("categories")
    for name, urls in (("long", [f"{row:06d}/" + 6000 * "p" for row in range(N)]), ("short", ["a", "b"] * (N // 2))):
        table = pa.table({"label": np.arange(N) % 2, "x": np.arange(N) / 7, "url": urls})
        pyarrow.csv.write_csv(table, folder / f"{name}.csv")
        pyarrow.feather.write_feather(table, folder / f"{name}.feather")
        bigsvm.fit(folder / f"{name}.csv", memory="256MiB", **OPTIONS).save_model(folder / f"{name}.model")
    return folder


@each_of(command=["plan", "fit", "predict", "evaluate", "certify", "ingest"], form=["csv", "feather"])
def test_values_are_part_of_the_memory_that_a_refusal_names(
    command: str, form: str, folder: Path, tmp_path: Path
) -> None:
    def least(name: str) -> int:
        data, model = folder / f"{name}.{form}", folder / f"{name}.model"
        saved = load_model(model)
        rows = open_store(data, like=saved.about["rows"])

        def call(memory: int) -> Any:
            config = FitConfig.of(memory=memory, **OPTIONS)
            if command == "plan":
                return make_plan(rows, config)
            if command == "fit":
                return bigsvm.fit(data, memory=memory, **OPTIONS)
            if command == "predict":
                return predict(saved, rows, tmp_path / "p.csv", "csv", config, overwrite=True)
            if command == "evaluate":
                return evaluate(saved, rows, config)
            if command == "certify":
                return certify_model(model, rows, config)
            return bigsvm.ingest(data, tmp_path / "o.zarr", memory=memory, overwrite=True)

        return least_of(call)

    text = N * 6007
    known_to = {"predict": 2, "evaluate": 2, "certify": 2, "ingest": 4}.get(command, 1)
    assert least("long") >= least("short") + known_to * text - 3 * MIB


def least_of(call: Callable[[int], Any]) -> int:
    """The memory that a refusal names; with it the call ends well."""
    with pytest.raises(PlanRefused) as refused:
        call(MIB // 8)
    least = refused.value.min_memory_bytes
    assert least is not None
    call(least)
    return least


@pytest.mark.parametrize("form", ["csv", "feather"])
def test_opening_a_table_holds_few_copies_of_its_values(form: str, tmp_path: Path) -> None:
    """As text and as bytes, for digests and for what is remembered, they were up to five times in memory."""
    n, path = 4000, tmp_path / f"rows.{form}"
    table = pa.table({"label": np.arange(n) % 2, "url": [f"{row:06d}/" + 5000 * "p" for row in range(n)]})
    if form == "csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.feather.write_feather(table, path, compression="uncompressed")
    for _ in range(2):  # the second time what is remembered is read
        tracemalloc.start()
        try:
            store = open_store(path)
            assert store.n_features == n
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 2.5 * 5007 * n


def test_a_document_of_many_parts_is_the_text_of_json(tmp_path: Path) -> None:
    parts = [1, 2.5, None, True, "\u00e9\n", [], {}, [[]], {"b": 1, "a": [2]}, [1] * 300, ["x"] * 64, float("inf")]
    for document in (*parts, parts, {str(k): part for k, part in enumerate(parts * 20)}, {1: [parts]}, tuple(parts)):
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        assert "".join(sealed_json._pieces_of(document)) == text
        assert json_digest(document) == xxhash.xxh3_128_hexdigest(text.encode())
        sealed_json.write_sealed(tmp_path / "d.json", document)
        assert (tmp_path / "d.json").read_bytes() == sealed_json.sealed(document)
        if document != {1: [parts]}:  # whose name is text once it is read
            assert sealed_json.read_sealed(tmp_path / "d.json") == json.loads(text)


@pytest.mark.parametrize("form", ["csv", "feather"])
def test_an_open_table_holds_each_value_once(form: str, folder: Path) -> None:
    rows: Any = open_store(folder / f"long.{form}")
    values = rows.encoding.columns[1].categories
    assert isinstance(rows.feature_names, EncodedNames)
    assert rows.feature_names[7] is not rows.feature_names[7]  # made anew: nobody holds it
    assert all(a is b for a, b in zip(values, rows.recipe["encoding"]["columns"][1][2], strict=True))
    if form == "csv":
        assert rows._files.categories("url") is None
    other: Any = open_store(folder / f"long.{form}", like=load_model(folder / "long.model").about["rows"])
    assert rows.feature_names == other.feature_names == load_model(folder / "long.model").about["rows"]["features"]
    again: Any = pickle.loads(pickle.dumps(other))
    block = [store.read(store.refs(N)[0]).X for store in (rows, other, again)]
    assert all(np.array_equal(a, b) for X in block[1:] for a, b in zip(block[0], X, strict=True))


def test_values_that_are_short_are_packed_and_found_without_a_string_of_each_row() -> None:
    values = tuple(f"{k:04d}" for k in range(3000))
    made = Encoding.of([Column("c", "category", values)], None, np.dtype(np.float32))
    rng = np.random.default_rng(0)
    asked = rng.integers(0, 4000, 5000)
    texts = pa.array([f"{k:04d}" for k in asked], pa.large_string())
    found = KnownTexts([value.encode() for value in values]).codes(texts.slice(7, 4000))
    assert np.array_equal(found, np.where(asked < 3000, asked, -1)[7:4007])
    assert isinstance(known_texts(values), KnownTexts)
    assert isinstance(known_texts([value * 100 for value in values]), dict), (
        "a second copy of long texts is not counted"
    )
    assert [call.kind for call in made.compiled_calls] == [("texts as codes",)]
    batch = pa.record_batch({"c": texts})
    assert made.count_entries([(0, batch), (5000, batch)], "") == 2 * len(made.csr(batch, "", 0).data)


@pairs_of(
    kinds=["c", "nc", "cn", "ncc", "cnnc"],
    values=[[], ["a"], ["", "b", "\u00e9", "\U0001f600"], [f"{k:03d}" for k in range(300)], ["p" * 90, "p" * 91]],
    many=[False, True],
)
def test_texts_are_coded_and_named_as_their_values_say(
    kinds: str, values: list[str], many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "MANY_BYTES", 0 if many else packed_text.MANY_BYTES)
    columns = [Column(f"k{j}", "number") if k == "n" else Column(f"k{j}", "category", tuple(values))
               for j, k in enumerate(kinds)]  # fmt: skip
    made = Encoding.of(columns, None, np.dtype(np.float32))
    plain = [name for c in columns for name in ([f"{c.name}={v}" for v in c.categories] or [c.name])]
    names = made.feature_names()
    assert names is not None
    assert list(names) == plain
    assert (text_bytes(names) > 0) == (many and bool(values))
    if values:
        assert [names[k] for k in range(len(names))] == plain
    texts = [*values[::-1], "unknown", *values[:2]]
    batch = pa.record_batch(
        {c.name: pa.array(np.arange(1.0, len(texts) + 1)) if c.kind == "number" else pa.array(texts) for c in columns}
    )
    X = made.csr(batch, "", 0)
    assert isinstance(X, CSR)
    expected = np.zeros((len(texts), len(plain)), np.float32)
    for row, text in enumerate(texts):
        for j, column in enumerate(columns):
            if column.kind == "number":
                expected[row, made.starts[j]] = row + 1
            elif text in values:
                expected[row, made.starts[j] + values.index(text)] = 1
    dense = np.zeros_like(expected)
    for row in range(len(texts)):
        dense[row, X.indices[X.indptr[row] : X.indptr[row + 1]]] = X.data[X.indptr[row] : X.indptr[row + 1]]
    assert np.array_equal(dense, expected)
