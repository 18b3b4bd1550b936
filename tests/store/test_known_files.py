"""Files under an open store: another content is refused however it came, and the same is read however it lies."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bigsvm
from bigsvm.errors import DataError
from bigsvm.store.formats.opener import open_store
from bigsvm.store.formats.tables import known_files

N = 60
SUFFIXES = [".csv", ".csv.gz", ".parquet", ".feather", ".h5ad"]


def write(path: Path, seed: int) -> None:
    """Files of one size, whatever the seed."""
    random = np.random.default_rng(seed)
    X = np.round(random.uniform(1.0, 9.0, (N, 3)), 3) + 0.0001
    label = np.where(np.arange(N) % 2 == seed % 2, "p", "q")
    if path.suffix == ".h5ad":
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w", libver="latest") as file:
            file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
            file["X"] = X
            file["X"].attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
            obs = file.create_group("obs")
            obs.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"})
            obs.attrs["column-order"] = ["label"]
            obs["_index"], obs["label"] = np.arange(N), (label == "p").astype(np.int64)
            for name in ("_index", "label"):
                obs[name].attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
        return
    frame = pd.DataFrame(X, columns=list("abc"))
    frame["label"] = label
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False, compression=None, use_dictionary=False)
    elif path.suffix == ".feather":
        frame.to_feather(path, compression="uncompressed")
    elif path.suffix == ".gz":
        frame.to_csv(
            path, index=False, float_format="%.4f", compression={"method": "gzip", "compresslevel": 0, "mtime": 1}
        )
    else:
        frame.to_csv(path, index=False, float_format="%.4f")


def times_of(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_atime_ns, status.st_mtime_ns


def in_place(path: Path, other: Path) -> None:
    """As `cp -p`."""
    times = times_of(path)
    shutil.copyfile(other, path)
    os.utime(path, ns=times)


def by_rename(path: Path, other: Path) -> None:
    """As `rsync -t`."""
    times = times_of(path)
    shutil.copyfile(other, path.with_name("coming"))
    os.utime(path.with_name("coming"), ns=times)
    os.replace(path.with_name("coming"), path)


def rows_of(store: Any) -> tuple[Any, ...]:
    blocks = [store.read(ref) for ref in store.refs(7)]
    return store.identity, [(block.X.tolist(), block.y.tolist()) for block in blocks]


ALIKE: dict[str, Callable[[Path], None]] = {
    "chmod": lambda path: os.chmod(path, 0o640),
    "another name": lambda path: os.link(path, path.with_name("link")),
    "written again, with the former time": lambda path: in_place(path, copied(path)),
    "exchanged, with the former time": lambda path: by_rename(path, copied(path)),
}


def copied(path: Path) -> Path:
    shutil.copyfile(path, path.with_name("copy"))
    return path.with_name("copy")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("exchange", [in_place, by_rename])
def test_a_store_that_is_open_reads_no_other_file(
    tmp_path: Path, suffix: str, exchange: Callable[[Path, Path], None]
) -> None:
    """Nor does a working copy under its name: whoever fits the first file again has the first file's model."""
    path, other = tmp_path / f"rows{suffix}", tmp_path / f"rowz{suffix}"
    write(path, 0)
    write(other, 1)
    assert path.stat().st_size == other.stat().st_size
    options: dict[str, Any] = {"memory": "64MiB", "loss": "hinge", "scratch": str(tmp_path / "s")}
    first = bigsvm.fit(str(path), memory="64MiB", loss="hinge", scratch=str(tmp_path / "fresh"))
    shutil.copyfile(path, tmp_path / "kept")
    store = open_store(str(path))
    exchange(path, other)
    with pytest.raises(DataError, match="the file changed since it was opened"):
        bigsvm.fit(store, **options)
    with pytest.raises(DataError, match="the file changed since it was opened"):
        rows_of(store)
    exchange(path, tmp_path / "kept")
    assert bigsvm.fit(str(path), **options).model.coef.tobytes() == first.model.coef.tobytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("way", ALIKE)
def test_a_file_whose_content_stayed_is_read_on(tmp_path: Path, suffix: str, way: str) -> None:
    path = tmp_path / f"rows{suffix}"
    write(path, 0)
    store = open_store(str(path))
    before = rows_of(store)
    ALIKE[way](path)
    store.forget()
    assert rows_of(store) == before


def test_of_many_files_all_are_read_once_and_then_each_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(4):
        write(tmp_path / f"{k}.parquet", 0)
    store = open_store(str(tmp_path))
    before, read = rows_of(store), list[str]()
    plain = known_files._digest

    def watched(own: Any, file: Any, of_all: Any) -> str:
        read.append(Path(file.path).name)
        return plain(own, file, of_all)

    monkeypatch.setattr(known_files, "_digest", watched)
    for k in (2, 0, 3):
        os.chmod(tmp_path / f"{k}.parquet", 0o640)
        store.forget()
        assert rows_of(store) == before
    assert read == [*(f"{k}.parquet" for k in range(4)), "0.parquet", "3.parquet"]
    write(tmp_path / "_other.parquet", 1)  # which is left out of a folder's rows
    in_place(tmp_path / "1.parquet", tmp_path / "_other.parquet")
    store.forget()
    with pytest.raises(DataError, match="changed since it was opened"):
        rows_of(store)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("way", [*ALIKE, "another time"])
def test_a_worker_that_lives_opens_anew(tmp_path: Path, suffix: str, way: str) -> None:
    """`pickle.loads` gives the store that this process has opened, as on the workers of a cluster."""
    path = tmp_path / f"rows{suffix}"
    write(path, 0)
    pickled = pickle.dumps(open_store(str(path)))
    before = rows_of(pickle.loads(pickled))
    if way == "another time":
        os.utime(path, ns=(5, 5))
    else:
        ALIKE[way](path)
    pickle.loads(pickled).forget()
    assert rows_of(pickle.loads(pickled)) == before
    other = tmp_path / f"rowz{suffix}"
    write(other, 1)
    in_place(path, other)
    with pytest.raises(DataError, match="the store changed since the run began"):
        pickle.loads(pickled)


def test_the_digest_of_a_file_that_was_just_written_waits_for_the_next_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change within the same tick of the file system's clock would leave the times as they are."""
    write(tmp_path / "rows.csv", 0)
    status, waits = os.stat(tmp_path / "rows.csv"), list[float]()
    monkeypatch.setattr(known_files.time, "sleep", waits.append)
    for past in (True, False):
        monkeypatch.setattr(known_files, "times_are_past", lambda newest, past=past: past or newest == 0)
        known_files.files_fingerprint([known_files.File.of(str(tmp_path / "rows.csv"), status)])
        assert len(waits) == (not past)
