"""Every format keeps the contract of RowBlocks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.formats.opener import open_store
from bigsvm.testing.contracts import N_FEATURES, RowBlocksContract
from tests.store import formats

INTEGERS = ("float32", "float64", "float16", "int64", "uint8", "int8", "int16", "bool")


class _Written(RowBlocksContract):
    dtypes = ("float32", "float64", "int8", "uint8")
    layout = codec = ""

    def make(self, X, labels, weights, folder):
        path = formats.written(folder / "s.zarr", X, labels, weights, layout=self.layout, codec=self.codec)
        store = open_store(path)
        assert store.raw == (self.codec == "none")
        assert not store.warnings
        return store


class TestCsrLz4(_Written):
    layout, codec = "csr", "lz4"


class TestCsrZstd(_Written):
    layout, codec = "csr", "zstd"


class TestCsrRaw(_Written):
    layout, codec = "csr", "none"


class TestDenseLz4(_Written):
    layout, codec = "dense", "lz4"


class TestDenseZstd(_Written):
    layout, codec = "dense", "zstd"


class TestDenseRaw(_Written):
    layout, codec = "dense", "none"


class _Foreign(RowBlocksContract):
    dtypes = INTEGERS
    options: dict = {}
    raw = False

    def make(self, X, labels, weights, folder):
        store = open_store(formats.foreign(folder / "s.zarr", X, labels, weights, **self.options))
        assert store.raw == (self.raw and X.dtype == store.dtype)
        assert len(store.warnings) == 1
        return store


class TestV2Csr(_Foreign):
    options = {"version": 2, "layout": "csr"}


class TestV2CsrRaw(_Foreign):
    options = {"version": 2, "layout": "csr", "compressors": None}
    raw = True


class TestV2Dense(_Foreign):
    options = {"version": 2, "layout": "dense"}


class TestV2DenseRaw(_Foreign):
    options = {"version": 2, "layout": "dense", "compressors": None}
    raw = True


class TestV2DenseFortran(_Foreign):
    options = {"version": 2, "layout": "dense", "order": "F"}


class TestV3CsrDefaultCodec(_Foreign):
    options = {"layout": "csr"}


class TestV3DenseRaw(_Foreign):
    options = {"layout": "dense", "compressors": None}
    raw = True


class TestV3CsrShards(_Foreign):
    options = {"layout": "csr", "chunk": 4, "shards": (16,)}


class TestV3DenseGzip(_Foreign):
    options = {"layout": "dense", "compressors": ({"name": "gzip", "configuration": {"level": 1}},)}


class TestV3DenseSeveralChunksAcross(RowBlocksContract):
    dtypes = INTEGERS

    def make(self, X, labels, weights, folder):
        path = formats.foreign(folder / "s.zarr", X, labels, weights, layout="dense")
        import zarr

        zarr.open_group(path).create_array("X", data=X, chunks=(8, 4), overwrite=True)
        return open_store(path)


class TestParquetCsr(RowBlocksContract):
    def make(self, X, labels, weights, folder):
        told = {"n_features": str(N_FEATURES)}
        return open_store(formats.parquet(folder / "s.parquet", X, labels, weights, layout="csr", metadata=told))


class TestParquetDense(RowBlocksContract):
    dtypes = INTEGERS

    def make(self, X, labels, weights, folder):
        return open_store(formats.parquet(folder / "s.parquet", X, labels, weights, layout="dense"))


class TestParquetFixedLists(RowBlocksContract):
    dtypes = ("float32", "float64", "float16", "int16", "uint8", "int8", "bool")

    def make(self, X, labels, weights, folder):
        return open_store(formats.parquet(folder / "s.parquet", X, labels, weights, layout="fixed"))


class TestParquetSparkVectors(RowBlocksContract):
    stores_zeros = True  # of dense vectors among the sparse

    def make(self, X, labels, weights, folder):
        return open_store(formats.parquet(folder / "s.parquet", X, labels, weights, layout="spark"))


class TestParquetFolder(RowBlocksContract):
    def make(self, X, labels, weights, folder):
        for number, rows in enumerate(np.array_split(np.arange(len(X)), 3)):
            part = None if weights is None else weights[rows]
            formats.parquet(folder / f"part-{number}.parquet", X[rows], labels[rows], part, layout="dense")
        return open_store(folder)


class TestDelimitedText(RowBlocksContract):
    dtypes = ("float64", "int64", "bool")
    read_as = "float64"  # text does not say
    suffix = ".csv"

    def make(self, X, labels, weights, folder):
        return open_store(formats.table(folder / f"s{self.suffix}", X, labels, weights))


class TestTabbedGzip(TestDelimitedText):
    suffix = ".tsv.gz"


class TestArrowTable(RowBlocksContract):
    dtypes = INTEGERS

    def make(self, X, labels, weights, folder):
        return open_store(formats.table(folder / "s.feather", X, labels, weights))


class TestArrowLists(RowBlocksContract):
    def make(self, X, labels, weights, folder):
        path = formats.parquet(folder / "s.parquet", X, labels, weights, layout="csr", metadata={})
        with pa.ipc.new_file(folder / "s.arrow", pq.read_schema(path)) as file:
            file.write_table(pq.read_table(path), 10)
        path.unlink()
        return open_store(folder / "s.arrow")


class TestArraysDense(RowBlocksContract):
    dtypes = INTEGERS
    pickles_data = True

    def make(self, X, labels, weights, folder):
        return open_store((X, labels) if weights is None else (X, labels, weights))


class TestArraysCsr(TestArraysDense):
    dtypes = ("float32", "float64", "int64", "uint8", "int8", "bool")

    def make(self, X, labels, weights, folder):
        return ArrayRows(sp.csr_array(X), labels, weights)


class TestArraysOrderedBack(TestArraysDense):
    """Rows and features stored in another order, and read in the first one again."""

    names_given_rows = False

    def make(self, X, labels, weights, folder):
        rows, features = (
            np.random.default_rng(0).permutation(len(X)),
            np.random.default_rng(1).permutation(X.shape[1]),
        )
        back = None if weights is None else weights[np.argsort(rows)]
        stored = X[np.argsort(rows)][:, np.argsort(features)]
        store = ArrayRows(stored, labels[np.argsort(rows)], back, rows, features)
        store.content_fingerprint = None  # of the stored order, which is another
        return store


class TestArraysCsrOrderedBack(TestArraysOrderedBack):
    dtypes = TestArraysCsr.dtypes

    def make(self, X, labels, weights, folder):
        rows, features = (
            np.random.default_rng(0).permutation(len(X)),
            np.random.default_rng(1).permutation(X.shape[1]),
        )
        back = None if weights is None else weights[np.argsort(rows)]
        stored = sp.csr_array(X[np.argsort(rows)][:, np.argsort(features)])
        store = ArrayRows(stored, labels[np.argsort(rows)], back, rows, features)
        store.content_fingerprint = None
        return store
