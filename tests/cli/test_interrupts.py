"""Signals outside of training: 75, or the result; never a signal's own end, never lost."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bigsvm.cli.interrupts import Interruption, check_interrupted, unwinding_on_signals
from bigsvm.cli.session import Session
from bigsvm.events import WorkAdvanced


@pytest.fixture(autouse=True)
def _heeded() -> None:
    """Signals do what they do by default: what `nohup` or a shell's background ignores, children would ignore, too."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


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


@pytest.mark.parametrize("only_told", [False, True], ids=["perhaps on disk", "only told"])
@pytest.mark.parametrize("where", ["in an import", "in a callback", "nowhere"])
def test_a_signal_without_effect_has_it_before_the_result_is_told(
    where: str, only_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A short command is over before the signal is sent again: `inspect` wrote a result a second after Ctrl-C.

    Where a command may have changed something its result is told: a promotion has been made by then.
    """
    monkeypatch.setattr("bigsvm.cli.interrupts._AGAIN_S", 60.0)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "signals_itself.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    monkeypatch.delitem(sys.modules, "signals_itself", raising=False)
    heeded = where != "nowhere" and only_told
    with unwinding_on_signals(to_the_end=False):
        if where == "in an import":
            importlib.import_module("signals_itself")
        elif where == "in a callback":
            with contextlib.suppress(Interruption):
                os.kill(os.getpid(), signal.SIGINT)
                signal.sigpending()
        with pytest.raises(Interruption) if heeded else contextlib.nullcontext():
            Session("test").finish({}, "the result", only_told=only_told)
    assert capsys.readouterr().out == ("" if heeded else "the result\n")
    check_interrupted()


@pytest.mark.parametrize("at", ["bigsvm.cli", "click", "bigsvm.cli.failures"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_while_the_program_is_loaded_is_told_in_one_line(number: int, at: str) -> None:
    """It ended Python with a traceback."""
    code = (
        "import os, sys\n"
        "class Sender:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {at!r}:\n"
        f"            os.kill(os.getpid(), {int(number)})\n"
        "sys.meta_path.insert(0, Sender())\n"
        "from bigsvm.__main__ import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", code, "completion", "bash", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 75, done.stderr
    assert done.stderr.startswith("bigsvm: error: interrupted (")
    assert done.stderr.count("\n") == 1
    assert json.loads(done.stdout)["status"] == "interrupted"


@pytest.mark.parametrize("way", ["ignored", "blocked"])
def test_signals_that_the_caller_keeps_from_the_program_stay_so(way: str) -> None:
    """As `nohup` does, or a service that heeds them itself."""
    code = (
        "import os, signal, sys\n"
        + {
            "ignored": "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n",
            "blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})\n",
        }[way]
        + "os.kill(os.getpid(), signal.SIGHUP)\n"
        "from bigsvm.__main__ import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", code, "completion", "bash"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


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


@pytest.mark.parametrize("destroyed", ["as it is told", "at exit"])
@pytest.mark.parametrize("meanwhile", ["if True:", "with warnings.catch_warnings():"])
def test_what_an_event_loop_has_not_begun_is_not_told(meanwhile: str, destroyed: str) -> None:
    """A signal between the making of a coroutine and its start, as zarr opens a group: Python warns of it later."""
    code = (
        "import atexit, os, signal, sys, warnings\n"
        "from bigsvm.cli import main\n"
        "async def opening(): pass\n"
        "kept = []\n"
        "def interrupted(args, call):\n"
        f"    {meanwhile}\n"
        "        kept.append(opening())\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "def told(error, args, call):\n"
        f"    {'kept.clear()' if destroyed == 'as it is told' else 'atexit.register(kept.clear)'}\n"
        "    return 75\n"
        "main._invoke, main._report = interrupted, told\n"
        "main.main(['inspect', 'rows.zarr'])\n"
    )
    done = subprocess.run([sys.executable, "-W", "default", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (75, "")


def test_a_signal_within_an_import_waits_for_its_end(tmp_path: Path) -> None:
    (tmp_path / "long_one.py").write_text(
        "import os, signal, threading, time\n"
        "def sender(former):\n"
        "    while True:\n"
        "        time.sleep(0.001)\n"
        "        for thread in threading.enumerate():\n"
        "            if isinstance(thread, threading.Timer) and thread is not former:\n"
        "                return thread\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "found = sender(None)\n"
        "for again in range(3):\n"  # each time the signal is sent again, and finds the import still there
        "    found.join()\n"
        "    found = sender(found)\n"
        "whole = True\n"
    )
    code = (
        "import sys, threading\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from bigsvm.cli.interrupts import Interruption, unwinding_on_signals\n"
        "try:\n"
        "    with unwinding_on_signals(True):\n"
        "        import long_one\n"
        "        threading.Event().wait()\n"
        "except Interruption:\n"
        "    sys.exit(75 if long_one.whole else 2)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 75


# Counts what the interpreter audits (files opened and renamed, imports, ...) from when the handlers are there, and
# sends a signal at one of these instants.
_TRIALS = 5
_AT_AN_INSTANT = """
import os, signal, sys
left, number = int(sys.argv.pop(1)), int(sys.argv.pop(1))
this, seen = os.getpid(), 0

def audited(event, arguments):
    global seen
    if os.getpid() == this and signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL:
        seen += 1
        if seen == left:
            os.kill(this, number)

from bigsvm.cli.main import main
sys.addaudithook(audited)
try:
    main()
finally:
    sys.stderr.write(f"{seen}\\n")
"""


def test_a_signal_at_any_instant_gives_75_or_the_result(store: Path, tmp_path: Path) -> None:
    def fit(name: str, instant: int, number: int) -> tuple[int, bytes, bytes]:
        arguments = ["fit", str(store), "--json", "--quiet", "-o", str(tmp_path / name)]
        command = [sys.executable, "-c", _AT_AN_INSTANT, str(instant), str(number), *arguments]
        done = subprocess.run(command, capture_output=True, check=False)
        return done.returncode, done.stdout, done.stderr

    for name in ("first", "undisturbed"):  # the first may compile, and write bytecode: the others open fewer files
        code, _, err = fit(name, 0, 0)
        assert code == 0, err
    instants, draw = int(err), random.Random(5)
    assert instants > 500
    codes = set()
    for trial in range(_TRIALS):
        # One in each part of the run, the last of them among the very last.
        instant = instants - 5 if trial == _TRIALS - 1 else (instants * trial + draw.randrange(instants)) // _TRIALS
        code, out, err = fit(f"m{trial}", instant, draw.choice((signal.SIGTERM, signal.SIGINT, signal.SIGHUP)))
        codes.add(code)
        assert code in (0, 75), err.decode()
        document = json.loads(out)
        assert document["status"] == ("converged" if code == 0 else "interrupted")
        # Between writing the model and saying so, it is there and the code is 75: `resume` says the rest.
        assert code == 75 or (tmp_path / f"m{trial}").exists()
        assert b"Traceback" not in err
    assert 75 in codes
