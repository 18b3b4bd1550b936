"""Working copies: contract of RowBlocks, damage, resume, permuted rows."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bigsvm.compiled.shared.rows import sqnorms
from bigsvm.config import FitConfig
from bigsvm.errors import DataError, PlanRefused
from bigsvm.events import silent
from bigsvm.run.copies import staging
from bigsvm.run.copies.staging import staged
from bigsvm.run.copies.survey_pass import survey_pass
from bigsvm.run.execute.local import SerialMapper, ThreadMapper
from bigsvm.store.copy import copy_folder, stage_index
from bigsvm.store.copy.copy_folder import copies_folder, remove_copy, tree_bytes
from bigsvm.store.copy.stage_write import SegmentShare, stage_segment
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.formats.opener import open_store
from bigsvm.store.labels import label_codes
from bigsvm.testing.problems import random_problem

N, BLOCK = 700, 3  # four segments of 64 blocks of 3 rows, the last one short


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_index, "BLOCKS_PER_SEGMENT", 64)


def rows(layout: str, weights: bool = True, seed: int = 1) -> Any:
    X, y = random_problem(N, 6, 0.5, seed=seed, n_classes=3)
    from scipy import sparse

    matrix = sparse.csr_array(X.astype(np.float32)) if layout == "csr" else X.astype(np.float32)
    weight = np.random.default_rng(seed).uniform(0, 2, N)
    return open_store((matrix, y, weight) if weights else (matrix, y))


def make(store: Any, scratch: Path, **changed: Any) -> Any:
    options = {
        "block_rows": BLOCK,
        "piece_rows": 7 * BLOCK,
        "data_bytes": 100_000,
        "scratch_limit": None,
        **changed,
    }
    return staged(store, scratch, mapper=options.pop("mapper", SerialMapper()), emit=silent, **options)


@pytest.mark.parametrize("kind", ["csv", "feather", "parquet"])
def test_the_sample_leaves_no_reader_open(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of the mapper copy, each with a reader of its own.

    That of the thread which drew the sample held its pages meanwhile: of 30 columns of Parquet, a fit in 117 MiB took
    139 MiB.
    """
    frame = pd.DataFrame(np.random.default_rng(0).random((N, 3)), columns=list("abc"))
    frame["label"] = np.arange(N) % 2
    path = tmp_path / f"rows.{kind}"
    getattr(frame, "to_csv" if kind == "csv" else f"to_{kind}")(path, **({"index": False} if kind != "feather" else {}))
    store: Any = open_store(str(path))
    seen = []

    def open_readers() -> int:
        return len(vars(store._files._places._threads).get("kept", {}))

    def sampled(*arguments: Any) -> Any:
        order = working_order(*arguments)
        seen.append(open_readers())
        return order

    def made(*arguments: Any) -> None:
        seen.append(open_readers())
        make_copy(*arguments)

    working_order, make_copy = staging.working_order, staging._make
    monkeypatch.setattr(staging, "working_order", sampled)
    monkeypatch.setattr(staging, "_make", made)
    with make(store, tmp_path / "scratch") as copy:
        assert copy.n_samples == N
    assert seen[0] > 0, "the sample is read with a reader that the thread keeps"
    assert seen[1] == 0


@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("weights", [True, False])
def test_a_copy_reads_as_its_store(tmp_path: Path, layout: str, weights: bool) -> None:
    store = rows(layout, weights)
    with make(store, tmp_path) as copy:
        assert (copy.n_samples, copy.n_features, copy.classes.tolist()) == (N, 6, [0, 1, 2])
        for block_rows in (BLOCK, 1, 50, N):
            for ref in copy.refs(block_rows):
                ours, theirs = copy.read(ref), store.read(ref)
                assert (ours.start, ours.stop) == (ref.start, ref.stop)
                np.testing.assert_array_equal(ours.y, theirs.y)
                for mine, other in zip(ours.X, theirs.X, strict=True):
                    np.testing.assert_array_equal(mine, other)
                if weights:
                    np.testing.assert_array_equal(ours.sample_weight, theirs.sample_weight)
                norms = np.empty(ours.n_rows)
                sqnorms(theirs.X, norms)
                np.testing.assert_array_equal(ours.sqnorm, norms)
        reference = survey_pass(store, 100, SerialMapper(), silent)
        assert copy.content_fingerprint == reference.content_fingerprint
        assert copy.survey.counts == reference.counts


def test_an_aligned_block_is_a_view_of_the_map(tmp_path: Path) -> None:
    with make(rows("dense"), tmp_path) as copy:
        block = copy.read(copy.refs(BLOCK)[5])
        assert not block.X.flags.owndata
        assert not block.X.flags.writeable
        copy.release(copy.refs(BLOCK)[5])
        np.testing.assert_array_equal(block.X, rows("dense").read(copy.refs(BLOCK)[5]).X)


def test_threads_and_serial_write_the_same_bytes(tmp_path: Path) -> None:
    with ThreadMapper(3) as threads:
        for name, mapper in (("a", SerialMapper()), ("b", threads)):
            with make(rows("csr"), tmp_path / name, mapper=mapper):
                pass
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("segment*"))
    assert len(files) == 3 * -(-N // (BLOCK * 64))
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_addresses_take_no_memory_and_know_their_bytes(tmp_path: Path) -> None:
    with make(rows("csr"), tmp_path) as copy:
        refs = copy.refs(BLOCK)
        assert refs[-1] == refs[len(refs) - 1] == list(refs)[-1]
        assert refs[2:4] == [refs[2], refs[3]]
        with pytest.raises(IndexError):
            refs[len(refs)]
        size = sum(path.stat().st_size for path in copy.folder.glob("*.bin"))
        assert sum(ref.nbytes for ref in refs) == sum(ref.nbytes for ref in copy.refs(5 * BLOCK)) == size


def test_a_store_with_orders_of_its_own_is_traced_to_the_users_rows(tmp_path: Path) -> None:
    X, y = random_problem(N, 6, seed=3)
    rng = np.random.default_rng(1)
    for name, labels in (("plain", y), ("sorted", np.sort(y))):
        order, features = rng.permutation(N), rng.permutation(6)
        if name == "sorted":  # what the copy reads is sorted, not what the user gave
            labels = labels[np.argsort(order)]
        store = ArrayRows(X, labels, row_order=order, feature_order=features)
        with make(store, tmp_path / name) as copy:
            assert copy.meta.shuffled == (name == "sorted")
            whole = copy.read(copy.refs(N)[0])
            np.testing.assert_array_equal(whole.X, X[copy.row_order][:, copy.feature_order])
            np.testing.assert_array_equal(whole.y[copy.working_row], label_codes(labels, copy.classes))


def test_a_second_fit_shares_the_copy_and_another_store_does_not(tmp_path: Path) -> None:
    for store in (rows("csr"), rows("csr"), rows("csr", seed=2)):
        with make(store, tmp_path):
            pass
    assert len([p for p in copies_folder(tmp_path).iterdir() if p.is_dir()]) == 2


def test_complete_segments_of_a_killed_run_are_kept(tmp_path: Path) -> None:
    store = rows("csr")
    with make(store, tmp_path) as copy:
        folder = copy.folder
    (folder / "staged.json").unlink()
    (folder / "segment-00002.json").unlink()  # killed before the index was written
    (folder / ".segment-00002.bin.tmp-1-abc").write_bytes(b"torn")
    before = os.stat(folder / "segment-00000.bin").st_mtime_ns
    with make(store, tmp_path) as copy:
        assert copy.read(copy.refs(N)[0]).n_rows == N
    assert os.stat(folder / "segment-00000.bin").st_mtime_ns == before
    assert not list(folder.glob(".*"))


def test_a_damaged_copy_is_refused_naming_the_file(tmp_path: Path) -> None:
    with make(rows("csr"), tmp_path) as copy:
        path = copy.folder / "segment-00001.bin"
    sound = path.read_bytes()
    content = bytearray(sound)
    content[1000] ^= 4
    path.write_bytes(content)
    with make(rows("csr"), tmp_path) as copy, pytest.raises(DataError, match=r"segment-00001\.bin"):
        copy.read(copy.refs(N)[0])
    with make(rows("csr"), tmp_path) as copy:  # and made again by whoever comes next
        assert copy.read(copy.refs(N)[0]).n_rows == N
    assert path.read_bytes() == sound


@pytest.mark.parametrize("damage", ["truncate", "document", "index", "remove"])
def test_a_copy_that_is_not_whole_is_made_again(tmp_path: Path, damage: str) -> None:
    with make(rows("csr"), tmp_path) as copy:
        folder = copy.folder
    if damage == "truncate":
        content = (folder / "segment-00001.bin").read_bytes()
        (folder / "segment-00001.bin").write_bytes(content[:-64])
    elif damage == "document":
        (folder / "staged.json").write_text("{")
    elif damage == "index":
        content = (folder / "segment-00001.idx").read_bytes()
        (folder / "segment-00001.idx").write_bytes(content[:-1] + b"?")
    else:
        (folder / "segment-00000.bin").unlink()
    with make(rows("csr"), tmp_path) as copy:
        assert copy.read(copy.refs(N)[0]).n_rows == N


def test_a_copy_whose_order_was_damaged_is_made_again(tmp_path: Path) -> None:
    X, y = random_problem(N, 6, seed=3)
    store = ArrayRows(X, np.sort(y))
    with make(store, tmp_path) as copy:
        assert copy.meta.shuffled
        order, path = copy.row_order.copy(), copy.folder / "row_order.npy"
    content = bytearray(path.read_bytes())
    content[-8] ^= 1
    path.write_bytes(content)
    with make(store, tmp_path) as copy:
        np.testing.assert_array_equal(copy.row_order, order)


def test_a_segment_that_was_cut_off_is_written_again(tmp_path: Path) -> None:
    store = rows("csr")
    with make(store, tmp_path) as copy:
        folder = copy.folder
    (folder / "staged.json").unlink()  # killed before the copy was whole
    content = (folder / "segment-00001.bin").read_bytes()
    (folder / "segment-00001.bin").write_bytes(content[:-64])
    with make(store, tmp_path):
        assert (folder / "segment-00001.bin").read_bytes() == content


def test_the_least_recently_used_copy_makes_room_and_a_used_one_stays(tmp_path: Path) -> None:
    with make(rows("csr", seed=1), tmp_path) as first:
        size = tree_bytes(first.folder)
        limit = int(2.5 * size)
        with make(rows("csr", seed=2), tmp_path, data_bytes=size, scratch_limit=limit) as second:
            pass
        assert not remove_copy(first.folder)
        with make(rows("csr", seed=3), tmp_path, data_bytes=size, scratch_limit=limit) as third:
            assert first.folder.exists()
            assert not second.folder.exists()
            assert third.folder.exists()
            with (
                pytest.raises(PlanRefused, match="scratch-limit"),
                make(rows("csr", seed=4), tmp_path, data_bytes=size, scratch_limit=limit),
            ):
                pass
    assert remove_copy(first.folder)


def test_segments_are_pure(tmp_path: Path) -> None:
    share = SegmentShare(rows("dense"), str(tmp_path), "of dense rows", 0, 0, 60, BLOCK, 2 * BLOCK)
    first = stage_segment(share)
    assert stage_segment(share) == first
    assert FitConfig().stage == "auto"


@pytest.mark.parametrize(
    ("free", "limit", "said"),
    [
        (10, None, "free space there, use --scratch DIR or use --stage none"),
        (10, 50, "free space there, use --scratch DIR or use --stage none"),
        (1 << 40, 50, "use --scratch-limit 1MiB or use --stage none"),
    ],
)
def test_a_higher_limit_is_advised_only_where_it_helps(
    free: int, limit: int | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "copies" / "one"
    folder.mkdir(parents=True)
    monkeypatch.setattr(copy_folder.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    with pytest.raises(PlanRefused) as refused:
        copy_folder.make_room(folder, 1000, limit)
    assert refused.value.hint == said
