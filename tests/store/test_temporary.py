"""Temporary folders: nothing stays after a signal, and what a kill leaves goes with the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bigsvm.errors import OutputError
from bigsvm.files import temporary
from bigsvm.files.temporary import temporary_folder
from bigsvm.model.exchange.exchange import export_model
from bigsvm.model.linear_model import LinearModel
from tests.store.test_files import a_dead_process

_ENDED = """
import os, shutil, signal, sys
from contextlib import contextmanager
from bigsvm.cli import main
from bigsvm.files import atomic, temporary
from bigsvm.model.exchange import npz
place, number = sys.argv[1], int(sys.argv[2])
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, if the tests run in the background

def ended_before(call):
    def ended(*given, **how):
        where, name = {"in the block": (npz, "load_model"), "in its removal": (shutil, "rmtree")}[place]
        setattr(where, name, call)
        os.kill(os.getpid(), number)
        return call(*given, **how)
    return ended

if place == "in the block":
    npz.load_model = ended_before(npz.load_model)
elif place == "in its removal":
    shutil.rmtree = ended_before(shutil.rmtree)
else:  # before its removal: no handler can hold back what comes between two steps
    @contextmanager
    def undisturbed():
        temporary.undisturbed = was
        os.kill(os.getpid(), number)
        with was():
            yield
    was, temporary.undisturbed = temporary.undisturbed, undisturbed
main.main(["import", "m.npz", "m", "--quiet"])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("place", ["in the block", "before its removal", "in its removal"])
def test_nothing_stays_of_an_import_that_is_interrupted(place: str, number: int, tmp_path: Path) -> None:
    export_model(LinearModel(np.ones((1, 3)), np.zeros(1), np.array([0, 1])), tmp_path / "m.npz")
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _ENDED, place, str(int(number))],
        cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path / "tmp")}, capture_output=True, check=False,
    )  # fmt: skip
    left = list((tmp_path / "tmp").iterdir())
    if number != signal.SIGKILL:
        assert (done.returncode, left) == (75, []), done.stderr
        assert not (tmp_path / "m").exists()
        return
    assert (done.returncode, len(left)) == (-number, 1)
    with temporary_folder(tmp_path / "tmp") as folder:
        assert list((tmp_path / "tmp").iterdir()) == [folder]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_only_folders_of_the_dead_are_removed(tmp_path: Path) -> None:
    machine, pid, started = a_dead_process()
    dead, elsewhere = (tmp_path / f".bigsvm.tmp-{at}-{pid}-{started}-00000000" for at in (machine, "ffffffff"))
    others = [elsewhere, tmp_path / "bigsvm-of-a-user", tmp_path / ".bigsvm"]
    for folder in (dead, *others):
        (folder / "within").mkdir(parents=True)
    with temporary_folder(tmp_path) as first, temporary_folder(tmp_path) as second:
        assert set(tmp_path.iterdir()) == {first, second, *others}
        assert first.stat().st_mode & 0o777 == 0o700
    assert set(tmp_path.iterdir()) == set(others)
    assert not temporary._made


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write") as caught, temporary_folder(tmp_path / "nothing"):
        pass
    assert caught.value.where == str(tmp_path / "nothing")
    assert not temporary._made


def test_a_forked_child_that_ends_by_an_exception_leaves_its_parents_folder(tmp_path: Path) -> None:
    parent = os.getpid()
    try:
        with temporary_folder(tmp_path) as folder:
            child = os.fork()
            if child == 0:
                sys.exit(0)
            os.waitpid(child, 0)
            assert folder.is_dir()
    finally:
        if os.getpid() != parent:
            os._exit(0)
    assert not folder.exists()
