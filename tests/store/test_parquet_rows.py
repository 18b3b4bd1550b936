"""Parquet: what the contract does not ask of every format."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError, MissingInput
from bigsvm.store.formats import parquet_files
from bigsvm.store.formats.opener import open_store
from bigsvm.store.formats.parquet_rows import ParquetRows
from bigsvm.store.formats.tables.column_choice import index_columns
from bigsvm.testing.contracts import dense, example
from tests.store import formats

X, LABELS = example()


def write(path: Path, **columns: object) -> ParquetRows:
    pq.write_table(pa.table(columns), path)
    return ParquetRows(str(path))


def vectors(*types: int) -> pa.Array:
    """Spark's, of size 2 and one entry, dense ones of two."""
    rows = [{"type": t, "size": 2, "indices": [1], "values": [3.0] if t == 0 else [0.0, 3.0]} for t in types]
    whole, part = pa.int32(), pa.int8()
    fields = {"type": part, "size": whole, "indices": pa.list_(whole), "values": pa.list_(pa.float64())}
    return pa.array(rows, pa.struct(list(fields.items())))


def read_all(store: ParquetRows) -> None:
    assert store.classes is not None
    for ref in store.refs(5):
        store.read(ref)


def test_rows_are_read_without_pandas(tmp_path: Path) -> None:
    """pyarrow imports it on the way to NumPy: some 40 MiB, in the middle of a fit whose budget knows of none."""
    if importlib.util.find_spec("pandas") is None:
        pytest.skip("pandas is not installed")
    for layout in ("csr", "spark", "fixed", "dense"):
        formats.parquet(tmp_path / f"{layout}.parquet", X, LABELS, np.ones(len(X)), layout=layout)
    formats.table(tmp_path / "table.csv", X, LABELS)
    names = "".join(f"{k},{'ab'[k % 2]},{k % 3}\n" for k in range(30))
    for kind in ("csv", "tsv"):  # the first has categories, the second hashes
        (tmp_path / f"names.{kind}").write_text(("x,city,label\n" + names).replace(",", "," if kind == "csv" else "\t"))
    read = (
        "import sys; from bigsvm.store.formats.opener import open_store\n"
        "for path in sys.argv[1:]:\n"
        "    store = open_store(path, hash_bits=4 if path.endswith('.tsv') else None)\n"
        "    store.classes; [store.read(ref) for ref in store.refs(9)]\n"
        "    assert 'pandas' not in sys.modules, path"
    )
    command = [sys.executable, "-c", read, *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_width_is_found_or_told(tmp_path: Path) -> None:
    narrow = np.pad(X[:, :4], ((0, 0), (0, 3)))
    path = formats.parquet(tmp_path / "a.parquet", narrow, LABELS)
    assert ParquetRows(str(path)).n_features == 4
    assert ParquetRows(str(path)).nnz == np.count_nonzero(narrow)
    told = formats.parquet(tmp_path / "b.parquet", narrow, LABELS, metadata={"n_features": "7"})
    assert ParquetRows(str(told)).n_features == 7
    short = formats.parquet(tmp_path / "c.parquet", narrow, LABELS, metadata={"n_features": "3"})
    with pytest.raises(DataError, match="index 3"):
        _ = ParquetRows(str(short)).n_features


@pytest.mark.parametrize("layout", ["csr", "dense", "spark", "fixed"])
@pytest.mark.parametrize("row_group_size", [1, 3, 8, 1000])
def test_any_row_groups_in_any_order_of_reading(layout: str, row_group_size: int, tmp_path: Path) -> None:
    big = np.vstack([X] * 4)
    labels = np.concatenate([LABELS] * 4)
    path = formats.parquet(tmp_path / "a.parquet", big, labels, layout=layout, row_group_size=row_group_size)
    store = ParquetRows(str(path))
    refs = [*store.refs(5), *store.refs(64), *reversed(store.refs(7))]
    for i in [*range(len(refs)), *np.random.default_rng(0).permutation(len(refs))]:
        block = store.read(refs[i])
        np.testing.assert_array_equal(dense(block.X, X.shape[1]), big[block.start : block.stop])


def test_large_lists_and_wide_indices(tmp_path: Path) -> None:
    store = write(
        tmp_path / "a.parquet",
        label=pa.array(["a", "b", "a"]),
        indices=pa.array([[0, 2**31 + 1], [], [5]], pa.large_list(pa.int64())),
        values=pa.array([[1.5, 2.5], [], [3.5]], pa.large_list(pa.float64())),
    )
    assert store.n_features == 2**31 + 2
    assert store.index_dtype == np.int64
    assert store.dtype == np.float64
    assert store.classes.tolist() == ["a", "b"]
    block = store.read(store.refs(3)[0])
    assert isinstance(block.X, CSR)
    np.testing.assert_array_equal(block.X.indices, [0, 2**31 + 1, 5])
    np.testing.assert_array_equal(block.X.indptr, [0, 2, 2, 3])
    np.testing.assert_array_equal(block.y, [0, 1, 0])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"label": [1, None, 2], "f": [1.0, 2.0, 3.0]}, "1 of the 3 rows have no label, row 1 "),
        ({"label": [1, 1, 2], "f": [1.0, 2.0, None]}, "'f': row 2 "),
        ({"label": [1.0, 1.0, np.nan], "f": [1.0, 2.0, 3.0]}, "row 2 "),
        ({"label": [1, 2, 1], "weight": [1.0, None, 1.0], "f": [1.0, 2.0, 3.0]}, "'weight': row 1 "),
        ({"label": [1, 2, 1], "f": ["a", "b", "c"]}, "'f'"),
        ({"label": [1, 2, 1]}, "no feature"),
        ({"target": [1, 2, 1], "f": [1.0, 2.0, 3.0]}, "target, f"),
        ({"label": [1, 2], "indices": [[0], None], "values": [[1.0], [1.0]]}, "row 1 "),
        ({"label": [1, 2], "indices": [[0], [1]], "values": [[1.0], [None]]}, "row 1 "),
        ({"label": [1, 2], "indices": [[0], [None]], "values": [[1.0], [1.0]]}, "row 1 "),
        ({"label": [1, 2], "indices": [[0], [1, 2]], "values": [[1.0], [1.0]]}, "row 1 "),
        ({"label": [1, 2], "indices": [[0], [-1]], "values": [[1.0], [1.0]]}, "row 1 has index -1"),
        ({"label": [1, 2], "a": vectors(0, 2)}, "row 1 has type 2"),
        ({"label": [1, 2], "a": vectors(0, 1), "b": vectors(1, 0)}, "several columns of vectors: a, b"),
    ],
)
def test_what_cannot_be_used_is_named(columns: dict, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path)
    with pytest.raises(DataError, match=message):
        read_all(ParquetRows(str(path)))


def test_of_several_columns_of_vectors_the_one_that_spark_calls_so_is_read(tmp_path: Path) -> None:
    columns = {"probability": vectors(1, 1), "features": vectors(0, 1), "label": [1, 2]}
    store = write(tmp_path / "a.parquet", **columns)
    assert store._layout.features == ("features",)
    read_all(store)


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_an_index_of_pandas_is_no_feature(kind: str, tmp_path: Path) -> None:
    """It numbers the rows: of rows that are sorted by class it would tell the label."""
    path, said = str(tmp_path / f"a.{kind}"), b'{"index_columns": ["id", {"kind": "range"}]}'
    table = pa.table({"x": [1.0, 2.0], "id": [7, 8], "label": [0, 1]}).replace_schema_metadata({b"pandas": said})
    (pq.write_table if kind == "parquet" else pyarrow.feather.write_feather)(table, path)
    for columns, wanted in (((), [[1.0], [2.0]]), (("*",), [[1.0], [2.0]]), (("x", "id"), [[1.0, 7.0], [2.0, 8.0]])):
        store = open_store(path, columns=columns)
        assert store.read(store.refs(2)[0]).X.tolist() == wanted
        assert any("'id' was the index" in told for told in store.warnings) == (len(wanted[0]) == 1)
    assert open_store(path, labelled=False).n_features == 1
    assert open_store(path, label="id").classes.tolist() == [7, 8]
    for odd in (b"{", b"[]", b'{"index_columns": 3}', b"{}"):
        assert index_columns(table.schema.with_metadata({b"pandas": odd})) == []


def test_files_are_taken_by_name_and_must_agree(tmp_path: Path) -> None:
    for number, rows in ((2, slice(30, 53)), (1, slice(0, 30))):
        formats.parquet(tmp_path / f"{number}.parquet", X[rows], LABELS[rows], layout="dense")
    for source in (tmp_path, str(tmp_path / "[!._]*.parquet")):
        (tmp_path / "._1.parquet").write_bytes(b"of a file system")
        store = open_store(source)
        assert store.n_samples == len(X)
        np.testing.assert_array_equal(store.read(store.refs(100)[0]).X, X)
    formats.parquet(tmp_path / "3.parquet", X.astype(np.float64), LABELS, layout="dense")
    with pytest.raises(DataError, match=r"3\.parquet"):
        open_store(tmp_path)
    with pytest.raises(MissingInput):
        open_store(str(tmp_path / "none*.parquet"))


SCHEMAS: dict[str, tuple[Callable[[pa.Table], pa.Table], str | None]] = {
    "nulls allowed": (
        lambda t: t.cast(pa.schema([pa.field(one.name, one.type, nullable=False) for one in t.schema])), None
    ),
    "metadata": (lambda t: t.replace_schema_metadata({"by": "another"}), None),
    "another type": (lambda t: t.cast(pa.schema([t.schema.field(0), t.schema.field(1), pa.field("c", pa.float32())])),
                     "column 'c' is of type float, not double"),
    "a column less": (lambda t: t.drop_columns(["b"]), "no column 'b'"),
    "a column more": (lambda t: t.append_column("d", t["b"]), "there is a column 'd'"),
    "another order": (lambda t: t.select(["c", "b", "label"]), "another order"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["parquet", "feather"])
@pytest.mark.parametrize("change", SCHEMAS)
@pytest.mark.parametrize("first", [True, False])
def test_how_files_of_a_folder_differ_is_told(kind: str, change: str, first: bool, tmp_path: Path) -> None:
    """By the name of a column; what makes no other rows is read: so rows go on from one file into the next."""
    changed, said = SCHEMAS[change]
    table = pa.table({"label": LABELS, "b": X[:, 0].astype(np.float64), "c": X[:, 1].astype(np.float64)})
    tables = [table.slice(0, 20), changed(table.slice(20))] if first else [changed(table.slice(0, 20)), table.slice(20)]
    for number, one in enumerate(tables):
        path = str(tmp_path / f"{number}.{kind}")
        _ = pq.write_table(one, path) if kind == "parquet" else pa.feather.write_feather(one, path)
    if said is None:
        store = open_store(tmp_path)
        for rows in (7, 100):
            blocks = [store.read(ref) for ref in store.refs(rows)]
            np.testing.assert_array_equal(np.concatenate([block.X for block in blocks]), X[:, :2])
            assert store.classes is not None
            codes = np.concatenate([block.y for block in blocks]).astype(int)
            np.testing.assert_array_equal(store.classes[codes], LABELS)
        return
    with pytest.raises(DataError, match=rf"1\.{kind}: columns differ from those of .*0\.{kind}: ") as refused:
        open_store(tmp_path)
    assert not first or said in str(refused.value)
    assert "one schema" in refused.value.hint


def test_damage_is_refused(tmp_path: Path) -> None:
    """Each byte of pages has a checksum; the footer must parse.  Never another error, nor other numbers."""
    path = formats.parquet(tmp_path / "a.parquet", X, LABELS, layout="dense")
    content, truth = path.read_bytes(), X
    rng = np.random.default_rng(0)
    refused = 0
    for place in rng.integers(0, len(content), 150):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x40]) + content[place + 1 :])
        try:
            store = ParquetRows(str(path))
            values = np.concatenate([store.read(ref).X for ref in store.refs(20)])
        except DataError as error:
            assert str(path) in str(error)  # noqa: PT017  the others are read in vain
            refused += 1
            continue
        if store.n_features == X.shape[1]:
            np.testing.assert_array_equal(values, truth)
    assert refused > 50
    for size in (0, 3, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match=r"a\.parquet"):
            ParquetRows(str(path))


@pytest.mark.parametrize(("largest", "kind"), [(2**62, pa.int64()), (2**63 - 2, pa.int64()), (2**63 - 2, pa.uint64())])
def test_indices_of_64_bits_are_read(largest: int, kind: pa.DataType, tmp_path: Path) -> None:
    path = _two_rows(tmp_path, largest, kind)
    store = ParquetRows(str(path))
    assert store.n_features == largest + 1
    assert store.read(store.refs(2)[0]).X.indices.tolist() == [0, largest, 1]


@pytest.mark.parametrize("largest", [2**63 - 1, 2**63, 2**64 - 1])
def test_indices_beyond_are_refused_by_their_row(largest: int, tmp_path: Path) -> None:
    store = ParquetRows(str(_two_rows(tmp_path, largest, pa.uint64())))
    with pytest.raises(DataError, match=f"row 0 has index {largest}"):
        store.read(store.refs(2)[0])


def _two_rows(folder: Path, largest: int, kind: pa.DataType) -> Path:
    lists = pa.array([[0, largest], [1]], pa.list_(kind))
    pq.write_table(pa.table({"label": [1, -1], "indices": lists, "values": [[1.0, 2.0], [3.0]]}), folder / "i.parquet")
    return folder / "i.parquet"


def test_a_file_changed_under_a_reader_is_refused(tmp_path: Path) -> None:
    path = formats.parquet(tmp_path / "a.parquet", X, LABELS, layout="dense")
    store = ParquetRows(str(path))
    store.read(store.refs(10)[0])
    formats.parquet(path, X + 1, LABELS, layout="dense")
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    with pytest.raises(DataError, match="changed"):
        store.read(store.refs(10)[3])
    assert ParquetRows(str(path)).fingerprint != store.fingerprint


def test_real_iris(real_data) -> None:
    path = Path(real_data.__file__).parent / "foreign" / "iris.parquet"
    if not path.exists():
        pytest.skip("not here")
    store = ParquetRows(str(path), label="class")
    assert store.n_samples == 150
    assert len(store.classes) == 3
    read_all(store)


def test_the_first_labels_do_not_cost_a_second_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place in the files that blocks go on from is kept, although the classes are found on the way."""
    X = np.arange(400, dtype=np.float64).reshape(100, 4)
    store = open_store(
        formats.parquet(tmp_path / "t.parquet", X, np.arange(100) % 2, layout="dense", row_group_size=100)
    )
    opened = []
    real = parquet_files._read
    monkeypatch.setattr(parquet_files, "_read", lambda *given: opened.append(given[3]) or real(*given))
    blocks = [store.read(ref) for ref in store.refs(10)]
    assert [len(columns) for columns in opened] == [1, 5]  # the labels, and all columns once
    np.testing.assert_array_equal(np.concatenate([block.X for block in blocks]), X)


def test_columns_beside_one_another_in_tiles(tmp_path: Path) -> None:
    """More columns than are brought together at a time, of several types, with one block short."""
    X = np.random.default_rng(0).integers(0, 100, (23, 35))
    columns = {f"f{j}": X[:, j].astype(np.float64 if j % 2 else np.int16) for j in range(35)}
    pq.write_table(pa.table({"label": np.arange(23) % 2, **columns}), tmp_path / "wide.parquet", row_group_size=9)
    store = open_store(tmp_path / "wide.parquet")
    np.testing.assert_array_equal(np.concatenate([store.read(ref).X for ref in store.refs(10)]), X)
