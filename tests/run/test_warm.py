"""Everything that a fit calls is compiled before its memory is counted, also with an empty kernel cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_FIT = """
import sys
from numba.core import event
import bigsvm
from bigsvm.run import fit, sizes
from bigsvm.testing.problems import random_problem

class Compiled(event.Listener):
    names, counting = [], False
    def on_start(self, found):
        if self.counting:
            self.names.append(found.data["dispatcher"].py_func.__qualname__)
    def on_end(self, found):
        pass

compiled, warm = Compiled(), fit.warm
event.register("numba:compile", compiled)

def warm_then_count(*arguments):
    warm(*arguments)
    compiled.counting = True

fit.warm = warm_then_count
sizes._COPY_BLOCK, sizes.BLOCK_BYTES = 600, 6000
sizes.Sizes.resident_from = lambda self: 1 << 50
X, y = random_problem(900, 6, seed=3)
options = {"solver": sys.argv[1], "loss": sys.argv[2], "tol": 1e-5, "max_passes": 60, "memory": "64MiB"}
rows = X.astype("float32"), y
result = bigsvm.fit_path(rows, [0.1, 1.0], **options)[0] if "path" in sys.argv else bigsvm.fit(rows, **options)
assert not result.model.about["plan"]["resident"]
sys.exit(f"compiled in the fit: {sorted(set(compiled.names))}" if compiled.names else 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solver", "loss"),
    [
        ("dcd", "hinge"),
        ("hyperpass", "hinge"),
        ("pegasos", "hinge"),
        ("newton", "squared_hinge"),
        ("newton-ws", "hinge"),
    ],
)
def test_nothing_is_compiled_inside_a_fit(tmp_path: Path, solver: str, loss: str) -> None:
    environment = {**os.environ, "BIGSVM_CACHE": str(tmp_path / "kernels"), "BIGSVM_SCRATCH": str(tmp_path / "scratch")}
    command = [sys.executable, "-c", _FIT, solver, loss, *(["path"] if solver == "newton-ws" else [])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
