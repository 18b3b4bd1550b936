"""Whoever changes a store is alone with it: all pairs of adding rows, sealing, replacing and compacting."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.cli.main import run
from bigsvm.errors import BigSVMError, DataError, OutputError
from bigsvm.store.blocks import BlockRef
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest import ingest as ingest_module
from bigsvm.store.ingest.appending import commit as commit_module
from bigsvm.store.ingest.appending.commit import compact
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.sealing import seal as seal_module
from bigsvm.store.sealing.one_writer import LOCK, changing
from bigsvm.store.sealing.seal import seal
from bigsvm.store.sealing.verify import verify_store

LEAVES = {"append": 30, "seal": 20, "overwrite": 7, "dump": 5, "compact": 20}
"""Rows that a store of 20 has after each way of changing it."""


def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(n)
    return random.random((n, 3)), np.resize([-1.0, 1.0], n)


def change(way: str, path: Path) -> None:
    if way == "append":
        ingest(rows(10), path, append=True)
    elif way == "seal":
        seal(path)
    elif way == "overwrite":
        ingest(rows(7), path, overwrite=True)
    elif way == "dump":
        if not (other := path.with_name("other.zarr")).exists():
            ingest(rows(5), other)
        assert run(["dump", str(other), str(path), "--overwrite"]) == 0
    else:
        compact(path)


def in_the_midst(monkeypatch: pytest.MonkeyPatch, way: str, then: Callable[[], None]) -> None:
    """`then` runs in the midst of the next change of that way, and once."""
    places: dict[str, tuple[Any, str]] = {
        "seal": (seal_module, "make_manifest"),
        "compact": (commit_module, "kept_bytes"),
    }
    module, name = places.get(way, (ingest_module, "_copy"))
    plain, left = getattr(module, name), [then]

    def first(*given: Any, **named: Any) -> Any:
        if left:
            left.pop()()
        return plain(*given, **named)

    monkeypatch.setattr(module, name, first)


@pytest.mark.parametrize("second", LEAVES)
@pytest.mark.parametrize("first", [way for way in LEAVES if way != "dump"])
def test_the_second_is_refused_and_the_first_goes_on(
    first: str, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.zarr"
    ingest(rows(20), path)
    change("dump", tmp_path / "unused.zarr")  # makes what is dumped

    def refused() -> None:
        if second == "dump":
            assert run(["dump", str(tmp_path / "other.zarr"), str(path), "--overwrite"]) == 73
            assert "the store is in use by process" in capsys.readouterr().err
            return
        with pytest.raises(OutputError, match="the store is in use by process"):
            change(second, path)

    in_the_midst(monkeypatch, first, refused)
    change(first, path)
    assert open_store(path).n_samples == LEAVES[first]
    assert verify_store(path)["n_bad"] == 0
    assert not (path / LOCK).exists()
    change(second, path)  # nobody is in its way any more
    assert open_store(path).n_samples == {"append": LEAVES[first] + 10, "overwrite": 7, "dump": 5}.get(
        second, LEAVES[first]
    )


@pytest.mark.parametrize("exchanged", [True, False])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_rows_are_not_added_to_a_store_that_took_the_place_of_theirs(
    task: Any, exchanged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand, or by a program that knows no lock.  Only of classes the old labels are read again before the end."""
    path, other = tmp_path / "rows.zarr", tmp_path / "other.zarr"
    ingest(rows(20), path, task=task)
    ingest(rows(9), other, task=task)

    def exchange() -> None:
        shutil.move(path, tmp_path / "former.zarr")
        if exchanged:
            shutil.move(other, path)

    in_the_midst(monkeypatch, "append", exchange)
    with pytest.raises(BigSVMError, match=rf"{path}.*(was replaced|was exchanged|missing|No such file)"):
        ingest(rows(10), path, append=True)
    assert open_store(tmp_path / "former.zarr").n_samples == 20
    if exchanged:
        assert open_store(path).n_samples == 9
        assert verify_store(path)["n_bad"] == 0


@pytest.mark.parametrize("added", [False, True])
def test_a_reader_is_told_that_its_store_was_replaced(added: bool, tmp_path: Path) -> None:
    """It was told that a chunk is missing, and to restore it."""
    path = tmp_path / "rows.zarr"
    ingest(rows(20), path)
    reader = open_store(path)
    if added:  # the reader goes on with the rows that it saw
        ingest(rows(9), path, append=True)
        assert reader.read(BlockRef(0, 20, 0)).n_rows == 20
        reader.forget()
    ingest(rows(7), path, overwrite=True)
    with pytest.raises(DataError, match=r"rows.zarr: the store was replaced while it was read \(repeat the command\)"):
        reader.read(BlockRef(0, 20, 0))


@pytest.mark.parametrize("in_use", [True, False])
def test_a_store_that_came_meanwhile_is_not_taken_from_who_writes_into_it(
    in_use: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.zarr"
    with ExitStack() as held:

        def come() -> None:
            ingest(rows(20), path)
            if in_use:
                held.enter_context(changing(path))

        in_the_midst(monkeypatch, "overwrite", come)
        if in_use:
            with pytest.raises(OutputError, match="the store is in use by process"):
                change("overwrite", path)
        else:
            change("overwrite", path)
    assert open_store(path).n_samples == (20 if in_use else 7)
    assert [found.name for found in tmp_path.iterdir()] == ["rows.zarr"]
    assert not (path / LOCK).exists()


def test_who_lets_go_leaves_the_lock_of_another_store_alone(tmp_path: Path) -> None:
    path = tmp_path / "rows.zarr"
    ingest(rows(20), path)
    with changing(path):
        shutil.move(path, tmp_path / "former.zarr")
        ingest(rows(9), path)
        (path / LOCK).touch()
    assert (path / LOCK).exists()
