"""Rows and labels that cannot be taken as they are: every format refuses them by row, or keeps them exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr

import bigsvm
from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import BigSVMError, DataError
from bigsvm.store import checks
from bigsvm.store.checks import check_csr
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.formats.opener import open_store
from bigsvm.store.formats.parquet_columns import _SPARK
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.ingest.zarr_writer import ZarrWriter
from bigsvm.store.labels import label_bits, listed_classes
from bigsvm.store.text.dump import dump
from bigsvm.testing.contracts import dense
from tests.store import formats

N = 40
LABELS = np.where(np.arange(N) % 3 > 0, 1.0, -1.0)


def rows_of(store: Any) -> np.ndarray:
    """All rows, dense."""
    parts = [store.read(ref) for ref in store.refs(7)]
    return np.concatenate([dense(block.X, store.n_features) for block in parts])


def labels_of(store: Any) -> list[Any]:
    """The label of every row."""
    blocks = [store.read(ref) for ref in store.refs(7)]
    return store.classes[np.concatenate([block.y for block in blocks])].tolist()


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


def ingested(source: Any, folder: Path, **options: Any) -> Any:
    ingest(source, folder / "out.zarr", **options)
    return open_store(folder / "out.zarr")


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


# ---- labels beyond 2^53 ------------------------------------------------------------------------------------

BIG = {
    "int64": np.array([-(2**53) - 1, 5, 2**53, 2**53 + 1, 2**63 - 1]),
    "uint64": np.array([5, 2**53 + 1, 2**64 - 1025, 2**64 - 1], np.uint64),
}
SMALL = np.arange(N * 3, dtype=np.float32).reshape(N, 3) + 1


def plain_zarr(X: np.ndarray, labels: Any, folder: Path) -> Any:
    return open_store(formats.foreign(folder / "s.zarr", X, labels, layout="dense"))


def categorical_zarr(X: np.ndarray, labels: Any, folder: Path) -> Any:
    path = formats.foreign(folder / "s.zarr", X, LABELS, layout="dense")
    names, codes = np.unique(labels, return_inverse=True)
    group = zarr.open_group(path, mode="a")
    del group["obs/label"]
    column = group.create_group("obs/label", attributes={"encoding-type": "categorical"})
    column.create_array("codes", data=codes.astype(np.int8), config={"write_empty_chunks": True})
    column.create_array("categories", data=names, config={"write_empty_chunks": True})
    return open_store(path)


def text(X: np.ndarray, labels: Any, folder: Path) -> Any:
    lines = [
        f"{label} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(row)) for label, row in zip(labels, X, strict=True)
    ]
    (folder / "s.svm").write_text("# first\n\n" + "\n".join(lines) + "\n")
    return ingested(folder / "s.svm", folder)


def parquet(X: np.ndarray, labels: Any, folder: Path) -> Any:
    return open_store(formats.parquet(folder / "s.parquet", X, labels, layout="columns"))


def npz(X: np.ndarray, labels: Any, folder: Path) -> Any:
    np.savez(folder / "s.npz", X=X, y=labels)
    return ingested(folder / "s.npz", folder)


def parquet_ingested(X: np.ndarray, labels: Any, folder: Path) -> Any:
    parquet(X, labels, folder)
    return ingested(folder / "s.parquet", folder)


def dumped(X: np.ndarray, labels: Any, folder: Path) -> Any:
    dump(ArrayRows(X, labels), folder / "d.svm")
    return ingested(folder / "d.svm", folder)


def arrays(X: np.ndarray, labels: Any, folder: Path) -> Any:
    return ArrayRows(X, labels)


LABELLED = [arrays, plain_zarr, categorical_zarr, parquet, npz, text, parquet_ingested, dumped]


@pytest.mark.parametrize("kind", BIG)
@pytest.mark.parametrize("make", LABELLED)
def test_labels_beyond_2_53_are_kept(make: Any, kind: str, tmp_path: Path) -> None:
    labels = BIG[kind][np.arange(N) % len(BIG[kind])]
    store = make(SMALL, labels, tmp_path)
    assert store.classes.dtype == kind
    assert store.classes.tolist() == BIG[kind].tolist()
    assert labels_of(store) == labels.tolist()
    if store.content_fingerprint is not None:
        assert store.content_fingerprint == ArrayRows(SMALL, labels).content_fingerprint
    assert listed_classes(store.classes.tolist()).tolist() == BIG[kind].tolist()


@pytest.mark.parametrize("make", [arrays, plain_zarr, parquet])
def test_large_labels_that_are_no_classes_are_refused_as_targets(make: Any, tmp_path: Path) -> None:
    labels = np.arange(N) + 2**53
    store = make(SMALL, labels, tmp_path)
    source = (SMALL, labels) if make is arrays else store.uri
    with pytest.raises(DataError, match="row 1 is beyond 2"):
        rows_of(open_store(source, task="regression"))


def test_one_label_has_one_hash_in_every_type() -> None:
    for number in (0, -3, 2**53, 2**60):
        assert len({int(label_bits(np.array([number], t))[0]) for t in (np.float64, np.int64)}) == 1
    ids = np.array([2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1])
    assert len(set(label_bits(ids).tolist())) == 4
    np.testing.assert_array_equal(label_bits(ids), label_bits(ids.astype(np.uint64)))


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (["1", "9007199254740993", "0.5"], 2),
        (["1", "-9007199254740993", "18446744073709551615"], 2),
        (["1", "2", "36893488147419103233"], 3),
    ],
)
def test_text_labels_that_no_type_holds_are_refused_with_their_line(
    lines: list[str], line: int, tmp_path: Path
) -> None:
    (tmp_path / "a.svm").write_text("\n".join(f"{label} 1:1" for label in lines) + "\n")
    with pytest.raises(DataError, match=rf"a\.svm:{line}: float64 cannot hold"):
        ingest(tmp_path / "a.svm", tmp_path / "a.zarr")


def test_pieces_of_text_agree_on_a_type(tmp_path: Path) -> None:
    """Small labels come as float64 and large ones as int64, whichever come first."""
    for order in (1, -1):
        labels = [1, 2, 2**53 + 1][::order]
        files = []
        for number, label in enumerate(labels):
            files.append(tmp_path / f"{order}-{number}.svm")
            files[-1].write_text(f"{label} 1:1\n")
        ingest(files, tmp_path / f"{order}.zarr")
        assert open_store(tmp_path / f"{order}.zarr").classes.tolist() == sorted(labels)
    (tmp_path / "half.svm").write_text("0.5 1:1\n")
    with pytest.raises(DataError, match="mix whole numbers beyond"):
        ingest([files[0], tmp_path / "half.svm"], tmp_path / "mixed.zarr")


@pytest.mark.parametrize("make", [arrays, plain_zarr, categorical_zarr, parquet, npz, parquet_ingested])
def test_truth_values_stay_what_they_are(make: Any, tmp_path: Path) -> None:
    store = make(SMALL, LABELS > 0, tmp_path)
    assert store.classes.dtype == bool
    assert labels_of(store) == (LABELS > 0).tolist()
    dump(store, tmp_path / "t.svm")
    assert {line.split()[0] for line in (tmp_path / "t.svm").read_text().splitlines()} == {"0", "1"}


# ---- values that would be rounded, or are not there --------------------------------------------------------


def sparse_arrays(X: np.ndarray, labels: Any, folder: Path) -> Any:
    return ArrayRows(sp.csr_array(X), labels)


def sparse_zarr(X: np.ndarray, labels: Any, folder: Path) -> Any:
    return open_store(formats.foreign(folder / "s.zarr", X, labels))


def lists(X: np.ndarray, labels: Any, folder: Path) -> Any:
    return open_store(formats.parquet(folder / "s.parquet", X, labels))


def fixed(X: np.ndarray, labels: Any, folder: Path) -> Any:
    return open_store(formats.parquet(folder / "s.parquet", X, labels, layout="fixed"))


def vectors(X: np.ndarray, labels: Any, folder: Path) -> Any:
    return open_store(formats.parquet(folder / "s.parquet", X, labels, layout="spark"))


VALUES = [arrays, sparse_arrays, plain_zarr, sparse_zarr, parquet, lists, fixed, vectors, npz, parquet_ingested]


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("make", VALUES)
def test_whole_numbers_beyond_2_24_are_kept(make: Any, dtype: str, tmp_path: Path) -> None:
    X = (np.arange(N * 3).reshape(N, 3) + 2**24).astype(dtype)
    if dtype.endswith("64"):
        X[5, 1] = 2**53
    store = make(X, LABELS, tmp_path)
    assert store.dtype == np.float64
    np.testing.assert_array_equal(rows_of(store), X)


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1])
@pytest.mark.parametrize("make", VALUES)
def test_whole_numbers_that_float64_rounds_are_refused_with_their_row(make: Any, value: int, tmp_path: Path) -> None:
    X = np.arange(N * 3).reshape(N, 3)
    X[19, 1] = value
    if make in (sparse_arrays, sparse_zarr, lists):  # whose makers go through float64: the next even number
        X[19, 1] += 1 if value > 0 else -1
    with pytest.raises(DataError, match=r"row 19 holds -?\d+, beyond 2\^53"):
        rows_of(make(X, LABELS, tmp_path))


@pytest.mark.parametrize("take", ["open", "ingest", "predict"])
@pytest.mark.parametrize("column", ["int64", "uint64"])
def test_whole_numbers_beside_real_ones_in_a_frame_are_refused(column: str, take: str, tmp_path: Path) -> None:
    """NumPy makes real numbers of all columns."""
    pd = pytest.importorskip("pandas")
    whole = np.arange(N)
    frame = pd.DataFrame({"a": pd.array(whole, dtype=column), "b": np.arange(N) / 3})
    calls: dict[str, Any] = {
        "open": lambda: open_store((frame, LABELS)),
        "ingest": lambda: ingest((frame, LABELS), tmp_path / "rows.zarr"),
        "predict": lambda: model.predict(frame),
    }
    model = bigsvm.fit(frame, LABELS, tol=0.1).model if take == "predict" else None
    whole[19] = 2**53 + 1
    frame["a"] = pd.array(whole, dtype=column)
    with pytest.raises(DataError, match=r"column 'a': row 19 holds 9007199254740993, beyond 2\^53"):
        calls[take]()


def test_big_endian_numbers_keep_their_precision() -> None:
    X = np.linspace(0, 1, N * 3).reshape(N, 3)
    assert ArrayRows(X.astype(">f8"), LABELS).dtype == np.float64
    np.testing.assert_array_equal(rows_of(ArrayRows(X.astype(">f8"), LABELS)), X)


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
