"""Small programs and scripts, each in a process of its own, forked from one that has imported what takes them longest.

Importing takes most of what a small program takes.  What it calls is as new in the forked process as in one that was
started: the one that it is forked from has called nothing.  It ends as Python ends, with what is registered for that.
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

if "numba" in sys.modules:
    runpy.run_path(_tables)
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
runpy.run_path(script, _imported, run_name="__main__")
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@contextmanager
def scripts(imports: str, folder: Path) -> Iterator[Run]:
    """`run(script, *arguments)`, which gives how the script ended and what it said.

    imports : what is run once, before every script, and whose names every script knows
    folder : for what they say
    """
    pipe, said = subprocess.PIPE, [folder / "stdout", folder / "stderr"]
    tables = str(Path(__file__).with_name("numba_tables.py"))
    server = [sys.executable, "-c", f"{imports}\n_imported = dict(globals())\n_tables = {tables!r}\n{_SERVE}"]
    with subprocess.Popen(server, stdin=pipe, stdout=pipe, text=True) as process:
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


@contextmanager
def programs(imports: str, folder: Path) -> Iterator[Callable[..., None]]:
    """As `scripts`: `run(program, *arguments)`, which asserts that the text of a program ends with 0."""
    script = folder / "program.py"
    with scripts(imports, folder) as run_script:

        def run(program: str, *arguments: str) -> None:
            script.write_text(program)
            done = run_script(script, *arguments)
            assert done.returncode == 0, done.stdout + done.stderr

        yield run
