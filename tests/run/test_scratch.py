"""The scratch folder of a user who names none: his own, which nobody else can look into or put in the way."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import OutputError
from bigsvm.store.copy import scratch
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
