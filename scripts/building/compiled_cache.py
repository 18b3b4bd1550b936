"""Fill the cache of compiled functions that a wheel ships: `compiled_cache.py OUT USES`.

Each level of processors is a process of its own, since numba compiles for one; they run at the same time.  A level that
this machine's processor has not is left out: what is compiled is also called.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PATIENCE_S = 900.0
_WARM = """
import json, sys
from bigsvm.run.warm import CASES, warm
uses, widest = json.loads(sys.argv[1])
warm(uses, cases=[case for case in CASES if not widest or dict(case.options).get("kernel")])
"""
"""Of the widest vectors only loops of kernels make use."""
WITHOUT_KERNELS = {"demo"}
"""Uses without such loops: nothing would be compiled for processors with the widest vectors."""


def fill(out: Path, uses: list[str]) -> int:
    """Compile what `uses` call, into `out`; returns how many functions.  Raises RuntimeError where it cannot."""
    sys.path.insert(0, str(ROOT))
    from bigsvm.compiled.cache.places import LEVELS, lacks
    from bigsvm.compiled.cache.shipping import gather

    levels = [level for level in list(LEVELS)[: 1 if WITHOUT_KERNELS.issuperset(uses) else None] if not lacks(level)]
    if not levels:
        raise RuntimeError(f"this processor has no {', '.join(lacks(next(iter(LEVELS))))}")
    with tempfile.TemporaryDirectory(prefix="bigsvm-") as folder:
        filled = {level: Path(folder) / level for level in levels}
        running = {level: _started(level, filled[level], uses, level != levels[0]) for level in levels}
        try:
            for level, process in running.items():
                _, said = process.communicate(timeout=_PATIENCE_S)
                if process.returncode:
                    raise RuntimeError(f"{level}: {said.strip().rpartition(chr(10))[2] or process.returncode}")
        finally:
            for process in running.values():
                process.kill()
                process.communicate()
        return gather(filled, out)


def _started(level: str, cache: Path, uses: list[str], widest: bool) -> subprocess.Popen[str]:
    theirs = {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    theirs |= {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": "", "BIGSVM_CACHE": str(cache), "TMPDIR": str(cache)}
    cache.mkdir()
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("BIGSVM_", "NUMBA_"))}
    return subprocess.Popen(
        [sys.executable, "-c", _WARM, json.dumps([uses, widest])],
        env={**ours, **theirs}, cwd=cache, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


if __name__ == "__main__":
    print(fill(Path(sys.argv[1]), sys.argv[2].split(",")))
