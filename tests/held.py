"""Programs that wait for their test: a signal comes at a known instant, however long anything takes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

_HOLD = """
import sys
from bigsvm.observe.jsonl import JsonlFile

record = JsonlFile.__call__

def held(self, event):
    record(self, event)
    if type(event).__name__ == "EpochEnd":
        print("an epoch is over", file=sys.stderr, flush=True)
        sys.stdin.readline()

JsonlFile.__call__ = held
"""


def signalled_in_training(program: str, arguments: list[str], folder: Path, number: int) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of a program that gets a signal while it trains.

    It stands still at the end of its first epoch until the signal is there, so its fit cannot have ended before.

    program : Python source that runs a fit as `arguments` say, with a record of its run
    """
    command = [sys.executable, "-c", _HOLD + program, *arguments]
    pipe = subprocess.PIPE
    # Shells start what runs in the background with SIGINT ignored, and children inherit that.
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    finally:
        signal.signal(signal.SIGINT, former)
    with process:
        before = _until(process.stderr, "an epoch is over")
        process.send_signal(number)
        out, err = process.communicate("\n")  # the signal is there before this line is
    return process.returncode, out, before + err


def _until(stream: IO[str] | None, said: str) -> str:
    """The lines before the one that is awaited."""
    assert stream is not None
    before = ""
    for line in stream:
        if line.strip() == said:
            return before
        before += line
    raise AssertionError(f"it ended too early: {before}")
