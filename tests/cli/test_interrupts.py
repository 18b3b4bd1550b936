"""Signals outside of training: 75, or the result; never a signal's own end, never lost."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bigsvm.cli.interrupts import Interruption, check_interrupted, unwinding_on_signals
from bigsvm.cli.session import Session
from bigsvm.events import WorkAdvanced


def test_what_a_callback_swallows_is_raised_again_where_progress_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    callback = ctypes.CFUNCTYPE(None)(lambda: os.kill(os.getpid(), signal.SIGTERM))
    former = signal.getsignal(signal.SIGTERM)
    with unwinding_on_signals(to_the_end=False), Session("test", quiet=True).watching() as emit:
        emit(WorkAdvanced("rows", 1))
        with contextlib.suppress(Interruption):  # of an interpreter that heeds signals after the callback
            callback()
        assert capsys.readouterr().err == ""
        with pytest.raises(Interruption):
            emit(WorkAdvanced("rows", 2))
    check_interrupted()  # forgotten with the call that it came in
    assert signal.getsignal(signal.SIGTERM) is former


def test_an_interruption_in_executed_source_does_not_end_the_process_by_a_signal() -> None:
    code = (
        "import os, signal, sys\n"
        "from bigsvm.cli.interrupts import Interruption, unwinding_on_signals\n"
        "try:\n"
        "    with unwinding_on_signals(True):\n"
        "        exec('os.kill(os.getpid(), signal.SIGTERM)')\n"
        "except Interruption:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"  # too late: ignored
        "    sys.exit(75)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 75


def test_a_signal_within_an_import_waits_for_its_end(tmp_path: Path) -> None:
    (tmp_path / "long_one.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(0.2)\nwhole = True\n"
    )
    code = (
        "import sys, time\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from bigsvm.cli.interrupts import Interruption, unwinding_on_signals\n"
        "try:\n"
        "    with unwinding_on_signals(True):\n"
        "        import long_one\n"
        "        time.sleep(5)\n"
        "        sys.exit(1)\n"
        "except Interruption:\n"
        "    sys.exit(75 if long_one.whole else 2)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 75


def test_a_signal_at_any_instant_gives_75_or_the_result(store: Path, tmp_path: Path) -> None:
    draw = random.Random(5)
    loud = "import sys; from bigsvm.cli.main import main; sys.stderr.write('.'); sys.stderr.flush(); main()"
    for trial in range(12):
        command = [
            sys.executable,
            "-c",
            loud,
            "fit",
            str(store),
            "--json",
            "--quiet",
            "-o",
            str(tmp_path / f"m{trial}"),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            assert process.stderr.read(1) == b"."
            time.sleep(0.05 + draw.random() * 0.9)  # from when the handlers are there, to after the end
            process.send_signal(draw.choice((signal.SIGTERM, signal.SIGINT, signal.SIGHUP)))
            out, err = process.communicate(timeout=60)
        assert process.returncode in (0, 75), err.decode()
        document = json.loads(out)
        assert document["status"] == ("converged" if process.returncode == 0 else "error")
        # Between writing the model and saying so, it is there and the code is 75: `resume` says the rest.
        assert process.returncode == 75 or (tmp_path / f"m{trial}").exists()
        assert b"Traceback" not in err
