"""A command of bigsvm in a forked child, as if it were a program of its own: a smoke has dozens of them."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import bigsvm.cli.main
import bigsvm.run.fit.fit
import bigsvm.store.ingest.ingest
from bigsvm.testing.forked import Forked


def forked_command(command: list[str], errors: Path | None = None) -> Forked:
    """Start it.

    command : sys.executable, "-m", "bigsvm" and its arguments;  errors : file for what it says
    """
    return Forked(partial(_run, command[3:]), errors)


def _run(arguments: list[str]) -> None:
    sys.argv[:] = ["bigsvm", *arguments]
    bigsvm.cli.main.main()
