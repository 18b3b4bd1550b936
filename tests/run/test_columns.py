"""Column copies in the scratch folder: made once, shared, redone after a kill, evicted with the others."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from bigsvm.errors import PlanRefused
from bigsvm.events import Event, WorkAdvanced, WorkEnded, WorkStarted, silent
from bigsvm.run.copies import column_copy as run_columns
from bigsvm.run.copies.column_copy import staged_columns
from bigsvm.run.copies.staging import staged
from bigsvm.run.execute.local import SerialMapper
from bigsvm.store.columns.column_blocks import StagedColumns
from bigsvm.store.columns.column_writer import stage_columns
from bigsvm.store.copy.copy_folder import copies_folder, copies_in, remove_copy, tree_bytes
from bigsvm.store.formats.array_rows import ArrayRows

N, D, MEMORY = 500, 70, 100_000


def rows(seed: int = 1, dtype: str = "float32", **orders: Any) -> ArrayRows:
    X = sparse.random_array((N, D), density=0.2, rng=np.random.default_rng(seed), format="csr")
    return ArrayRows((X * 100).astype(dtype), np.arange(N) % 2, **orders)


def of(data: Any, scratch: Path, limit: int | None = None, emit: Any = silent) -> Any:
    return staged_columns(data, scratch, MEMORY, limit, emit)


def contents(copy: StagedColumns) -> list[bytes]:
    blocks = [copy.read(ref).X for ref in copy.refs(1000)]
    return [array.tobytes() for block in blocks for array in block]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that copies are made in."""
    folders: list[Path] = []

    def counting(data: Any, folder: Path, made_of: Any, memory: int, advanced: Any) -> None:
        folders.append(folder)
        stage_columns(data, folder, made_of, memory, advanced)

    monkeypatch.setattr(run_columns, "stage_columns", counting)
    return folders


def test_a_copy_is_made_once_and_events_say_so(tmp_path: Path, made: list[Path]) -> None:
    events: list[Event] = []
    with of(rows(), tmp_path, emit=events.append) as copy:
        first = contents(copy)
    assert isinstance(events[0], WorkStarted)
    assert (events[0].what, events[0].total, events[0].unit) == ("transposing", N, "rows")
    assert [event.done for event in events if isinstance(event, WorkAdvanced)][-1] == N
    assert isinstance(events[-1], WorkEnded)
    with of(rows(), tmp_path, emit=events.append) as copy:
        assert contents(copy) == first
    assert len(made) == 1
    assert isinstance(events[-1], WorkEnded)


def test_other_content_types_and_orders_have_copies_of_their_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    stores = [
        rows(), rows(2), rows(dtype="float64"), rows(dtype="int8"), rows(row_order=rng.permutation(N)),
        rows(row_order=rng.permutation(N)), rows(feature_order=rng.permutation(D)),
    ]  # fmt: skip
    for store in stores:
        with of(store, tmp_path):
            pass
    with staged(rows(), tmp_path, 16, 160, 10**6, None, SerialMapper(), silent) as data, of(data, tmp_path) as copy:
        assert copy.made_of["identity"] == data.identity.document()
    names = [path.name for path in copies_in(copies_folder(tmp_path))]
    # A working copy in the store's order has the very columns of its store.
    assert len([name for name in names if name.startswith("columns-")]) == len(stores)
    assert len([name for name in names if name.startswith("rows-")]) == 1


def test_two_users_at_one_time_share_what_one_makes(tmp_path: Path, made: list[Path]) -> None:
    """Both are inside at one time, though both came before there was a copy: of rows, and of its columns."""
    found: list[list[bytes]] = []
    together = threading.Barrier(2)

    def use() -> None:
        together.wait()
        with (
            staged(rows(), tmp_path, 16, 160, 10**6, None, SerialMapper(), silent) as data,
            of(data, tmp_path) as copy,
        ):
            together.wait()
            found.append(contents(copy))

    users = [threading.Thread(target=use) for _ in range(2)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert len(found) == 2
    assert found[0] == found[1]
    assert len(made) == 1


@pytest.mark.parametrize("done", [1, N // 2, N - 1])
def test_a_copy_that_was_not_finished_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int) -> None:
    class Killed(BaseException):
        pass

    def kill(event: Event) -> None:
        if isinstance(event, WorkAdvanced) and event.done >= done:
            raise Killed

    data = rows()
    with pytest.raises(Killed), of(data, tmp_path, emit=kill):
        pass
    (folder,) = copies_in(copies_folder(tmp_path))
    (folder / "spool-0-5").write_bytes(b"of a run that could not even clean up")
    (folder / ".columns.json.tmp-1-abc").write_bytes(b"torn")
    with of(data, tmp_path) as copy:
        found = contents(copy)
    assert {path.name for path in folder.iterdir()} == {
        "columns.json", "digests.npy", "indptr.npy", "rows.bin", "stripes.npy", "values.bin"
    }  # fmt: skip
    with of(data, tmp_path / "other") as copy:
        assert contents(copy) == found


@pytest.mark.parametrize("name", ["values.bin", "indptr.npy", "digests.npy", "columns.json"])
def test_a_copy_that_is_not_whole_is_made_again(tmp_path: Path, made: list[Path], name: str) -> None:
    with of(rows(), tmp_path) as copy:
        path, found = copy.folder / name, contents(copy)
    path.write_bytes(path.read_bytes()[:-2])
    with of(rows(), tmp_path) as copy:
        assert contents(copy) == found
    assert len(made) == 2


def test_rows_and_columns_make_room_for_each_other_and_used_ones_stay(tmp_path: Path) -> None:
    def row_copy(seed: int, limit: int | None) -> Any:
        store = rows(seed)
        return staged(store, tmp_path, 16, 160, 150_000, limit, SerialMapper(), silent)

    with of(rows(1), tmp_path) as first:
        with row_copy(2, None) as second:
            assert not remove_copy(second.folder)
        # The copy of columns announces more than it takes, so that nothing beside it fits.
        limit = tree_bytes(first.folder) + run_columns.copy_bytes(rows(3))
        with of(rows(3), tmp_path, limit) as third:
            assert first.folder.exists()
            assert not second.folder.exists()
        with row_copy(4, tree_bytes(first.folder) + 200_000):
            assert first.folder.exists()
            assert not third.folder.exists()
        with pytest.raises(PlanRefused, match="scratch-limit"), of(rows(5), tmp_path, limit // 2):
            pass
        contents(first)
    assert remove_copy(first.folder)
    assert not first.folder.exists()
