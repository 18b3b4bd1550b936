"""Dump undoes ingest: the text of a store has its content, and its numbers are short."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.errors import DataError, OutputError
from bigsvm.events import Event, WorkAdvanced
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.text.dump import dump, exact_decimals
from tests.store.ingested import DENSE, D, N, X, y

pytestmark = pytest.mark.usefixtures("small_parts")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_dump_and_ingest_give_the_same_content(tmp_path: Path, dtype: str, layout: str) -> None:
    bits = np.random.default_rng(3).integers(0, 2**63, (N, D), dtype=np.uint64)
    wild = (bits.view(np.float64) if dtype == "float64" else bits.astype(np.uint32).view(np.float32)).copy()
    wild[~np.isfinite(wild) | (DENSE == 0)] = 0
    wild[-1, -1] = 1
    labels = np.random.default_rng(6).choice([-1.5, 0.0, 2.0], N)
    source = (sp.csr_array(wild) if layout == "csr" else wild, labels)
    first = ingest(source, tmp_path / "a")
    report = dump(open_store(tmp_path / "a", task="classification"), tmp_path / "a.svm", block_rows=33)
    assert report["warnings"] == []
    assert report["bytes"] == (tmp_path / "a.svm").stat().st_size
    second = ingest(tmp_path / "a.svm", tmp_path / "b", dtype=dtype)
    assert second["content_fingerprint"] == first["content_fingerprint"]


def test_dump_of_targets_weights_and_an_empty_last_column(tmp_path: Path) -> None:
    targets = np.random.default_rng(6).normal(size=N)
    wide = np.hstack([DENSE, np.zeros((N, 2), np.float32)])
    ingest((wide, targets), tmp_path / "a", task="regression", sample_weight=np.ones(N))
    report = dump(open_store(tmp_path / "a", task="regression"), tmp_path / "a.svm")
    assert len(report["warnings"]) == 2
    assert "weights" in report["warnings"][0]
    assert "--n-features 42" in report["warnings"][1]
    ingest(tmp_path / "a.svm", tmp_path / "b", task="regression", n_features=42)
    store = open_store(tmp_path / "b", task="regression")
    assert store.n_features == 42
    assert np.array_equal(np.concatenate([store.read(ref).y for ref in store.refs(64)]), targets)


def test_dump_writes_numbers_as_people_do(tmp_path: Path) -> None:
    values = [
        1,
        0.1,
        -2.5,
        1e15,
        1e16,
        1.5e20,
        1e-4,
        1.25e-5,
        123456.75,
        5e-324,
        1.7976931348623157e308,
        0.1 + 0.2,
    ]
    ingest((np.array([values]), [2.5]), tmp_path / "a")
    dump(open_store(tmp_path / "a", task="classification"), tmp_path / "a.svm")
    label, *entries = (tmp_path / "a.svm").read_text().split()
    texts = [entry.partition(":")[2] for entry in entries]
    assert label == "2.5"
    assert [entry.partition(":")[0] for entry in entries] == [str(k) for k in range(1, 13)]
    assert [float(text) for text in texts] == values
    assert texts == ["1", "0.1", "-2.5", "1000000000000000", "1e16", "1.5e20", "0.0001", "1.25e-5",
                     "123456.75", "5e-324", "1.7976931348623157e308", "0.30000000000000004"]  # fmt: skip


def test_dump_to_standard_output(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    ingest((np.array([[0.5, 0.0], [0.0, 3.0]], np.float32), [1, -1]), tmp_path / "a")
    dump(open_store(tmp_path / "a"), "-")
    assert capfdbinary.readouterr().out == b"1 1:0.5\n-1 2:3\n"


def test_dump_leaves_nothing_half_made(tmp_path: Path) -> None:
    ingest((X, y), tmp_path / "a")
    store = open_store(tmp_path / "a")
    (tmp_path / "there").write_text("mine")
    with pytest.raises(OutputError, match="exists"):
        dump(store, tmp_path / "there")
    with pytest.raises(OutputError):
        dump(store, tmp_path / "there" / "out")

    def observer(event: Event) -> None:
        if isinstance(event, WorkAdvanced):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dump(store, tmp_path / "out", emit=observer)
    ingest((X, np.array(["a", "b"])[y // 3]), tmp_path / "named")
    with pytest.raises(DataError, match="not numbers"):
        dump(open_store(tmp_path / "named"), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "named", "there"]
    assert dump(store, tmp_path / "there", overwrite=True)["n_samples"] == N


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_decimals_are_short_and_exact(dtype: type[np.floating]) -> None:
    bits = np.random.default_rng(1).integers(0, 2**64, 20_000, dtype=np.uint64)
    wild = (bits >> np.uint64(32)).astype(np.uint32).view(np.float32) if dtype is np.float32 else bits.view(dtype)
    round_ones = np.random.default_rng(2).integers(-999, 999, 20_000) / 10.0 ** (np.arange(20_000) % 30)
    values = np.concatenate([wild[np.isfinite(wild)], round_ones.astype(dtype), np.array([0, 1, 2**20], dtype)])
    mantissas, exponents = exact_decimals(values)
    texts = [f"{m}e{e}" for m, e in zip(mantissas.tolist(), exponents.tolist(), strict=True)]
    assert np.array_equal(np.array([float(text) for text in texts]).astype(dtype), np.abs(values))
    shortest = [
        len(np.format_float_scientific(v, trim="-").partition("e")[0].replace(".", "").strip("-")) for v in values
    ]
    longer = sum(len(str(m)) > n for m, n in zip(mantissas.tolist(), shortest, strict=True))
    assert longer <= len(values) / 1000
