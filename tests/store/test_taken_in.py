"""Rows that cannot be taken as they are: every format refuses them with their row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import BigSVMError, DataError
from bigsvm.store import checks
from bigsvm.store.checks import check_csr
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.formats.opener import open_store
from bigsvm.store.formats.parquet_columns import _SPARK
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.ingest.zarr_writer import ZarrWriter
from tests.store.small_rows import LABELS, SMALL, N, ingested, rows_of

# ---- a column twice in a row -------------------------------------------------------------------------------


def with_row(indices: list[int]) -> CSR:
    """N rows of two entries, but for row 17, which has those named."""
    rows = [[0, 3]] * N
    rows[17] = indices
    flat = np.concatenate(rows).astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return CSR(np.arange(1, len(flat) + 1, dtype=np.float32), flat, indptr.astype(np.int64))


def as_arrays(X: CSR, folder: Path) -> Any:
    return ArrayRows(X, LABELS, n_features=6)


def as_scipy(X: CSR, folder: Path) -> Any:
    return ArrayRows(sp.csr_matrix(X, shape=(N, 6)), LABELS)


def as_zarr(X: CSR, folder: Path, version: int = 3, **options: Any) -> Any:
    path = folder / "s.zarr"
    group = zarr.create_group(path, zarr_format=version)
    inner = group.create_group("X", attributes={"encoding-type": "csr_matrix", "shape": [N, 6]})
    config = {"write_empty_chunks": True}
    for name, values in zip(CSR._fields, X, strict=True):
        inner.create_array(name, data=np.asarray(values), chunks=(8,), config=config, **options)
    group.create_group("obs").create_array("label", data=LABELS, config=config)
    return open_store(path)


def as_shards(X: CSR, folder: Path) -> Any:
    return as_zarr(X, folder, shards=(16,))


def as_zarr_2(X: CSR, folder: Path) -> Any:
    return as_zarr(X, folder, version=2)


def as_lists(X: CSR, folder: Path) -> Any:
    offsets = pa.array(X.indptr.astype(np.int32))
    columns = {name: pa.ListArray.from_arrays(offsets, pa.array(getattr(X, part)))
               for name, part in (("indices", "indices"), ("values", "data"))}  # fmt: skip
    pq.write_table(pa.table({"label": LABELS, **columns}), folder / "s.parquet", row_group_size=10)
    return open_store(folder / "s.parquet")


def spark_file(path: Path, rows: list[dict[str, Any]]) -> Path:
    kind = pa.struct([*zip(_SPARK, (pa.int8(), pa.int32(), pa.list_(pa.int32()), pa.list_(pa.float32())), strict=True)])
    labels = LABELS[np.arange(len(rows)) % N]
    pq.write_table(pa.table({"label": labels, "features": pa.array(rows, kind)}), path, row_group_size=10)
    return path


def spark_rows(X: CSR) -> list[dict[str, Any]]:
    parts = [slice(a, b) for a, b in zip(X.indptr, X.indptr[1:], strict=False)]
    return [{"type": 0, "size": 6, "indices": X.indices[p].tolist(), "values": X.data[p].tolist()} for p in parts]


def as_vectors(X: CSR, folder: Path) -> Any:
    return open_store(spark_file(folder / "s.parquet", spark_rows(X)))


def as_ingested_arrays(X: CSR, folder: Path) -> Any:
    return ingested((X, LABELS), folder, n_features=6)


def as_ingested_npz(X: CSR, folder: Path) -> Any:
    np.savez(folder / "s.npz", shape=[N, 6], y=LABELS, **X._asdict())
    return ingested(folder / "s.npz", folder)


def as_ingested_folder(X: CSR, folder: Path) -> Any:
    (folder / "parts").mkdir()
    for name, values in {**X._asdict(), "y": LABELS}.items():
        np.save(folder / "parts" / f"{name}.npy", values)
    return ingested(folder / "parts", folder, n_features=6)


def as_ingested_parquet(X: CSR, folder: Path) -> Any:
    as_lists(X, folder)
    return ingested(folder / "s.parquet", folder)


def as_written(X: CSR, folder: Path) -> Any:
    with ZarrWriter(folder / "out.zarr", layout="csr", dtype="float32", n_features=6) as writer:
        writer.append(X, LABELS)
        writer.finish()
    return open_store(folder / "out.zarr")


SPARSE = [as_arrays, as_scipy, as_zarr, as_zarr_2, as_shards, as_lists, as_vectors, as_ingested_arrays,
          as_ingested_npz, as_ingested_folder, as_ingested_parquet, as_written]  # fmt: skip


@pytest.mark.parametrize("twice", [[2, 2], [4, 1, 4], [5, 4, 3, 3, 0]], ids=["neighbours", "apart", "falling"])
@pytest.mark.parametrize("make", SPARSE)
def test_a_column_twice_in_a_row_is_refused_with_the_row(make: Any, twice: list[int], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"row 17 has column \d twice.*sum_duplicates") as caught:
        rows_of(make(with_row(twice), tmp_path))
    assert caught.value.code == 65
    assert not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize("make", SPARSE)
def test_columns_in_any_order_are_taken(make: Any, tmp_path: Path) -> None:
    X = with_row([5, 0, 3])
    np.testing.assert_array_equal(rows_of(make(X, tmp_path)), sp.csr_matrix(X, shape=(N, 6)).toarray())


@pytest.mark.parametrize("piece", [1, 3, 1 << 20])
def test_the_check_is_that_of_its_definition(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_PIECE", piece)
    rng = np.random.default_rng(3)
    refused = 0
    for _ in range(300):
        lengths = rng.integers(0, 4, 6)
        rows = [rng.permutation(8)[:n] if rng.random() < 0.9 else rng.integers(0, 3, n) for n in lengths]
        rows = [np.sort(row) if rng.random() < 0.7 else row for row in rows]
        X = CSR(
            np.ones(lengths.sum()), np.concatenate(rows).astype(np.int32), np.concatenate([[0], np.cumsum(lengths)])
        )
        bad = [i for i, row in enumerate(rows) if len(set(row.tolist())) < len(row)]
        if not bad:
            check_csr(X, 8, "here", 100)
            continue
        refused += 1
        with pytest.raises(DataError, match=f"row {100 + bad[0]} has column"):
            check_csr(X, 8, "here", 100)
    assert 20 < refused < 280


# ---- values that are not there, in arrays ------------------------------------------------------------------


@pytest.mark.parametrize("what", ["X", "y", "sample_weight"])
@pytest.mark.parametrize("take", ["open", "ingest"])
def test_masked_values_are_refused_with_their_row(what: str, take: str, tmp_path: Path) -> None:
    given = {"X": SMALL, "y": LABELS, "sample_weight": np.ones(N)}
    open_store(tuple(np.ma.array(part) for part in given.values()))  # nothing is masked
    mask = np.zeros(given[what].shape, bool)
    mask[11] = True
    given[what] = np.ma.array(given[what], mask=mask)
    weight = given["sample_weight"]
    calls = {
        "open": lambda: open_store(tuple(given.values())),
        "ingest": lambda: ingest((given["X"], given["y"]), tmp_path / "s.zarr", sample_weight=weight),
    }
    with pytest.raises(DataError, match=f"{what}: row 11 is masked"):
        calls[take]()


@pytest.mark.parametrize(("spoil", "says"), [("value", "X: row 3 holds nan"), ("label", "y: label of row 3 is nan"),
                                             ("weight", "sample_weight: weight of row 3")])  # fmt: skip
def test_arrays_are_called_what_users_call_them(spoil: str, says: str) -> None:
    X, y, weight = SMALL.copy(), LABELS.copy(), np.ones(N)
    {"value": X[:, 0], "label": y, "weight": weight}[spoil][3] = np.nan
    with pytest.raises(BigSVMError, match=says):
        ArrayRows(X, y, weight)


# ---- Spark vectors -----------------------------------------------------------------------------------------


def spoilt_vectors(at: int, **changes: Any) -> list[dict[str, Any]]:
    rows = spark_rows(with_row([1, 2])) * 300  # more than a batch
    rows[at] = {**rows[at], **changes}
    return rows


@pytest.mark.parametrize("at", [0, 17, 9000])
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"indices": [0, 6]}, "has index 6 in a vector of size 6"),
        ({"size": 7}, "size 7"),
        ({"size": None}, "has no size"),
        ({"type": 1, "size": None, "indices": None}, "has size 2|size 6"),
    ],
)
def test_vectors_of_other_sizes_are_refused_with_their_row(at: int, changes: dict, says: str, tmp_path: Path) -> None:
    store = open_store(spark_file(tmp_path / "s.parquet", spoilt_vectors(at, **changes)))
    with pytest.raises(DataError, match=says) as caught:
        rows_of(store)
    # Where the first row is the odd one, the row after it is named beside it.
    assert f"row {at}" in str(caught.value)


def test_vectors_of_another_size_in_another_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    rows = spark_rows(with_row([1, 2]))
    spark_file(tmp_path / "many" / "a.parquet", rows)
    spark_file(tmp_path / "many" / "b.parquet", [{**row, "size": 9} for row in rows])
    with pytest.raises(DataError, match=f"row {N} has size 9"):
        rows_of(open_store(tmp_path / "many"))
