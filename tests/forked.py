"""Small programs, each in a process of its own that is forked from one that has imported what they need.

Importing takes most of what a small program takes.  What it calls is as new in the forked process as in one that was
started: the one that it is forked from has called nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_SERVE = """
import json, os, sys, traceback

for line in sys.stdin:
    program, arguments, said = json.loads(line)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            sys.argv[1:] = arguments
            os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND), 2)
            os.dup2(2, 1)  # what is read from this one is how programs ended, and nothing else
            exec(compile(program, "program", "exec"), {**globals(), "__name__": "__main__"})
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
            if code == 1:
                print(ended.code, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

Run = Callable[..., None]


@contextmanager
def programs(imports: str, folder: Path) -> Iterator[Run]:
    """`run(program, *arguments)`, which asserts that the program ends with 0, and says what it said if it does not.

    imports : what comes before every program, and is run once
    folder : for what they say
    """
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", imports + _SERVE], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        given, ended, said = process.stdin, process.stdout, folder / "said"

        def run(program: str, *arguments: str) -> None:
            print(json.dumps([program, arguments, str(said)]), file=given, flush=True)
            assert ended.readline().strip() == "0", said.read_text()

        yield run
        given.close()
