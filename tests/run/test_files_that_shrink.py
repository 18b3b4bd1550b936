"""Files that are shortened or overwritten in place between two readings, or just before the system is asked for bytes.

Each command runs in a process of its own, because a memory map of a file that became shorter would end it by SIGBUS.
It must end with 65 and one line that names the file, and without a result; never with rows of two versions.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.store.formats.chunked import _SMALL_BYTES
from tests.forked import Run, scripts
from tests.products import each_of
from tests.store.formats import foreign

_IMPORTS = """
import importlib, json, os, sys
from pathlib import Path
import bigsvm, zarr
from bigsvm.cli.main import run
from bigsvm.run.fit import sizes
from bigsvm.store.formats import zarr_rows
"""
_PROGRAM = """
given = json.loads(sys.argv[1])
sizes.Sizes.resident_from = lambda self: 1 << 50  # rows are read anew in each pass, in small blocks
sizes.BLOCK_BYTES = 1 << 14
importlib.import_module("bigsvm.store.ingest.sources.row_source")._PART_ROWS = 200
count, reading = 0, False


def look():
    global count
    count += 1
    if count == given["number"]:
        for path in map(Path, given["files"]):
            if given["fault"] == "shortened":
                os.truncate(path, path.stat().st_size // 3)
            else:
                with open(path, "r+b") as file:
                    file.write((Path("other") / path).read_bytes())
                    file.truncate()


def watched(method):
    def call(self, *arguments):
        global reading
        if given["moment"] == "between" and str(getattr(self, "where", given["files"][0])).endswith(given["files"][0]):
            look()
        reading = True
        try:
            return method(self, *arguments)
        finally:
            reading = False

    return call


def preadv(handle, *arguments, plain=os.preadv):
    of = os.readlink(f"/proc/self/fd/{handle}")
    if reading and given["moment"] == "within" and any(of.endswith(name) for name in given["files"]):
        look()
    return plain(handle, *arguments)


os.preadv = preadv
for module, owner, method in given["reads"]:
    owner = getattr(importlib.import_module(module), owner)
    setattr(owner, method, watched(getattr(owner, method)))
code = run(given["command"])
Path("count").write_text(str(count))
sys.exit(code)
"""

N = 3000
FIT = ["--loss", "hinge", "-s", "dcd", "--stage", "none", "--max-passes", "2", "--allow-unconverged", "--threads", "1",
       "-o", "made", "--quiet"]  # fmt: skip
_TAKE = [["bigsvm.store.ingest.sources.sequential", owner, "take"] for owner in ("InMemory", "ByColumns")]
_ZARR = [["bigsvm.store.formats.zarr_rows", "ZarrRows", "read"]]


def numbers(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, 12)).astype(np.float32)
    return X, (X[:, seed] > 0).astype(np.int64)


def npy(folder: Path, seed: int, order: Any) -> list[str]:
    X, y = numbers(seed)
    (folder / "rows").mkdir(parents=True)
    np.save(folder / "rows" / "X.npy", np.asarray(X, order=order))
    np.save(folder / "rows" / "y.npy", y)
    return ["rows/X.npy"]


def zarr(folder: Path, seed: int, **options: Any) -> list[str]:
    """Of which each chunk has several blocks."""
    X, y = numbers(seed)
    folder.mkdir(exist_ok=True)
    rows = 1500
    assert rows * X[0].nbytes > _SMALL_BYTES
    path = foreign(folder / "rows.zarr", X, y, layout="dense", chunk=rows, compressors=None, **options)
    files = [
        each for each in sorted((path / "X").rglob("*")) if each.is_file() and not each.name.startswith((".", "z"))
    ]
    return [str(each.relative_to(folder)) for each in files]


def sharded(folder: Path, seed: int) -> list[str]:
    import zarr as package

    X, y = numbers(seed)
    path = foreign(folder / "rows.zarr", X[:, :1], y, layout="dense", chunk=N)
    package.open_group(path).create_array(
        "X", data=X, chunks=(100, 12), shards=(1500, 12), compressors=None, overwrite=True
    )
    return ["rows.zarr/X/c/0/0", "rows.zarr/X/c/1/0"]


FORMATS: dict[str, tuple[Callable[[Path, int], list[str]], list[list[str]], list[str]]] = {
    "npy by rows": (lambda folder, seed: npy(folder, seed, "C"), _TAKE, ["ingest", "rows", "made"]),
    "npy by columns": (lambda folder, seed: npy(folder, seed, "F"), _TAKE, ["ingest", "rows", "made"]),
    "raw zarr 2": (lambda folder, seed: zarr(folder, seed, version=2), _ZARR, ["fit", "rows.zarr", *FIT]),
    "raw zarr 3": (zarr, _ZARR, ["fit", "rows.zarr", *FIT]),
    "raw shards": (sharded, _ZARR, ["fit", "rows.zarr", *FIT]),
}  # fmt: skip
MOMENTS = [(kind, moment) for kind in FORMATS for moment in ("between", "within")]
MOMENTS.remove(("raw shards", "within"))
"""Bytes of shards are read by zarr."""


Made = Callable[[str, str], tuple[Path, Any, int]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with scripts(_IMPORTS, tmp_path_factory.mktemp("run")) as found:
        yield found


@pytest.fixture(scope="module")
def made(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """For a format and a moment: a folder, what the program is told, the number of readings.

    In the folder are rows, others to overwrite them (`other`), and what is made of rows that do not change (`whole`).
    """
    folder, known = tmp_path_factory.mktemp("made"), dict[str, tuple[Path, list[str]]]()
    counts: dict[tuple[str, str], int] = {}
    (folder / "program.py").write_text(_PROGRAM)

    def make(kind: str, moment: str) -> tuple[Path, Any, int]:
        maker, reads, command = FORMATS[kind]
        if kind not in known:
            place = folder / kind
            place.mkdir()
            known[kind] = place, maker(place, 0)
            maker(place / "other", 1)
            for name in known[kind][1]:
                os.utime(place / name, (1e9, 1e9))  # so that what is written later has another time, however soon
        place, files = known[kind]
        told = {"command": command, "reads": reads, "moment": moment, "files": files}
        if (kind, moment) not in counts:
            shutil.rmtree(place / "whole", ignore_errors=True)
            shutil.copytree(place, folder / "whole")
            done = run_in(folder / "whole", run, {**told, "number": 0, "fault": ""}, folder / "program.py")
            assert done.returncode in (0, 4), done.stderr
            counts[kind, moment] = int((folder / "whole" / "count").read_text())
            shutil.move(folder / "whole", place / "whole")
        return place, told, counts[kind, moment]

    return make


def run_in(folder: Path, run: Run, told: Any, program: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return run(program, json.dumps(told))


@each_of(kind__moment=MOMENTS, fault=["shortened", "overwritten"], place=["first", "middle", "last"])
def test_a_file_that_changes_is_refused_by_name(
    made: Made,
    run: Run,
    tmp_path: Path,
    kind: str,
    moment: str,
    fault: str,
    place: str,
) -> None:
    rows, told, n = made(kind, moment)
    assert n >= 4
    number = {"first": 1, "middle": n // 2, "last": n}[place]
    shutil.copytree(rows, tmp_path / "here", ignore=shutil.ignore_patterns("whole"))
    program = rows.parent / "program.py"
    done = run_in(tmp_path / "here", run, {**told, "number": number, "fault": fault}, program)
    if kind == "raw shards" and done.returncode == 0:  # the shard had been read, and is kept
        coef = [folder / "made" / "coef.npy" for folder in (tmp_path / "here", rows / "whole")]
        assert coef[0].read_bytes() == coef[1].read_bytes()
        return
    assert done.returncode == 65, (done.returncode, done.stderr)
    line = done.stderr.strip()
    assert "\n" not in line
    assert "changed" in line or "its digest differs from the manifest" in line
    assert any(name.removeprefix("rows.zarr/") in line for name in told["files"])
    assert not (tmp_path / "here" / "made").exists()
