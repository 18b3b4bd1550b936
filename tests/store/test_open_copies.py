"""A process that lives for days reads the working copy that lies there, and keeps no file of one that is gone."""

from __future__ import annotations

import gc
import gzip
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sparse

from bigsvm.errors import DataError
from bigsvm.events import silent
from bigsvm.run.copies.staging import staged
from bigsvm.store.columns.column_writer import stage_columns
from bigsvm.store.copy.near_rows import NearRows
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.tasks import SerialMapper
from bigsvm.testing.problems import random_problem
from bigsvm.units import MIB


def held(folder: Path) -> set[str]:
    """Files below a folder that this process has open or mapped, deleted ones among them."""
    gc.collect()
    links = []
    for number in os.listdir("/proc/self/fd"):
        if os.path.lexists(link := f"/proc/self/fd/{number}"):
            links.append(os.readlink(link))
    maps = [line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    return {name for name in (*links, *maps) if name.startswith(str(folder))}


def copy_of(rows: Any, folder: Path) -> Any:
    return staged(rows, folder, 16, 64, 10**6, None, SerialMapper(), silent, 1, 8 * MIB)


def read_all(copy: Any) -> np.ndarray:
    return np.concatenate([copy.read(ref).y for ref in copy.refs(16)])


def pickled(copy: Any, scratch: Path | None) -> bytes:
    return pickle.dumps(copy if scratch is None else NearRows(copy.folder, str(scratch)))


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_a_damaged_block_is_read_once_it_was_made_anew(tmp_path: Path, layout: str, near: bool) -> None:
    X, y = random_problem(500, 6, seed=3)
    rows: Any = ArrayRows(sparse.csr_array(X) if layout == "csr" else X, y)
    scratch = tmp_path / "own" if near else None
    with copy_of(rows, tmp_path / "copy") as copy:
        name, folder = pickled(copy, scratch), copy.folder
        (block,) = sorted(folder.glob("*.bin"))[:1]
        with open(block, "r+b") as file:
            file.seek(block.stat().st_size // 2)
            file.write(bytes(64))
    copy.close()
    worker = pickle.loads(name)
    with pytest.raises(DataError, match="is damaged"):
        read_all(worker)
    assert pickle.loads(name) is worker  # others use the copy that was given up
    with copy_of(rows, tmp_path / "copy") as made:
        assert made.folder == folder
        again = pickle.loads(name)
        assert again is not worker
        np.testing.assert_array_equal(read_all(again), read_all(made))


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize("near", [False, True])
def test_no_file_of_a_copy_that_is_gone_is_kept(tmp_path: Path, near: bool) -> None:
    scratch = tmp_path / "own" if near else None
    names = []
    for k in range(3):
        X, y = random_problem(300, 5, seed=k)
        rows: Any = ArrayRows(X, y)
        with copy_of(rows, tmp_path / f"copy{k}") as copy:
            names.append(pickled(copy, scratch))
            reader = pickle.loads(names[-1])
            read_all(reader)
        copy.close()
        del copy, reader
        assert any(f"copy{k}" in name for name in held(tmp_path))
        if k:
            assert not any(f"copy{k - 1}" in name for name in held(tmp_path))
        shutil.rmtree(tmp_path / f"copy{k}")


_TO_THE_END = """
import gzip, sys, threading
from pathlib import Path
from bigsvm.store.columns import column_blocks
from bigsvm.store.copy import near_rows, stage
from bigsvm.store.formats.tables import pieces

rows, columns, text, own = map(Path, sys.argv[1:])
kept = [stage.StagedRows(rows), near_rows.NearRows(rows, str(own), True), column_blocks.StagedColumns(columns)]
for reader in kept:
    reader.read(reader.refs(16)[0])
kept.append(pieces.PieceReader(str(text)))
kept[-1].read(0, 100)
sys.modules_held = [stage, near_rows, column_blocks, pieces, threading]  # so that their names are cleared one by one
threading.readers_held = kept  # which goes after theirs: it was imported before them
"""


def test_readers_that_live_to_the_end_of_the_interpreter_say_nothing(tmp_path: Path) -> None:
    """They closed their files when `os` was None already: `'NoneType' object has no attribute 'close'`."""
    X, y = random_problem(100, 6, seed=3)
    (tmp_path / "columns").mkdir()
    stage_columns(ArrayRows(X, y), tmp_path / "columns", {}, 3000, lambda *_: None)
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(b"a,b\n" * 1000))
    with copy_of(ArrayRows(X, y), tmp_path / "copy") as copy:
        where = [str(copy.folder), str(tmp_path / "columns"), str(tmp_path / "rows.csv.gz"), str(tmp_path / "own")]
        command = [sys.executable, "-c", _TO_THE_END, *where]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
