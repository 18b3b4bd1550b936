"""The scratch folder of a user who names none: his own, which nobody else can look into or put in the way."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import OutputError
from bigsvm.events import silent
from bigsvm.store.copy import scratch
from bigsvm.store.copy.copy_folder import kept_copy, remove_copy, tree_bytes
from bigsvm.store.copy.scratch import make_scratch, scratch_folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("BIGSVM_SCRATCH")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_two_users_of_a_machine_do_not_meet(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = scratch_folder(FitConfig())
    assert mine.parent == temporary
    assert not mine.exists()  # asking makes nothing
    assert make_scratch(FitConfig()) == make_scratch(FitConfig()) == mine
    assert mine.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert scratch_folder(FitConfig()) not in (mine, temporary)


@pytest.mark.usefixtures("streaming")
def test_a_fit_works_there(temporary: Path) -> None:
    X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    bigsvm.fit((X, (X[:, 0] > 0).astype(int)), loss="hinge", memory="64MiB")
    assert list(temporary.iterdir()) == [scratch_folder(FitConfig())]
    assert list(temporary.glob("*/bigsvm/rows-*/staged.json"))


@pytest.mark.parametrize("what", ["a link", "a file", "another user's"])
def test_what_somebody_put_there_is_refused(temporary: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = scratch_folder(FitConfig())
    if what == "a link":
        (temporary / "theirs").mkdir()
        folder.symlink_to("theirs")
    elif what == "a file":
        folder.touch()
    else:
        folder.mkdir()
        monkeypatch.setattr(scratch, "_own_folder", lambda: folder)
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(OutputError, match="does not belong to you"):
        make_scratch(FitConfig())


def test_a_folder_that_was_named_is_taken_as_it_is(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_scratch(FitConfig(scratch="/here")) == Path("/here")
    monkeypatch.setenv("BIGSVM_SCRATCH", "/there")
    assert make_scratch(FitConfig()) == Path("/there")


@pytest.mark.parametrize("how", ["option", "variable"])
def test_copies_of_another_user_in_a_named_folder_are_refused(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bigsvm").touch()  # nobody can make a folder in it, not even root
    if how == "variable":
        monkeypatch.setenv("BIGSVM_SCRATCH", str(tmp_path))
    with pytest.raises(OutputError, match=r"bigsvm: does not belong to you \(use --scratch DIR"):
        make_scratch(FitConfig.of(scratch=str(tmp_path)) if how == "option" else FitConfig())


@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_relative_folder_is_the_same_from_everywhere(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for workers that were started elsewhere."""
    monkeypatch.chdir(tmp_path)
    if how == "variable":
        monkeypatch.setenv("BIGSVM_SCRATCH", "here")
    found = make_scratch(FitConfig.of(scratch="here") if how == "option" else FitConfig())
    assert str(found) == str(tmp_path / "here")


def test_a_copy_that_is_deleted_between_two_locks_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who makes room takes the lock in the instant in which an exclusive one becomes a shared one."""
    folder, made, left = tmp_path / "rows-0", list[str](), [remove_copy]
    plain = fcntl.flock

    def make() -> None:
        (folder / "staged.json").write_text("{}")
        made.append("a copy")

    def flock(lock: IO[str], how: int) -> None:
        if how == fcntl.LOCK_SH and left:
            plain(lock, fcntl.LOCK_UN)
            assert left.pop()(folder)
        plain(lock, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with kept_copy(folder, (folder / "staged.json").exists, make, silent):
        assert (folder / "staged.json").exists()
    assert made == ["a copy", "a copy"]


def test_copies_are_measured_while_others_delete_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes room adds up all copies, and one of them may be going."""
    for name in ("here", "gone/inner"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_bytes(b"12345")
    scan = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("inner"):
            shutil.rmtree(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert tree_bytes(tmp_path) == 5
