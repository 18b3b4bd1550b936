"""Signals while an estimator is fitted: the program gets them, whatever the search around the fit does with errors."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from tests.forked import scripts

IMPORTS = """
import atexit, os, signal, sys
import numpy as np
from sklearn.model_selection import GridSearchCV
from bigsvm.run.fit.loop import Loop
from bigsvm.sklearn import LinearSVC
"""
PROGRAM = """
numbers, handler = [getattr(signal, name) for name in sys.argv[1].split(",")], sys.argv[2]
atexit.register(print, "ended in order", flush=True)
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, if the tests run in the background
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored, if they run under nohup
if handler == "own":
    for number in numbers:
        signal.signal(number, lambda number, frame: print("told of", signal.Signals(number).name, flush=True))
plain = Loop._pause

def pause(loop):
    if "stop_on_signals" in repr(signal.getsignal(numbers[0])):  # no fit that compiles
        for number in numbers:  # between two blocks
            os.kill(os.getpid(), number)
    plain(loop)

Loop._pause = pause
X = np.random.default_rng(0).standard_normal((60, 3))
search = GridSearchCV(LinearSVC(solver="dcd"), {"C": [0.1, 1.0]}, cv=2)
search.fit(X, X[:, 0] > 0)
print("the search went on", flush=True)
"""


Ended = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    """How a process ends that gets signals, and what it says.  It is forked: importing would be most of its work."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "program.py").write_text(PROGRAM)
    with scripts(IMPORTS, folder) as run:

        def ended(numbers: str, handler: str = "none") -> tuple[int, str, str]:
            done = run(folder / "program.py", numbers, handler)
            return done.returncode, done.stdout, done.stderr

        yield ended


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 128 + 15), ("SIGHUP", 128 + 1)])
def test_a_signal_ends_a_program_that_does_not_handle_it(ended: Ended, name: str, code: int) -> None:
    """A search took it for one fit that failed, and went on."""
    found, out, _ = ended(name)
    assert (found, out) == (code, "ended in order\n")


def test_ctrl_c_is_a_keyboard_interrupt(ended: Ended) -> None:
    code, out, err = ended("SIGINT")
    assert code not in (0, 75)
    assert out == "ended in order\n"
    assert err.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_handler_of_the_program_is_called(ended: Ended, name: str) -> None:
    code, out, err = ended(name, "own")
    assert out == f"told of {name}\nended in order\n"
    assert (code not in (0, 75), f"KeyboardInterrupt: stopped by {name}" in err) == (True, True)


def test_a_second_signal_goes_to_the_program(ended: Ended) -> None:
    """It ended the process at once with the exit code of a command: in a notebook that is the kernel."""
    code, out, err = ended("SIGINT,SIGINT")
    assert (out, err.rstrip().endswith("KeyboardInterrupt")) == ("ended in order\n", True)
    assert code not in (0, 75)
    assert ended("SIGTERM,SIGTERM")[:2] == (-signal.SIGTERM, "")
    assert ended("SIGTERM,SIGTERM", "own")[1] == "told of SIGTERM\ntold of SIGTERM\nended in order\n"
