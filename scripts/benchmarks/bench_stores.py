#!/usr/bin/env python3
"""MB/s decoded of every format, beside the library that it is read by, alone.

The same rows, sparse and dense, lie in each format.  Ours reads all blocks of the open rows, as staging does: labels
too, digests, order of columns and finite values checked.  The library alone decodes the same columns or arrays, in the
type that ours has (float32, of CSV float64), in the way that is fastest for it in bounded memory, and does nothing with
them.  Where what it decodes is columns and not rows, it also makes rows of them by its own means, Arrow's `to_tensor`.
Where it is lists, it also gives what ours gives: each array of a block in one piece, so in batches as long as a block.
All run on one core and in one thread, in turns, in one process, files in the page cache, nothing kept from the reading
before, and freed memory given back as in every job.  MB/s counts the bytes that the rows take decoded, and seconds in
which the core worked for this process.  Others on the machine still slow it down, by its caches: so a ratio is of two
readings that followed each other, and of all such pairs the median is told, with the least and the largest.  The speed
of the machine is told as it was before each format.

    scripts/benchmarks/bench_stores.py --figures docs/figures/stores.json      # or --smoke
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import zarr
from bench.machine_speed import machine_speed
from bench.passages import store_rates
from bench.record import commit, meter, write_figures

import bigsvm
from bigsvm.machine import return_freed_memory
from bigsvm.store.blocks import RowBlocks, row_bytes
from bigsvm.store.formats.opener import open_store

MB = 1e6
PIECE = 4 << 20  # decoded bytes that are read at a time, by both
WIDTH = 30_000


class Rows(NamedTuple):
    """Sparse rows, dense ones, and the labels of both."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    dense: np.ndarray
    labels: np.ndarray


class Format(NamedTuple):
    """title : as the table has it;  library : what reads it alone;  name : of the file;  write, alone : do so

    by_rows : the library alone, which makes rows of what it decodes
    """

    title: str
    library: str
    name: str
    write: Callable[[Path, Rows], None]
    alone: Callable[[Path], None]
    by_rows: Callable[[Path], None] | None = None


def make_rows(n_bytes: int) -> Rows:
    """About `n_bytes` of sparse rows of 300 entries, and as many of dense rows of 128 columns."""
    rng = np.random.default_rng(0)
    n, each = max(n_bytes // 2400, 50), 300
    indices = np.cumsum(rng.integers(1, WIDTH // each, (n, each), np.int32), axis=1, dtype=np.int32)
    data = np.round(rng.random((n, each), np.float32) + 0.1, 3)
    labels = rng.integers(0, 2, n)
    dense = rng.standard_normal((max(n * each // 64, 50), 128), np.float32)
    return Rows(data.ravel(), indices.ravel(), np.arange(n + 1, dtype=np.int64) * each, dense, labels)


# -- Zarr and HDF5


def anndata(root: Any, create: Callable[[Any, str, np.ndarray], None], rows: Rows) -> None:
    """AnnData's tree of sparse rows."""
    root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    matrix = root.create_group("X")
    matrix.attrs.update({"encoding-type": "csr_matrix", "shape": [len(rows.labels), WIDTH]})
    for name in ("data", "indices", "indptr"):
        create(matrix, name, getattr(rows, name))
    frame = root.create_group("obs")
    frame.attrs.update({"encoding-type": "dataframe", "column-order": ["label"]})
    create(frame, "label", rows.labels)


def zarr_anndata(**options: Any) -> Callable[[Path, Rows], None]:
    """Writes AnnData by zarr, with options of `create_array`; `version` of the format."""
    version = options.pop("version", 3)

    def write(path: Path, rows: Rows) -> None:
        def create(group: Any, name: str, values: np.ndarray) -> None:
            whole = {"write_empty_chunks": True}
            group.create_array(name, data=values, config=whole, **{"chunks": (min(125_000, len(values)),), **options})

        anndata(zarr.create_group(path, zarr_format=version), create, rows)

    return write


def h5ad(**options: Any) -> Callable[[Path, Rows], None]:
    """Writes AnnData by h5py, with options of `create_dataset`."""

    def write(path: Path, rows: Rows) -> None:
        with h5py.File(path, "w") as root:
            anndata(root, lambda group, name, values: group.create_dataset(name, data=values, **options), rows)

    return write


def our_zarr(path: Path, rows: Rows) -> None:
    """What `bigsvm ingest` writes."""
    import scipy.sparse as sp

    X = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(len(rows.labels), WIDTH))
    bigsvm.ingest((X, rows.labels), path)


def our_dense(path: Path, rows: Rows) -> None:
    """What `bigsvm ingest` writes of dense rows."""
    bigsvm.ingest((rows.dense, np.resize(rows.labels, len(rows.dense))), path)


def by_zarr(path: Path) -> None:
    """All arrays of X, some chunks at a time."""
    X = zarr.open_group(path, mode="r", use_consolidated=False)["X"]
    for array in (X,) if hasattr(X, "shape") else (X["data"], X["indices"], X["indptr"]):
        pieces(array, (array.shards or array.chunks)[0])


def by_h5py(path: Path) -> None:
    """As `by_zarr`."""
    with h5py.File(path, "r") as root:
        for name in ("data", "indices", "indptr"):
            array = root["X"][name]
            pieces(array, array.chunks[0] if array.chunks else 1)


def pieces(array: Any, chunk: int) -> None:
    """Read an array in whole chunks, of some 4 MiB together."""
    row = array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
    step = max(PIECE // (row * chunk), 1) * chunk
    for start in range(0, array.shape[0], step):
        array[start : start + step]


# -- Parquet and tables


def lists(rows: Rows) -> dict[str, Any]:
    """Columns `indices` and `values`."""
    offsets = pa.array(rows.indptr.astype(np.int32))
    return {
        "indices": pa.ListArray.from_arrays(offsets, pa.array(rows.indices)),
        "values": pa.ListArray.from_arrays(offsets, pa.array(rows.data)),
    }


def parquet_lists(path: Path, rows: Rows) -> None:
    """Two columns of lists."""
    table = pa.table({"label": rows.labels, **lists(rows)})
    pq.write_table(table.replace_schema_metadata({"n_features": str(WIDTH)}), path)


def parquet_spark(path: Path, rows: Rows) -> None:
    """Vectors as Spark ML writes them."""
    n, found = len(rows.labels), lists(rows)
    sizes, values = pa.array(np.full(n, WIDTH, np.int32)), found["values"].cast(pa.list_(pa.float64()))
    parts = [pa.array(np.zeros(n, np.int8)), sizes, found["indices"], values]
    vectors = pa.StructArray.from_arrays(parts, ["type", "size", "indices", "values"])
    pq.write_table(pa.table({"label": rows.labels, "features": vectors}), path)


def columns(rows: Rows, n: int | None = None) -> pa.Table:
    """One column a feature, of dense rows."""
    some = rows.dense[:n]
    named = {f"f{j}": some[:, j] for j in range(some.shape[1])}
    return pa.table({"label": np.resize(rows.labels, len(some)), **named})


def parquet_columns(path: Path, rows: Rows) -> None:
    """One column a feature."""
    pq.write_table(columns(rows), path)


def parquet_fixed(path: Path, rows: Rows) -> None:
    """One column of lists of one length."""
    n, width = rows.dense.shape
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.dense.ravel()), width)
    pq.write_table(pa.table({"label": np.resize(rows.labels, n), "embedding": vectors}), path)


def made_rows(batch: pa.RecordBatch) -> None:
    """Arrow's own rows of a batch whose first column is the label, for NumPy; 1024 at a time are the fastest."""
    features = batch.select(batch.schema.names[1:])
    for start in range(0, batch.num_rows, 1024):
        features.slice(start, 1024).to_tensor(row_major=True).to_numpy()


def made_arrays(batch: pa.RecordBatch) -> None:
    """The values of all columns of a batch, and of lists in them, for NumPy."""
    pending = list(batch.columns)
    while pending:
        column = pending.pop()
        if pa.types.is_struct(column.type):
            pending += column.flatten()
        elif pa.types.is_nested(column.type):
            pending.append(column.flatten())
        else:
            np.from_dlpack(column)


def by_parquet(path: Path, rows: int, then: Callable[[pa.RecordBatch], object] = bool) -> None:
    """All columns, in batches of `rows`; with many columns, small buffers are the fastest."""
    narrow = len(pq.read_schema(path)) < 10
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20 if narrow else 1 << 16) as file:
        for batch in file.iter_batches(rows, use_threads=False):
            then(batch)


def csv(path: Path, rows: Rows) -> None:
    """A header and numbers."""
    pyarrow.csv.write_csv(columns(rows, max(len(rows.dense) // 8, 50)), path)


def by_csv(path: Path, then: Callable[[pa.RecordBatch], object] = bool) -> None:
    """All columns as float64, in blocks."""
    with pyarrow.csv.open_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=PIECE),
        convert_options=pyarrow.csv.ConvertOptions(column_types={f"f{j}": pa.float64() for j in range(128)}),
    ) as reader:
        for batch in reader:
            then(batch)


def feather(path: Path, rows: Rows) -> None:
    """As pandas writes it: lz4."""
    pyarrow.feather.write_feather(columns(rows), path)


def by_feather(path: Path, then: Callable[[pa.RecordBatch], object] = bool) -> None:
    """All batches; what is done with them is done piece by piece."""
    with pa.memory_map(str(path)) as source:
        file = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(use_threads=False))
        for number in range(file.num_record_batches):
            batch = file.get_batch(number)
            for start in range(0, batch.num_rows, 8192):
                then(batch.slice(start, 8192))


_BLOSC = {"compressors": zarr.codecs.BloscCodec(cname="zstd", clevel=3)}
FORMATS = [
    Format("Zarr of `ingest`, sparse", "zarr", "ours.zarr", our_zarr, by_zarr),
    Format("Zarr of `ingest`, dense", "zarr", "dense.zarr", our_dense, by_zarr),
    Format("AnnData, Zarr 3, zstd", "zarr", "zstd.zarr", zarr_anndata(), by_zarr),
    Format("AnnData, Zarr 3, blosc", "zarr", "blosc.zarr", zarr_anndata(**_BLOSC), by_zarr),
    Format("AnnData, Zarr 3, shards", "zarr", "sharded.zarr",
           zarr_anndata(chunks=(65_536,), shards=(1 << 20,)), by_zarr),
    Format("AnnData, Zarr 2, blosc", "zarr", "v2.zarr", zarr_anndata(version=2), by_zarr),
    Format("`.h5ad`, not compressed", "h5py", "plain.h5ad", h5ad(), by_h5py),
    Format("`.h5ad`, gzip", "h5py", "gzip.h5ad", h5ad(chunks=True, compression="gzip"), by_h5py),
    Format("`.h5ad`, lzf", "h5py", "lzf.h5ad", h5ad(chunks=True, compression="lzf"), by_h5py),
    # Batches of lists of a MiB are the fastest, as they stay in the core's cache, and of columns those of 8192 rows.
    # A block of ours has 4 MiB: 1736 rows of 2416 bytes, 1159 of 3616, 8065 of 520.
    Format("Parquet, lists", "pyarrow", "lists.parquet", parquet_lists, partial(by_parquet, rows=436),
           partial(by_parquet, rows=1736, then=made_arrays)),
    Format("Parquet, Spark vectors", "pyarrow", "spark.parquet", parquet_spark, partial(by_parquet, rows=290),
           partial(by_parquet, rows=1159, then=made_arrays)),
    Format("Parquet, one column a feature", "pyarrow", "columns.parquet", parquet_columns,
           partial(by_parquet, rows=8192), partial(by_parquet, rows=8192, then=made_rows)),
    Format("Parquet, fixed lists", "pyarrow", "fixed.parquet", parquet_fixed, partial(by_parquet, rows=2048),
           partial(by_parquet, rows=8065, then=made_arrays)),
    Format("CSV", "pyarrow", "rows.csv", csv, by_csv, partial(by_csv, then=made_rows)),
    Format("Feather", "pyarrow", "rows.feather", feather, by_feather, partial(by_feather, then=made_rows)),
]  # fmt: skip


def ours(rows: RowBlocks) -> int:
    """Read all blocks; their bytes."""
    step, total = max(int(PIECE / row_bytes(rows)), 1), 0
    for ref in rows.refs(step):
        total += rows.read(ref).nbytes
        rows.release(ref)
    return total


def measure(one: Format, path: Path, repeats: int) -> dict[str, Any]:
    """Rates of all, and ratios of the readings of one turn, after one turn that does not count."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store = open_store(path)
    readers: dict[str, Callable[[], Any]] = {"ours": partial(ours, store), "alone": partial(one.alone, path)}
    if one.by_rows is not None:
        readers["rows"] = partial(one.by_rows, path)
    nbytes, speed = ours(store), machine_speed(path)
    seconds: dict[str, list[float]] = {who: [] for who in readers}
    for number in range(-1, repeats):
        turns = list(readers.items())
        for who, read in turns if number % 2 == 0 else turns[::-1]:
            store.forget()
            pa.default_memory_pool().release_unused()
            began = time.process_time()
            read()
            if number >= 0:
                seconds[who].append(time.process_time() - began)
    row: dict[str, Any] = {
        "format": one.title, "library": one.library, "decoded_bytes": nbytes, "gather_ns": round(speed.gather_ns, 2),
        **{f"{who}_mb_per_s": round(nbytes / statistics.median(times) / MB, 1) for who, times in seconds.items()},
    }  # fmt: skip
    for who in list(readers)[1:]:
        found = sorted(theirs / mine for mine, theirs in zip(seconds["ours"], seconds[who], strict=True))
        row[f"over_{who}"] = [round(ratio, 3) for ratio in (statistics.median(found), found[0], found[-1])]
    return row


def main() -> None:
    """Write, measure, and show the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=96, help="of the sparse rows, decoded")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", default="", help="formats whose title has this in it")
    parser.add_argument("--figures", type=Path, help="JSON file, as scripts/figures.py reads it")
    parser.add_argument("--work", type=Path, help="folder for the files")
    parser.add_argument("--smoke", action="store_true", help="a MB of some formats, once")
    options = parser.parse_args()
    if options.smoke:
        options.mb, options.repeats = 1, 1
    return_freed_memory()  # as every job does, of both
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    some = FORMATS[1::4] if options.smoke else FORMATS
    rows, found = make_rows(int(options.mb * MB)), []
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        for one in (each for each in some if options.only in each.title):
            path = Path(folder) / one.name
            one.write(path, rows)
            found.append(measure(one, path, options.repeats))
            sys.stderr.write(f"{one.title}: {found[-1]['over_alone'][0]:.2f}\n")
    speeds = [row["gather_ns"] for row in found]
    machine = f"{meter()}; a number at a random place of 64 MiB took {min(speeds):.1f} to {max(speeds):.1f} ns"
    document = {"rows": found, "commit": commit(), "command": "", "machine": machine}
    sys.stdout.write("\n".join(store_rates(document)) + "\n")
    if options.figures:
        write_figures(options.figures, found, machine=machine)


if __name__ == "__main__":
    main()
