"""The writer: what it writes, how much it holds, and that nothing shows before it is done."""

from __future__ import annotations

import builtins
import errno
import os
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError, OutputError, UsageError
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.formats.zarr_rows import ZarrRows
from bigsvm.store.ingest.label_spool import LabelSpool
from bigsvm.store.ingest.zarr_writer import ZarrWriter
from bigsvm.testing.contracts import dense, example
from tests.store import formats

X, LABELS = example()


def rows_of(path: Path) -> np.ndarray:
    store = ZarrRows(path)
    return np.concatenate([dense(store.read(ref).X, store.n_features) for ref in store.refs(9)])


def test_the_result_tells_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    with ZarrWriter(path, layout="csr", dtype="float32") as writer:
        writer.append(formats.csr(X), LABELS)
        result = writer.finish()
        assert not path.exists()
    store = ZarrRows(path)
    assert result["n_samples"] == len(X)
    assert result["n_features"] == X.shape[1]
    assert result["nnz"] == np.count_nonzero(X) == store.nnz
    assert result["labels"] == [-1, 1, 4]
    assert all(type(label) is int for label in result["labels"])
    assert result["store_fingerprint"] == store.fingerprint
    assert result["content_fingerprint"] == store.content_fingerprint == ArrayRows(X, LABELS).content_fingerprint
    assert result["bytes"] == sum(file.stat().st_size for file in path.rglob("*") if file.parent.name == "c")
    assert result["warnings"] == []
    assert [store.content["class_counts"][i] for i in (0, 1, 2)] == [int((c == LABELS).sum()) for c in (-1, 1, 4)]


@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_bytes_do_not_depend_on_how_rows_come(layout: str, tmp_path: Path) -> None:
    def content(path: Path) -> dict[str, bytes]:
        return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}

    whole = formats.written(tmp_path / "a.zarr", X, LABELS, LABELS**2, layout=layout, pieces=1)
    pieces = formats.written(tmp_path / "b.zarr", X, LABELS, LABELS**2, layout=layout, pieces=len(X))
    assert content(whole) == content(pieces)


def test_anndata_would_know_it(tmp_path: Path) -> None:
    path = formats.written(tmp_path / "s.zarr", X, LABELS, LABELS**2)
    group = zarr.open_group(path, mode="r")
    assert group.metadata.zarr_format == 3
    assert dict(group.attrs) == {"encoding-type": "anndata", "encoding-version": "0.1.0"}
    encodings = {
        "X": ("csr_matrix", "0.1.0"), "obs": ("dataframe", "0.2.0"), "var": ("dataframe", "0.2.0"),
        "obs/label": ("categorical", "0.2.0"), "obs/label/codes": ("array", "0.2.0"),
        "obs/label/categories": ("array", "0.2.0"), "obs/weight": ("array", "0.2.0"),
        "obs/_index": ("array", "0.2.0"), "var/_index": ("array", "0.2.0"),
    }  # fmt: skip
    for key, (kind, version) in encodings.items():
        attributes = dict(group[key].attrs)
        assert (attributes["encoding-type"], attributes["encoding-version"]) == (kind, version), key
    assert group["X"].attrs["shape"] == list(X.shape)
    assert group["obs"].attrs["column-order"] == ["label", "weight"]
    assert group["obs"].attrs["_index"] == group["var"].attrs["_index"] == "_index"
    np.testing.assert_array_equal(group["obs/_index"][:], np.arange(len(X)))
    np.testing.assert_array_equal(group["var/_index"][:], np.arange(X.shape[1]))
    categories = group["obs/label/categories"][:]
    np.testing.assert_array_equal(categories[group["obs/label/codes"][:]], LABELS)
    # And zarr itself reads the same numbers.
    matrix = CSR(group["X/data"][:], group["X/indices"][:], group["X/indptr"][:])
    np.testing.assert_array_equal(dense(matrix, X.shape[1]), X)
    assert [matrix.data.dtype, matrix.indices.dtype, matrix.indptr.dtype] == [np.float32, np.int32, np.int64]
    assert not [file for file in path.rglob("*") if "tmp" in file.name]


def test_string_labels(tmp_path: Path) -> None:
    names = np.array(["no", "yes", "später"])[np.arange(len(X)) % 3]
    store = ZarrRows(formats.written(tmp_path / "s.zarr", X, names))
    assert store.classes.tolist() == ["no", "später", "yes"]
    y = np.concatenate([store.read(ref).y for ref in store.refs(8)])
    np.testing.assert_array_equal(store.classes[y], names)
    assert store.content_fingerprint == ArrayRows(X, names).content_fingerprint
    assert ZarrRows(formats.written(tmp_path / "o.zarr", X, names.astype(object))).fingerprint == store.fingerprint


def test_more_classes_than_a_byte_holds(tmp_path: Path) -> None:
    labels = np.random.default_rng(0).permutation(1000).astype(np.float64)
    store = ZarrRows(formats.written(tmp_path / "s.zarr", np.ones((1000, 1), np.float32), labels))
    y = np.concatenate([store.read(ref).y for ref in store.refs(100)])
    assert y.dtype == np.int16
    np.testing.assert_array_equal(store.classes[y], labels)


@pytest.mark.parametrize("targets", [np.linspace(-1, 1, len(X)), np.arange(len(X)) * 1.0])
def test_regression_targets_stay_numbers(targets: np.ndarray, tmp_path: Path) -> None:
    store = ZarrRows(formats.written(tmp_path / "s.zarr", X, targets, task="regression"))
    assert store.classes is None
    np.testing.assert_array_equal(np.concatenate([store.read(ref).y for ref in store.refs(8)]), targets)
    assert store.content_fingerprint == ArrayRows(X, targets).content_fingerprint


@pytest.mark.parametrize("n_before", [0, 1, 9])
@pytest.mark.parametrize("codec", ["lz4", "none"])
def test_indices_beyond_int32_seen_late(codec: str, n_before: int, tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    rows = [CSR(np.ones(20, np.float32), np.arange(i, i + 20), np.array([0, 20])) for i in range(n_before)]
    far = CSR(np.ones(2, np.float32), np.array([3, 2**31 + 5]), np.array([0, 2]))
    with ZarrWriter(path, layout="csr", dtype="float32", codec=codec, chunk_bytes=128) as writer:
        for row in [*rows, far, *rows]:
            writer.append(row, np.ones(1))
        assert writer.finish()["n_features"] == 2**31 + 6
    store = ZarrRows(path)
    assert store.index_dtype == np.int64
    blocks = [store.read(ref) for ref in store.refs(1)]
    for block, row in zip(blocks, [*rows, far, *rows], strict=True):
        np.testing.assert_array_equal(block.X.indices, row.indices)
    assert not list(path.glob("X/.*"))


def test_float64_keeps_all_digits_and_float32_refuses_what_overflows(tmp_path: Path) -> None:
    wide = X.astype(np.float64) / 3
    np.testing.assert_array_equal(rows_of(formats.written(tmp_path / "d.zarr", wide, LABELS)), wide)
    wide[17, 0] = 1e300
    with pytest.raises(DataError, match="row 17 "):
        formats.written(tmp_path / "f.zarr", wide, LABELS, dtype="float32")


@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("codec", ["lz4", "none"])
def test_no_rows_and_no_values(layout: str, codec: str, tmp_path: Path) -> None:
    empty = formats.written(tmp_path / "e.zarr", X[:0], LABELS[:0], layout=layout, codec=codec, pieces=1)
    store = ZarrRows(empty)
    assert (store.n_samples, store.n_features) == (0, X.shape[1])
    assert list(store.refs(5)) == []
    zeros = formats.written(tmp_path / "z.zarr", X * 0, LABELS, layout=layout, codec=codec)
    np.testing.assert_array_equal(rows_of(zeros), X * 0)


def test_no_features(tmp_path: Path) -> None:
    store = ZarrRows(formats.written(tmp_path / "s.zarr", np.zeros((3, 0), np.float32), np.ones(3), pieces=1))
    assert store.n_features == store.nnz == 0
    assert store.read(store.refs(3)[0]).X.indptr.tolist() == [0, 0, 0, 0]
    with pytest.raises(DataError, match="without features"):
        formats.written(tmp_path / "d.zarr", np.zeros((3, 0), np.float32), np.ones(3), layout="dense")


def test_width_told_grown_and_refused(tmp_path: Path) -> None:
    with ZarrWriter(tmp_path / "a.zarr", layout="csr", dtype="float32") as writer:
        writer.append(formats.csr(X), LABELS)
        assert writer.finish(n_features=100)["n_features"] == 100
    assert ZarrRows(tmp_path / "a.zarr").n_features == 100
    with (  # noqa: PT012  the end of the writer's block is part of it, here and below
        pytest.raises(DataError, match="11 features"),
        ZarrWriter(tmp_path / "b.zarr", layout="csr", dtype="float32") as writer,
    ):
        writer.append(formats.csr(X), LABELS)
        writer.finish(n_features=10)
    with pytest.raises(DataError, match=f"row {np.flatnonzero(X[:, 10])[0]} has index 10"):
        formats.written(tmp_path / "c.zarr", X, LABELS, n_features=10, pieces=1)
    assert [p.name for p in tmp_path.iterdir()] == ["a.zarr"]


def test_nothing_shows_unless_it_was_finished(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    with ZarrWriter(path, layout="csr", dtype="float32") as writer:
        writer.append(formats.csr(X), LABELS)
    with (  # noqa: PT012
        pytest.raises(FileNotFoundError, match="input"),
        ZarrWriter(path, layout="csr", dtype="float32") as writer,
    ):
        writer.finish()
        raise FileNotFoundError("the input")  # the caller's own failure comes through as it is
    assert list(tmp_path.iterdir()) == []
    formats.written(path, X, LABELS)
    with pytest.raises(OutputError):
        formats.written(path, X, LABELS)
    formats.written(path, X[:5], LABELS[:5], overwrite=True)
    assert ZarrRows(path).n_samples == 5


def test_a_full_disk_names_the_path_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bigsvm.store.ingest import chunk_files

    class Full:
        def __init__(self, *_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

    with (  # noqa: PT012
        pytest.raises(OutputError, match="No space left"),
        ZarrWriter(tmp_path / "s.zarr", layout="csr", dtype="float32", chunk_bytes=128) as writer,
    ):
        monkeypatch.setattr(chunk_files, "open", Full, raising=False)
        writer.append(formats.csr(X), LABELS)
    assert list(tmp_path.iterdir()) == []


def test_misuse_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    for options in ({"codec": "gzip"}, {"dtype": "int32"}, {"task": "ranking"}):
        with pytest.raises(UsageError):
            formats.written(path, X, LABELS, **options)
    with pytest.raises(UsageError), ZarrWriter(path, layout="csr", dtype="float32") as writer:
        writer.append(formats.csr(X), LABELS[:-1])
    with pytest.raises(UsageError), ZarrWriter(path, layout="csr", dtype="float32") as writer:
        writer.append(formats.csr(X), LABELS, np.ones(len(X)))
    for bad in (np.nan, np.inf):
        labels = LABELS.copy()
        labels[11] = bad
        with pytest.raises(DataError, match="row 11 "):
            formats.written(path, X, labels, pieces=1)
    with (  # noqa: PT012
        pytest.raises(DataError, match="mix"),
        ZarrWriter(path, layout="csr", dtype="float32") as writer,
    ):
        writer.append(formats.csr(X), LABELS)
        writer.append(formats.csr(X), LABELS.astype(str))
    assert list(tmp_path.iterdir()) == []


def test_badly_scaled_columns_are_named(tmp_path: Path) -> None:
    scaled = np.random.default_rng(0).random((50, 8)).astype(np.float32)
    scaled[:, 6] *= 1e6
    for layout in ("csr", "dense"):
        with ZarrWriter(tmp_path / f"{layout}.zarr", layout=layout, dtype="float32") as writer:
            writer.append(formats.csr(scaled) if layout == "csr" else scaled, np.ones(50))
            (warning,) = writer.finish()["warnings"]
        assert "6" in warning
        assert "scale the features" in warning


def test_memory_is_bounded_by_the_chunks_and_not_by_the_rows(tmp_path: Path) -> None:
    """Many small appends: the arrays held are one chunk each, however many rows come."""
    chunk_bytes, n, k = 1 << 16, 40, 32
    rng = np.random.default_rng(0)

    def peak(n_appends: int, name: str = "") -> int:
        indices = np.sort([rng.choice(1000, k, replace=False) for _ in range(n)], axis=1).astype(np.int32).ravel()
        block = CSR(rng.random(n * k, dtype=np.float32), indices, np.arange(0, n * k + 1, k))
        labels, weights = rng.choice([-1.0, 1.0], n), np.ones(n)
        tracemalloc.start()
        with ZarrWriter(
            tmp_path / f"{n_appends}{name}.zarr",
            layout="csr",
            dtype="float32",
            chunk_bytes=chunk_bytes,
            has_weights=True,
        ) as writer:
            for _ in range(n_appends):
                writer.append(block, labels, weights)
            writer.finish()
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return held

    peak(10)  # imports and compilation
    small, large = peak(200), peak(2000)
    written = 2000 * n * (k * 8 + 8 + 8 + 4)
    assert written > 20e6
    if large - small >= written // 50:  # threads that earlier tests left may have allocated meanwhile
        large = min(large, peak(2000, "again"))
    assert large - small < written // 50  # a line of the manifest for each of these tiny chunks
    assert large < 16 * chunk_bytes + (4 << 20)  # zarr and JSON hold the rest


class Disk:
    """Counts what would take room: folders, files that are opened to be written, values that zarr sets.

    From the `full_at`-th on there is none.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.n, self.full_at = 0, -1
        patch.setattr(Path, "mkdir", self._counted(Path.mkdir))
        patch.setattr(LocalStore, "set", self._counted(LocalStore.set))
        patch.setattr(builtins, "open", self._counted(open, lambda _, mode="r", *more, **named: "r" not in mode))

    def _counted(self, plain: Callable[..., Any], counts: Callable[..., bool] = lambda *_, **__: True) -> Any:
        def counted(*given: Any, **named: Any) -> Any:
            if counts(*given, **named):
                self.n += 1
                if 0 < self.full_at <= self.n:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return plain(*given, **named)

        return counted


@pytest.mark.parametrize("codes", ["labels", "targets"])
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_a_disk_that_is_full_at_any_time_is_named_with_the_store_and_leaves_nothing(
    layout: Any, codes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, few = tmp_path / "s.zarr", X[:2]
    options = {"task": "classification" if codes == "labels" else "regression", "n_features": X.shape[1]}

    def write() -> None:
        with ZarrWriter(path, layout=layout, dtype=X.dtype, has_weights=True, **options) as writer:
            writer.place()
            writer.append(formats.csr(few) if layout == "csr" else few, LABELS[:2], np.ones(2))
            writer.finish()

    write()  # what a process writes once is none of the store
    shutil.rmtree(path)
    with monkeypatch.context() as patch:
        disk = Disk(patch)
        write()
    ZarrRows(path)
    path.rename(tmp_path / "whole.zarr")
    assert disk.n > 15
    for n in range(1, disk.n + 1):
        with monkeypatch.context() as patch:
            Disk(patch).full_at = n
            with pytest.raises(OutputError) as caught:
                write()
        assert caught.value.where == str(path), n
        assert caught.value.what.startswith("cannot write: No space left on device"), n
        # zarr writes some documents at one time: the last of them may come when the hidden folder was deleted.
        assert [found.name for found in tmp_path.iterdir() if found.name[0] != "."] == ["whole.zarr"], n


def test_labels_that_a_full_disk_did_not_take_are_dropped_without_another_error(tmp_path: Path) -> None:
    spool = LabelSpool(tmp_path / "codes", "s.zarr")
    with open("/dev/full", "wb") as full:
        spool.append(LABELS, 0)
        os.dup2(full.fileno(), spool._file.fileno())  # what was buffered cannot be written any more
    spool.close()
    assert list(tmp_path.iterdir()) == []
