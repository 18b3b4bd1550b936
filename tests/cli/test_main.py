"""The entry: help, exit codes, one line per failure, one JSON document per call."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.cli.failures import failure_of
from bigsvm.cli.main import COMMANDS
from bigsvm.errors import DataError, Interrupted, PlanRefused
from tests.cli.conftest import Bigsvm
from tests.held import signalled_in_training
from tests.store.formats import written

PROGRAM = [sys.executable, "-c", "from bigsvm.cli.main import main; main()"]


def test_help_lists_every_command(bigsvm: Bigsvm) -> None:
    said = bigsvm("--help")
    assert said.code == 0
    assert all(name in said.out for name in COMMANDS)
    assert said.err == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_the_common_options(bigsvm: Bigsvm, name: str) -> None:
    said = bigsvm(name, "--help")
    assert said.code == 0
    for option in ("--json", "--quiet", "--verbose", "--log-format", "--no-progress", "--debug", "--config"):
        assert option in said.out


@pytest.mark.parametrize(
    ("command", "name", "make", "what"),
    [
        ("fit", "rows.h5ad", os.mkdir, "is a folder, not a file"),
        ("ingest", "rows.h5ad", os.mkdir, "is a folder, not a file"),
        ("fit", "rows.h5ad", os.mkfifo, "is a pipe or a device, not a file"),
        ("seal", "rows.zarr", os.mkfifo, "is a pipe or a device, not a store"),
        ("verify", "rows.zarr", os.mkfifo, "is a pipe or a device, not a store"),
    ],
)
def test_what_has_the_name_of_a_store_and_is_none_is_called_what_it_is(
    command: str, name: str, make: Any, what: str, bigsvm: Bigsvm, tmp_path: Path
) -> None:
    """Not "no such file", with the advice to name the very same."""
    make(tmp_path / name)
    said = bigsvm(command, name, *["out.zarr"] * (command == "ingest"))
    assert (said.code, said.err.count("\n")) == (66, 1)
    assert f"{name}: {what}" in said.err
    assert "did you mean" not in said.err


def test_a_mistyped_command_and_a_mistyped_store_are_answered_with_what_is_there(
    bigsvm: Bigsvm, tmp_path: Path
) -> None:
    said = bigsvm("fitt", "rows.zarr")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "No such command 'fitt', did you mean 'fit'?" in said.err
    (tmp_path / "rows.zarr").mkdir()
    for command in ("fit", "seal", "verify"):
        said = bigsvm(command, str(tmp_path / "row.zarr"))
        assert said.code == 66
        assert f"did you mean {tmp_path}/rows.zarr?" in said.err
    said = bigsvm("fit", str(tmp_path / "folder" / "row.zarr"))
    assert f"there is no folder {tmp_path}/folder that can be listed" in said.err
    (tmp_path / "loop.zarr").symlink_to(tmp_path / "loop.zarr")
    for target in ("loop.zarr", "gone.zarr"):
        (tmp_path / "loop.zarr").unlink()
        (tmp_path / "loop.zarr").symlink_to(tmp_path / target)
        assert (
            f"it is a link to {tmp_path}/{target}, which does not exist"
            in bigsvm("fit", str(tmp_path / "loop.zarr")).err
        )
    (tmp_path / "people.csv").write_text("age,label\n")
    said = bigsvm("fit", str(tmp_path / "people.csv"))
    assert (said.code, "there are no rows" in said.err) == (65, True)


def test_an_option_before_its_command_is_told_where_it_goes(bigsvm: Bigsvm) -> None:
    said = bigsvm("--json", "fit", "rows.zarr")
    assert (said.code, said.document["command"]) == (2, "fit")
    assert said.document["error"]["hint"] == "options come after the command: bigsvm fit ... --json"
    assert "see bigsvm --help" in bigsvm("--jsn", "fit", "rows.zarr").err


def test_what_may_not_be_read_is_a_missing_input() -> None:
    refused = failure_of(PermissionError(errno.EACCES, "Permission denied", "rows.zarr"))
    assert (refused.code, refused.said) == (66, "rows.zarr: cannot be read: Permission denied")


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("names", [[], ["NUMBA_DISABLE_JIT"], ["NUMBA_OPT", "ZARR_ASYNC__CONCURRENCY"]])
def test_settings_of_libraries_may_be_what_looks_like_a_bug(
    names: list[str], debug: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(os.environ):
        if name.startswith(("NUMBA_", "ZARR_", "DASK_", "PYTHONOPTIMIZE")):
            monkeypatch.delenv(name)
    for name in reversed(names):
        monkeypatch.setenv(name, "1")
    refused = failure_of(TypeError("'<' not supported"), debug)
    assert refused.code == 1
    first, *rest = refused.hint.split("; ")
    assert first == (
        "this is a bug"
        if not names
        else f"this is a bug, or an effect of these settings: run again without {', '.join(names)}"
    )
    assert rest == ([] if debug else ["run again with --debug for the traceback"])


@pytest.mark.parametrize("command", ["inspect", "fit", "plan"])
def test_a_working_directory_that_was_removed_is_told(
    command: str, bigsvm: Bigsvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    said = bigsvm(command, "rows.csv")
    assert said.code == 66
    assert "the working directory was removed (cd to a folder that is there)" in said.err


def test_assertions_that_zarr_lacks_are_told(tmp_path: Path) -> None:
    """`python -O` removes them, and some read the document."""
    path = written(tmp_path / "rows.zarr", np.eye(6), np.arange(6) % 2)
    command = [sys.executable, "-O", *PROGRAM[1:], "inspect", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 65)
    assert ("run without python -O" in done.stderr) == (done.returncode == 65)


def test_version(bigsvm: Bigsvm) -> None:
    import bigsvm as package

    assert bigsvm("--version").out == f"bigsvm {package.__version__}\n"


@pytest.mark.parametrize(
    "args",
    [["nonsense"], ["fit"], ["fit", "a", "b"], ["fit", "a", "--no-such"], ["fit", "a", "--memory", "many"],
     ["fit", "a", "--max-time", "soon"], ["fit", "a", "--loss", "log"], ["fit", "a", "--set", "x"],
     ["fit", "a", "--class-weight", "x"], ["fit", "a", "-e", "0"], ["fit", "a", "--threads", "0"],
     ["fit", "a", "-c", "1", "--lambda", "1"], ["fit", "a", "-c", "nan"]],
)  # fmt: skip
def test_usage_errors(bigsvm: Bigsvm, args: list[str]) -> None:
    said = bigsvm(*args)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("bigsvm: error: ")
    assert said.err.count("\n") == 1
    said = bigsvm(*args, "--json")
    assert said.code == 2
    document = said.document
    assert document["schema_version"] == 1
    assert document["status"] == "error"
    assert document["command"] == ("fit" if args[0] == "fit" else "bigsvm")
    assert document["error"]["code"] == 2
    assert set(document["error"]) == {"code", "message", "where", "hint"}


def test_no_command_prints_help_as_an_error(bigsvm: Bigsvm) -> None:
    said = bigsvm()
    assert (said.code, said.out) == (2, "")
    assert "Commands" in said.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DataError("bad", "f:1", "mend it"), 65),
        (Interrupted("lost"), 75),
        (PlanRefused("too small", min_memory_bytes=7), 78),
        (KeyboardInterrupt(), 75),
        (ZeroDivisionError("oops"), 1),
        (OSError(errno.ENOSPC, "No space left on device", "x"), 73),
        (OSError(errno.EIO, "Input/output error", "x"), 74),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 74),  # of a server or a child: somebody reads our output
        (MemoryError(), 78),
    ],
)
def test_failures(bigsvm: Bigsvm, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error

    monkeypatch.setattr("bigsvm.run.start.targets.open_for", fail)
    said = bigsvm("plan", "x.zarr")
    assert (said.code, said.out) == (code, "")
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err
    document = bigsvm("plan", "x.zarr", "--json").document
    assert document["error"]["code"] == code
    if isinstance(error, PlanRefused):
        assert document["error"]["min_memory_bytes"] == 7
    if isinstance(error, DataError):
        assert document["error"] == {"code": 65, "message": "bad", "where": "f:1", "hint": "mend it"}
        assert said.err == "bigsvm: error: f:1: bad (mend it) [errors.md#bad-data]\n"
    if isinstance(error, ZeroDivisionError):
        assert "run again with --debug" in said.err
    assert "Traceback" in bigsvm("plan", "x.zarr", "--debug").err


def test_a_message_of_many_lines_becomes_one(bigsvm: Bigsvm, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise DataError("first\n  second", "a\nb")

    monkeypatch.setattr("bigsvm.run.start.targets.open_for", fail)
    assert bigsvm("plan", "x").err == "bigsvm: error: a b: first second [errors.md#bad-data]\n"


def test_missing_store(bigsvm: Bigsvm) -> None:
    said = bigsvm("fit", "nothing.zarr", "--json")
    assert said.code == 66
    assert said.document["error"]["where"] == "nothing.zarr"
    assert os.listdir() == []  # no model, no run


def test_a_reader_that_goes_away_is_quiet(model: Path, store: Path) -> None:
    command = [*PROGRAM, "predict", str(model), str(store), "--quiet", "--scores"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_75_and_leaves_no_model(store: Path, tmp_path: Path, number: int) -> None:
    # A tolerance that nothing meets: one epoch is not the end.
    command = ["fit", str(store), "-c", "1e6", "--loss", "hinge", "-e", "1e-300", "-o", "m"]
    code, _, err = signalled_in_training(PROGRAM[-1], command, tmp_path, number)
    assert code == 75, err
    assert "Traceback" not in err
    assert not (tmp_path / "m").exists()
    assert not [name for name in os.listdir(tmp_path) if ".tmp-" in name]


@pytest.mark.parametrize("unbuffered", ["", "1"])  # where there is a buffer Python writes it once more at its end
@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("name", ["small.zarr", "nowhere.zarr"])
def test_a_full_standard_output_is_73(name: str, flags: list[str], unbuffered: str, store: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*PROGRAM, "inspect", str(store.with_name(name)), *flags],
            stdout=full, stderr=subprocess.PIPE, check=False, env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert done.returncode == (73 if name == store.name else 66)
    assert b"Traceback" not in done.stderr
    assert b"ignored" not in done.stderr
    assert (b"standard output: cannot write: No space left on device" in done.stderr) == (name == store.name)


@pytest.mark.parametrize(
    "asked", [["dump", "small.zarr", "-"], ["fit", "--help"], ["--version"], ["completion", "bash"]]
)
def test_a_full_standard_output_is_named_without_the_space_of_another_disk(asked: list[str], store: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*PROGRAM, *asked], stdout=full, stderr=subprocess.PIPE, check=False, cwd=store.parent)
    said = done.stderr.decode().splitlines()[-1]
    assert (done.returncode, said) == (
        73,
        "bigsvm: error: standard output: cannot write: No space left on device "
        "(free space where it is redirected to) [errors.md#output]",
    )


def test_garbage_is_looked_for_late_and_then_as_ever() -> None:
    """Once, when the libraries are there: what stays is left out of the looks that follow, and what goes is found."""
    check = (
        "import gc, weakref\n"
        "from bigsvm.cli import main\n"
        "class Node: pass\n"
        "def cycle():\n"
        "    node = Node()\n"
        "    node.itself = node\n"
        "    return weakref.ref(node)\n"
        "former, first = gc.get_threshold(), cycle()\n"
        "main._collect_late()\n"
        "kept = [[] for _ in range(main._OBJECTS_AT_START // 2)]\n"
        "print(first() is not None, gc.get_freeze_count())\n"
        "kept += [[] for _ in range(main._OBJECTS_AT_START // 2 + 100)]\n"
        "print(first() is None, gc.get_freeze_count() > len(kept) - 200, gc.get_threshold() == former, gc.callbacks)\n"
        "second = cycle()\n"
        "kept += [[] for _ in range(10 * former[0])]\n"
        "print(second() is None)\n"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["True 0", "True True True []", "True"]


def test_what_makes_no_sense_is_told_with_where_it_stands(
    bigsvm: Bigsvm, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = "Invalid value for '-c' / '--c': 'abc' is not a valid float"
    fit = ("fit", store, "-o", tmp_path / "m")
    (tmp_path / "o.toml").write_text('c = "abc"\n')
    assert f"error: {typed}" in bigsvm(*fit, "-c", "abc").err
    assert f"error: {tmp_path / 'o.toml'}: {typed}" in bigsvm(*fit, "--config", tmp_path / "o.toml").err
    monkeypatch.setenv("BIGSVM_C", "abc")
    said = bigsvm(*fit)
    assert (said.code, f"error: BIGSVM_C: {typed}" in said.err) == (2, True)
