"""What lack of memory is called: never a bug, and never a wait without end."""

from __future__ import annotations

import errno
import faulthandler
import json
import os
import resource
import subprocess
from pathlib import Path

import pytest

from bigsvm import compile_in_child
from bigsvm.cli.failures import failure_of
from bigsvm.compiled.cache.functions import NotCompiled, only_loading
from bigsvm.errors import PlanRefused
from bigsvm.machine import check_address_space, memory_limit
from bigsvm.units import show_bytes
from tests.cli.conftest import Bigsvm
from tests.cli.test_main import PROGRAM

MIB = 1 << 20


def wrapped() -> BaseException:
    """As llvmlite has it: the linker's words are in what it was raised from."""
    try:
        try:
            raise OSError("libllvmlite.so: failed to map segment from shared object")
        except OSError:
            raise OSError("Could not find/load shared object file")  # noqa: B904
    except OSError as error:
        return error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("Unable to allocate 1.00 TiB"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
        ImportError("libscipy_openblas.so: failed to map segment from shared object"),
        wrapped(),
    ],
)
def test_lack_of_memory_is_refused_with_the_figure_in_force(error: BaseException) -> None:
    failure = failure_of(error)
    assert failure.code == 78
    assert f"the limit in force is {show_bytes(memory_limit().nbytes)}" in str(failure.said)
    assert "--memory" in failure.hint


@pytest.mark.parametrize("error", [RuntimeError("dictionary changed size"), ImportError("no module named x")])
def test_other_failures_are_not_taken_for_it(error: BaseException) -> None:
    assert failure_of(error).code == 1


@pytest.mark.parametrize("command", ["fit", "plan", "inspect"])
def test_too_few_addresses_are_refused_before_libraries_load(store: Path, tmp_path: Path, command: str) -> None:
    """Below a gigabyte they fail in ways of their own, and one never ends."""
    done = subprocess.run(
        [*PROGRAM, command, str(store), "--json"], capture_output=True, cwd=tmp_path, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (600 * MIB, 600 * MIB)),
    )  # fmt: skip
    assert done.returncode == 78
    error = json.loads(done.stdout)["error"]
    assert "may map 600 MiB (RLIMIT_AS)" in error["message"]
    assert "ulimit -v" in error["hint"]
    assert done.stderr.count(b"\n") == 1


def test_doctor_says_what_it_cannot_measure(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "doctor", "--json"], capture_output=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (600 * MIB, 600 * MIB)),
    )  # fmt: skip
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert document["result"]["memory"]["base_bytes"] is None
    assert any("RLIMIT_AS" in warning for warning in document["warnings"])


def test_a_process_that_is_there_already_needs_room_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"now": 40 << 30}
    monkeypatch.setattr("bigsvm.machine._status", lambda field: [39 << 30])
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limits["now"], resource.RLIM_INFINITY))
    check_address_space()
    limits["now"] = (39 << 30) + MIB
    with pytest.raises(PlanRefused, match="may map 39 GiB"):
        check_address_space()


def test_a_compiler_that_aborts_is_not_called_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """LLVM aborts where it is refused memory: this process would end the same way."""
    called = []

    def call() -> None:
        if only_loading():
            raise NotCompiled
        called.append(1)
        faulthandler.disable()  # the test runner's: nothing is to be learnt from its traceback
        os.abort()

    monkeypatch.setattr(compile_in_child, "cache_folder", lambda: tmp_path)
    with pytest.raises(MemoryError, match="the compiler was refused memory"):
        compile_in_child.compiled_in_child("aborts", call)
    assert called == []  # in the child only


def test_a_compiler_without_memory_is_refused(bigsvm: Bigsvm, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object) -> None:
        raise MemoryError("the compiler was refused memory")

    monkeypatch.setattr("bigsvm.run.fit.fit.precompile", refused)
    said = bigsvm("fit", store, "--quiet")
    assert (said.code, said.out) == (78, "")
    assert "the limit in force is" in said.err
