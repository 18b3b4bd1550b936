"""One process turns columns into rows, and the others say that they wait; what earlier versions left is removed."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import bigsvm as package
from bigsvm.events import Event, WorkEnded, WorkStarted
from bigsvm.files import locks
from bigsvm.store.formats import csc_rows
from bigsvm.store.formats.opener import open_store
from bigsvm.store.remembered import folder_to_write
from tests.cli.conftest import Bigsvm, bigsvm
from tests.store import formats
from tests.turns import HOLDERS, check_told, hold

__all__ = ["bigsvm"]

pytest.importorskip("h5py")

X = sp.random(60, 9, 0.3, random_state=0, format="csc", dtype=np.float32)
DAY_S = 86_400


@pytest.fixture(params=["a.zarr", "a.h5ad"])
def columns(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store whose matrix lies by columns, and that nobody has opened."""
    codes = (np.arange(60) % 2).astype(np.int8)
    return Path(formats.anndata(tmp_path / request.param, {"X": X, "obs/label": (codes, ["a", "b"])}))


def place() -> Path:
    return folder_to_write()


def held(path: Path, who: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Hold the copy of the rows until it is asked for whom one waits, which is at once; what is said then."""
    open_store(path)
    (folder,) = (found for found in place().glob("transposed-*") if found.is_dir())
    shutil.rmtree(folder)

    def told(lock: Any, tell: Any = None) -> None:
        assert tell is not None  # who says nothing would wait for ever here
        locks.wait_for(lock, tell)

    monkeypatch.setattr(csc_rows, "wait_for", told)
    return hold(folder.with_suffix(".lock"), who, monkeypatch)


WAYS: dict[str, Callable[..., Any]] = {
    "fit": lambda path, emit: package.fit(path, emit=emit, max_passes=2.0),
    "ingest": lambda path, emit: package.ingest(path, path.parent / "rows.zarr", emit=emit),
}


@pytest.mark.parametrize("who", HOLDERS)
@pytest.mark.parametrize("way", WAYS)
def test_who_waits_is_told_for_whom(way: str, who: str, columns: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = held(columns, who, monkeypatch)
    seen: list[Event] = []
    WAYS[way](columns, seen.append)
    waits = [event for event in seen if isinstance(event, WorkStarted | WorkEnded) and "turns the same" in event.what]
    (lock,) = place().glob("transposed-*.lock")
    check_told(waits, said, "turns the same columns into rows", lock)


@pytest.mark.parametrize("flags", [[], ["--json"], ["--quiet"], ["--log-format", "json"]], ids=" ".join)
@pytest.mark.parametrize("command", ["plan", "fit"])
def test_commands_say_it_on_standard_error(
    command: str, flags: list[str], columns: Path, bigsvm: Bigsvm, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = held(columns, "ours", monkeypatch)
    done = bigsvm(
        command, columns, *(["-o", columns.parent / "m", "--max-passes", 2] if command == "fit" else []), *flags
    )
    assert done.code in (0, 3, 4), done.err
    assert (f"waiting for {said}" in done.err) == (flags != ["--quiet"])
    assert "waiting" not in done.out


def test_nothing_is_told_where_nobody_is_waited_for(columns: Path) -> None:
    seen: list[Event] = []
    package.fit(columns, emit=seen.append, max_passes=2.0)
    assert not any("waiting" in getattr(event, "what", "") for event in seen)


NAMES = {
    ".transposed-ab12cd_9": True,
    ".transposed-short": False,
    "transposed-ab12cd_9": False,
    ".other-ab12cd_9": False,
}
"""Name -> whether earlier versions made such folders."""
AGES = {"of today": 0, "written into today": 2 * DAY_S, "old": 2 * DAY_S}


@pytest.mark.parametrize(("name", "age", "kind"), [*itertools.product(NAMES, AGES, ["folder", "link", "file"])])
def test_only_dead_folders_of_earlier_versions_are_removed(
    name: str, age: str, kind: str, columns: Path, tmp_path: Path
) -> None:
    place().mkdir(parents=True)
    then = time.time() - AGES[age]
    real = place() / name if kind == "folder" else tmp_path / "elsewhere"
    if kind == "file":
        (place() / name).write_bytes(b"x")
    else:
        real.mkdir()
        (real / "data").write_bytes(b"x")
        os.utime(real / "data", None if age == "written into today" else (then, then))
        if kind == "link":
            (place() / name).symlink_to(real)
        os.utime(real, (then, then))
    os.utime(place() / name, (then, then), follow_symlinks=False)
    open_store(columns)
    assert (place() / name).exists() == (not (NAMES[name] and age == "old" and kind == "folder"))
    assert kind in ("file", "folder") or (real / "data").exists()
