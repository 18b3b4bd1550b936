"""Scripts, each in a process of its own that is forked from one that has imported what takes them longest.

As `forked`, for files that end as Python ends: with what is registered for the end, and threads that are waited for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_SERVE = """
import gc, json, os, runpy, sys
import bigsvm.cli.main, bigsvm.run.api

gc.freeze()
for line in sys.stdin:
    script, arguments, surroundings, folder, said = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()

for number, path in enumerate([os.devnull, *said]):
    os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
sys.stdin = open(os.devnull)
os.environ.clear()
os.environ.update(surroundings)
os.chdir(folder)
sys.argv[:], sys.path[0] = [script, *arguments], os.path.dirname(script)
runpy.run_path(script, run_name="__main__")
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@contextmanager
def scripts(folder: Path) -> Iterator[Run]:
    """`run(script, *arguments)`, which gives how the script ended and what it said, kept in `folder` meanwhile."""
    pipe, said = subprocess.PIPE, [folder / "stdout", folder / "stderr"]
    with subprocess.Popen([sys.executable, "-c", _SERVE], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        given, ended = process.stdin, process.stdout

        def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
            files = [str(path) for path in said]
            print(json.dumps([str(script), arguments, {**os.environ}, os.getcwd(), files]), file=given, flush=True)
            code = int(ended.readline())
            return subprocess.CompletedProcess([str(script), *arguments], code, *(path.read_text() for path in said))

        yield run
        given.close()
