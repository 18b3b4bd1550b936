"""Worker processes of this machine that are killed before they are ready: started again, and not for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dask
import pytest

from bigsvm.errors import Interrupted
from bigsvm.run.execute.dask import open_dask_mapper

# Runs in each worker process while it starts; kills it as often as there are lines in a file.
_KILLED = """
import os
with open({path!r}, "r+") as file:
    lines = file.readlines()
    if lines:
        file.truncate(len(lines[0]) * (len(lines) - 1))
if lines:
    os.kill(os.getpid(), 9)
"""


def killing_preload(tmp_path: Path, times: int) -> tuple[str, Path]:
    """A script that kills the first `times` processes, and the file that says how many it still will."""
    left, script = tmp_path / "left", tmp_path / "killed.py"
    left.write_text("x\n" * times)
    script.write_text(_KILLED.format(path=str(left)))
    return str(script), left


@pytest.mark.cluster
def test_a_worker_killed_while_it_starts_is_started_again(tmp_path: Path) -> None:
    preload, left = killing_preload(tmp_path, 1)
    with (
        dask.config.set({"distributed.worker.preload": [preload]}),
        open_dask_mapper("processes", None, 1) as mapper,
    ):
        assert list(mapper.map(abs, [-1, -2, -3])) == [1, 2, 3]
    assert left.read_text() == ""


@pytest.mark.cluster
def test_workers_that_are_always_killed_interrupt_the_run(tmp_path: Path) -> None:
    preload, left = killing_preload(tmp_path, 100)
    with (
        dask.config.set({"distributed.worker.preload": [preload]}),
        pytest.raises(Interrupted, match="the worker processes did not start: they failed 3 times") as caught,
        open_dask_mapper("processes", None, 1),
    ):
        pass
    assert (caught.value.code, "repeat the command" in caught.value.hint) == (75, True)
    assert left.read_text() != ""


@pytest.mark.cluster
@pytest.mark.parametrize("guard", ["", 'if __name__ == "__main__":\n    '])
def test_a_script_without_its_guard_is_told_of_it(guard: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import numpy as np, bigsvm\n"
        "X = np.random.default_rng(0).standard_normal((60, 3))\n"
        f'{guard}print(bigsvm.fit((X, X[:, 0] > 0), scheduler="processes", workers=1, max_passes=2).status)\n'
    )
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode == 0) == bool(guard)
    assert ('put its code below `if __name__ == "__main__":`' in done.stderr) == (not guard)
