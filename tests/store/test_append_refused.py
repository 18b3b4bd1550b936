"""Rows that may not join a sealed store, and full disks: the store stays as it was, and the reason is named."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr

from bigsvm.errors import BigSVMError, DataError, OutputError
from bigsvm.files import space
from bigsvm.store.ingest import label_spool
from bigsvm.store.ingest.appending.grown_store import GrownStore
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.sealing.manifest import FORMER
from bigsvm.store.sealing.seal import seal
from tests.products import pairs_of
from tests.store.appended import WIDTH, files_of, rows


def _text(path: Path, line: str) -> str:
    path.write_text(line + "\n")
    return str(path)


REFUSED: dict[str, tuple[Callable[[Path], Any], dict[str, Any], str]] = {
    "wider": (
        lambda _: (sp.csr_matrix(np.ones((2, WIDTH + 1), np.float32)), [1, -1]),
        {},
        "13 features, but the store",
    ),
    "narrower": (
        lambda _: (sp.csr_matrix(np.ones((2, 3), np.float32)), [1, -1]),
        {},
        "3 features, but the store has 12",
    ),
    "wide text": (lambda folder: _text(folder / "w.svm", "1 1:1 99:2"), {}, "99"),
    "dense": (lambda _: (np.ones((2, WIDTH), np.float32), [1, -1]), {}, "rows are dense, but the store is sparse"),
    "float64": (lambda _: (sp.csr_matrix(np.ones((2, WIDTH))), [1, -1]), {}, "values are float64"),
    "weights": (lambda _: (rows(2)[0], [1, -1]), {"sample_weight": [1.0, 2.0]}, "have weights, but the store has none"),
    "strings": (lambda _: (rows(2)[0], ["a", "b"]), {}, "mix numbers and strings"),
    "no label": (lambda folder: _text(folder / "n.svm", " 1:1"), {}, "label"),
    "task": (lambda _: rows(2), {"task": "regression"}, "the store holds classes"),
    "n_features": (lambda _: rows(2), {"n_features": 40}, "the store has 12"),
    "overwrite": (lambda _: rows(2), {"overwrite": True}, "exclude each other"),
    "itself": (lambda folder: str(folder / "s.zarr"), {}, "is the source itself"),
    "nothing": (lambda _: (sp.csr_matrix((0, WIDTH), dtype=np.float32), np.zeros(0)), {}, "there are no rows"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_by_name_and_nothing_changes(case: str, tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    ingest(rows(20), path)
    before = {name: (path / name).read_bytes() for name in files_of(path)}
    make, options, says = REFUSED[case]
    source = make(tmp_path)
    with pytest.raises(BigSVMError) as caught:
        ingest(source, path, append=True, **options)
    assert says in str(caught.value)
    assert {name: (path / name).read_bytes() for name in files_of(path)} == before
    assert not (path / FORMER).exists()
    assert [entry.name for entry in tmp_path.iterdir() if ".tmp-" in entry.name] == []


def _table(folder: Path, dtype: str) -> pa.Table:
    return pa.table({"label": [0, 1], **{f"f{j}": np.arange(2).astype(dtype) for j in range(3)}})


def _zarr(folder: Path, dtype: str) -> Path:
    group = zarr.open_group(folder / "x.zarr", mode="w")
    group.create_array("X", data=np.ones((2, 3), dtype))
    group.create_array("obs/label", data=np.arange(2))
    return folder / "x.zarr"


def _parquet_lists(folder: Path, dtype: str) -> Path:
    offsets, values = pa.array([0, 1, 2], pa.int32()), pa.array(np.arange(2).astype(dtype))
    lists = {"indices": pa.array([0, 2], pa.int32()), "values": values}
    columns = {name: pa.ListArray.from_arrays(offsets, of) for name, of in lists.items()}
    pq.write_table(pa.table({"label": [0, 1], **columns}), folder / "x.parquet")
    return folder / "x.parquet"


CAME_AS: dict[str, Callable[[Path, str], Any]] = {
    "arrays": lambda _, dtype: (np.ones((2, 3), dtype), [0, 1]),
    "sparse": lambda _, dtype: (sp.csr_matrix(np.ones((2, 3), dtype)), [0, 1]),
    "dask": lambda _, dtype: (da.ones((2, 3), dtype=dtype), da.arange(2)),
    "parquet": lambda folder, dtype: (
        pq.write_table(_table(folder, dtype), folder / "x.parquet") or folder / "x.parquet"
    ),
    "feather": lambda folder, dtype: (
        pa.feather.write_feather(_table(folder, dtype), folder / "x.feather") or folder / "x.feather"
    ),
    "lists": _parquet_lists,
    "zarr": _zarr,
}


READ = [
    ("int32", "int32, which are read as float64,"),
    ("uint64", "uint64, which are read as float64,"),
    ("float64", "float64"),
]


@pairs_of(form=CAME_AS, dtype__read=READ)
def test_values_that_do_not_fit_are_told_as_they_came(form: str, dtype: str, read: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.zarr"
    layout = sp.csr_matrix if form in ("sparse", "lists") else np.asarray
    ingest((layout(np.ones((2, 3), np.float32)), [0, 1]), path)
    with pytest.raises(DataError) as caught:
        ingest(CAME_AS[form](tmp_path, dtype), path, append=True)
    assert caught.value.what == f"the values are {read} but the store holds float32, which would round them"


def test_stores_that_are_not_of_ingest_are_left_alone(tmp_path: Path) -> None:
    with pytest.raises(BigSVMError, match="no such store"):
        ingest(rows(3), tmp_path / "none.zarr", append=True)
    path = tmp_path / "s.zarr"
    ingest(rows(20), path)
    (path / "bigsvm-manifest.json").unlink()
    with pytest.raises(DataError, match="sealed stores of bigsvm ingest"):
        ingest(rows(3), path, append=True)
    seal(path)  # nobody knows the content of what was sealed afterwards
    with pytest.raises(DataError, match="not as ingest wrote it"):
        ingest(rows(3), path, append=True)


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("step", ["the folder", "the spool of labels", "an array"])
def test_a_disk_that_is_full_before_the_first_row_leaves_the_store_as_it_was(
    step: str, task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.zarr"
    ingest(rows(20), path, task=task)
    before = {name: (path / name).read_bytes() for name in files_of(path)}

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device", "x")

    if step == "the folder":
        monkeypatch.setattr(Path, "mkdir", full)
    elif step == "an array":
        monkeypatch.setattr(GrownStore, "_resume", full)
    elif task == "regression":
        return  # targets are not spooled
    else:
        monkeypatch.setattr(label_spool, "open", full, raising=False)
    with pytest.raises(OutputError, match="cannot write: No space left on device") as caught:
        ingest(rows(5), path, append=True)
    assert caught.value.where == str(path)
    monkeypatch.undo()
    assert [found.name for found in tmp_path.iterdir()] == ["rows.zarr"]
    assert before == {name: (path / name).read_bytes() for name in files_of(path)}


@pytest.mark.parametrize(("inodes", "said"), [(0, "no inode is free"), (5, "8192 are free")])
def test_a_full_disk_says_what_lacks(inodes: int, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = os.statvfs_result((4096, 4096, 9, 2, 2, 9, inodes, inodes, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: found)
    assert said in str(space.cannot_write(tmp_path / "x", OSError(28, "No space left on device")))
