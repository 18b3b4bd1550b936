"""Rows that join a sealed store: the store of all rows at once, and every instant on the way is one of two stores."""

from __future__ import annotations

import errno
import filecmp
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from bigsvm.cli.main import run
from bigsvm.errors import DataError, OutputError, UsageError
from bigsvm.files import atomic
from bigsvm.files.locks import alone
from bigsvm.store.content import scale_warning
from bigsvm.store.formats.opener import open_store
from bigsvm.store.formats.zarr_rows import reopen
from bigsvm.store.ingest.appending import commit as commit_module
from bigsvm.store.ingest.appending.commit import compact
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.sealing.manifest import FORMER
from bigsvm.store.sealing.one_writer import LOCK
from bigsvm.store.sealing.seal import seal
from bigsvm.store.sealing.verify import verify_store
from tests.store.appended import Part, content, files_of, rows, same, together


@pytest.mark.parametrize("chunk_bytes", [None, 512])
@pytest.mark.parametrize("dense", [False, True])
def test_the_store_is_that_of_all_rows_at_once_and_old_readers_keep_theirs(
    dense: bool, chunk_bytes: int | None, tmp_path: Path
) -> None:
    kinds = [(100, (-1, 1)), (7, (-1, 1)), (60, (-1, 1)), (33, (0, 1, 2.5)), (1, (1,))]
    parts = [rows(n, classes, dense, seed) for seed, (n, classes) in enumerate(kinds)]
    grown, whole, codec = tmp_path / "grown.zarr", tmp_path / "whole.zarr", "none" if dense else "lz4"
    ingest(parts[0], grown, codec=codec, chunk_bytes=chunk_bytes)
    ingest(together(parts), whole, codec=codec, chunk_bytes=chunk_bytes)
    before = content(grown)
    read, unread = open_store(grown), open_store(grown)
    content(read)
    for part in parts[1:]:
        result = ingest(part, grown, append=True, chunk_bytes=chunk_bytes)
    assert (result["n_samples"], result["n_appended"]) == (201, 1)
    assert files_of(grown) == files_of(whole)
    other = {name for name in files_of(whole) if not filecmp.cmp(grown / name, whole / name, shallow=False)}
    assert other == {"bigsvm-manifest.json"}  # which says what was added when
    assert open_store(grown).content_fingerprint == open_store(whole).content_fingerprint
    assert same(content(grown), content(whole))
    reopen.cache_clear()
    for reader in (read, unread, pickle.loads(pickle.dumps(unread))):
        assert same(content(reader), before)
    assert verify_store(grown)["n_bad"] == 0
    fingerprint = open_store(grown).fingerprint
    assert compact(grown)["freed_bytes"] > 0
    assert not (grown / FORMER).exists()
    assert same(content(grown), content(whole))
    assert open_store(grown).fingerprint == fingerprint
    reopen.cache_clear()
    with pytest.raises(DataError, match="the store changed"):  # what it saw is gone, and it says so
        pickle.loads(pickle.dumps(unread))


class _Killed(BaseException):
    """The process is gone: nothing that is called after it does anything."""


@contextmanager
def killed_at(number: int) -> Iterator[list[str]]:
    """The `number`-th call that changes a file, and every later one, does nothing but raise."""
    calls: list[str] = []

    def dying(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*args: Any, **more: Any) -> Any:
            if name == "open" and not set(str(args[1] if len(args) > 1 else more.get("mode", "r"))) & set("wxa+"):
                return call(*args, **more)
            calls.append(name)
            if len(calls) >= number:
                raise _Killed
            return call(*args, **more)

        return instead

    with pytest.MonkeyPatch.context() as patch:
        for name in ("replace", "rename", "link", "mkdir", "unlink"):
            patch.setattr(os, name, dying(name, getattr(os, name)))
        patch.setattr(atomic, "_rename", dying("rename", atomic._rename))
        patch.setattr(shutil, "rmtree", dying("rmtree", shutil.rmtree))
        patch.setattr("builtins.open", dying("open", open))
        yield calls


def test_killed_at_any_write_it_is_the_old_store_or_the_new_one(tmp_path: Path) -> None:
    parts = [rows(90, dense=True), rows(25, (-1, 0, 1), True, 1), rows(9, (-1, 1), True, 2)]
    template, path = tmp_path / "template.zarr", tmp_path / "s.zarr"
    ingest(parts[0], template, chunk_bytes=400, codec="none")
    shutil.copytree(template, path)
    with killed_at(sys.maxsize) as calls:
        ingest(parts[1], path, append=True, threads=1)
    shutil.rmtree(path)
    was, now, more = content(template), _labels_and_values(parts[:2]), _labels_and_values(parts)
    commit = calls.index("link")  # before, only a folder beside the store is written to
    seen = []
    for number in (*range(1, commit, 15), *range(commit, len(calls) + 2)):
        shutil.copytree(template, path)
        reader = open_store(path)
        with killed_at(number), suppress(_Killed):
            ingest(parts[1], path, append=True, threads=1)
        found = content(path)
        seen.append(same(found, now))
        assert seen[-1] or same(found, was), number
        assert same(content(reader), was)
        assert_plain_labels(path, parts[0][1])
        if number % 5 == 0:
            assert verify_store(path)["n_bad"] == 0
        if number % 20 == 0 or number > len(calls):  # whatever was left behind, rows can be added again
            (path / LOCK).unlink(missing_ok=True)
            ingest(parts[2] if seen[-1] else together(parts[1:]), path, append=True, threads=1)
            assert same(content(path), more)
            seal(path)
            assert same(content(path), more)
        shutil.rmtree(path)
    assert seen == sorted(seen)  # the old one until a certain write, the new one from there on
    assert {seen[0], seen[-1]} == {False, True}


def assert_plain_labels(path: Path, labels: np.ndarray) -> None:
    """Who reads no manifest sees the labels of the former rows, finds codes beyond the categories, or is refused."""
    group = zarr.open_group(path, mode="r")
    try:
        codes, categories = np.asarray(group["obs/label/codes"][:]), np.asarray(group["obs/label/categories"][:])
    except ValueError:  # a chunk that has grown, and the shape of before
        return
    if codes.max() < len(categories):
        np.testing.assert_array_equal(categories[codes][: len(labels)], labels)


def test_rows_sorted_by_class_meet_no_other_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The codes are several chunks, and the class that is added comes before all others."""
    labels, template, path = np.repeat([5, 7], 600), tmp_path / "template.zarr", tmp_path / "s.zarr"
    X = np.ones((1200, 1), np.float32)
    ingest((X, labels), template, chunk_bytes="1KiB")
    put, put_now = commit_module.put_kept, [0]
    for stop in range(100):
        shutil.copytree(template, path)
        put_now[0] = 0

        def until(*arguments: Any, stop: int = stop) -> None:
            if put_now[0] == stop:
                raise _Killed
            put_now[0] += 1
            put(*arguments)

        monkeypatch.setattr(commit_module, "put_kept", until)
        with suppress(_Killed):
            ingest((X[:3], np.array([3, 3, 7])), path, append=True)
        assert_plain_labels(path, labels)
        shutil.rmtree(path)
        if put_now[0] < stop:
            break
    assert stop > 6


def test_verify_tells_of_a_writer_that_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.zarr"
    ingest(rows(30), path)

    def die(*_: object) -> None:
        raise _Killed

    with monkeypatch.context() as patched:
        patched.setattr("bigsvm.store.ingest.appending.commit.put_kept", die)
        with suppress(_Killed):
            ingest(rows(5, (-1, 0, 1), False, 1), path, append=True)
    (path / LOCK).unlink(missing_ok=True)
    assert run(["verify", str(path)]) == 0
    assert "see a mixture" in capsys.readouterr().err
    assert run(["ingest", "--compact", str(path)]) == 0
    assert run(["verify", str(path)]) == 0
    assert "mixture" not in capsys.readouterr().err


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), OutputError("cannot write", "x")])
def test_rows_that_were_added_are_not_said_to_be_missing(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with 73, and whoever made room and repeated it had the rows twice."""
    path = tmp_path / "s.zarr"
    parts = [rows(30, dense=True), rows(5, (-1, 0, 1), True, 1)]
    ingest(parts[0], path)

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("bigsvm.store.ingest.appending.commit.put_kept", fail)
        result = ingest(parts[1], path, append=True)
    assert (result["n_samples"], result["n_appended"], open_store(path).n_samples) == (35, 5, 35)
    assert any("the rows were added, but not all files" in said for said in result["warnings"])
    with monkeypatch.context() as patched:
        patched.setattr("bigsvm.store.sealing.former.put_kept", fail)
        with pytest.raises(OutputError, match="cannot write"):
            compact(path)
    compact(path)
    assert same(content(path), _labels_and_values(parts))
    assert verify_store(path)["n_bad"] == 0


def _labels_and_values(parts: list[Part]) -> tuple[np.ndarray, np.ndarray]:
    X, y = together(parts)
    return X, y


def test_two_at_once_are_one_too_many(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    ingest(rows(20), path)
    with alone(path / LOCK, "the store"), pytest.raises(OutputError, match="the store is in use by process"):
        ingest(rows(3), path, append=True)
    assert ingest(rows(3), path, append=True)["n_samples"] == 23


def test_weights_targets_and_narrow_values_join(tmp_path: Path) -> None:
    X, y = rows(30, dense=True)
    weight = np.linspace(0.5, 2.0, 30)
    targets = y * 0.25
    for name, values, task in (("w", y, "classification"), ("r", targets, "regression")):
        grown, whole = tmp_path / f"{name}.zarr", tmp_path / f"{name}-all.zarr"
        narrow = X.astype(np.int8)
        ingest((narrow, values), whole, sample_weight=weight, task=task)
        ingest((narrow[:20], values[:20]), grown, sample_weight=weight[:20], task=task)
        ingest((narrow[20:], values[20:]), grown, sample_weight=weight[20:], append=True)
        ours, theirs = open_store(grown), open_store(whole)
        assert ours.content_fingerprint == theirs.content_fingerprint
        assert (ours.dtype, ours.has_weights, ours.classes is None) == (np.int8, True, task == "regression")
    with pytest.raises(UsageError, match="--append and --overwrite"):
        ingest((X, y), grown, append=True, overwrite=True)


def test_the_scales_of_columns_say_of_which_rows_they_are(tmp_path: Path) -> None:
    X, y = rows(60, dense=True)
    X += 1.0
    X[:20, 0] *= 50.0  # worse than the rest, without a column that is named
    path, known = tmp_path / "a.zarr", []
    ingest((X[:10], y[:10]), path)
    for start, stop in ((10, 20), (20, 40), (40, 60)):
        if start == 40:
            X[start:stop, 3] = 1e6
        ingest((X[start:stop], y[start:stop]), path, append=True)
        known.append(open_store(path).content["column_scale"])
    assert known[0]["rows"] in ([0, 10], [10, 20])
    assert known[1]["rows"] == known[0]["rows"]
    assert known[2]["rows"] == [40, 60]
    assert known[2]["max"] == 1e6
    warning = scale_warning(known[2])
    assert warning is not None
    assert "in rows 40 to 59, columns differ" in warning
    assert "in rows" in str(scale_warning(known[1], "more"))


def test_the_worse_part_is_taken_where_no_column_is_named(tmp_path: Path) -> None:
    X, y = rows(40, dense=True)
    X += 1.0
    X[20:, 0] *= 50.0
    path = tmp_path / "a.zarr"
    ingest((X[:20], y[:20]), path)
    ingest((X[20:], y[20:]), path, append=True)
    assert open_store(path).content["column_scale"]["rows"] == [20, 40]
