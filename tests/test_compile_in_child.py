"""Compiling goes on in a child, and only where something is in no cache; loading waits for nobody."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from bigsvm import compile_in_child
from bigsvm.compile_in_child import compile_lock, compiled_in_child
from bigsvm.compiled.cache.places import cache_folder
from bigsvm.events import COMPILING, CompileStarted, Warned, WorkAdvanced, WorkEnded, WorkStarted
from bigsvm.files.locks import holder, sign, take
from bigsvm.observe.lines import PlainLines
from bigsvm.store.ingest.compile_time import compile_time
from tests.guinea_pig import Pig, place

__all__ = ["place"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a child is forked on Linux only")


@pytest.fixture(autouse=True)
def _nothing_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_in_child, "_called", set())


def refuse(*arguments: Any) -> Any:
    raise AssertionError("nobody asked for this")


def refuse_all(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.setattr(compile_in_child, name, refuse)


def test_what_is_in_no_cache_is_compiled_by_a_child_and_loaded_here(place: Path) -> None:
    pig, events = Pig(place), list[Any]()
    compiled_in_child("pig", lambda: pig(2), emit=events.append)
    assert (pig(2), pig.compiled) == (4, 0)
    assert events[0] == CompileStarted(str(cache_folder()), "")
    assert events[1:] == [WorkAdvanced(COMPILING, 1)]


def test_a_cache_that_keeps_nothing_is_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where its disk is full."""
    monkeypatch.setattr(compile_in_child, "_loaded", lambda call: False)
    pig, events = Pig(place), list[Any]()
    compiled_in_child("pig", lambda: pig(2), emit=events.append)
    (said,) = [event.message for event in events if isinstance(event, Warned)]
    assert said.startswith(f"{cache_folder()} keeps nothing of what was compiled")
    assert pig(2) == 4


def test_what_is_in_a_cache_is_loaded_without_a_child_and_without_the_lock(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Pig(place)(2)
    refuse_all(monkeypatch, "compile_lock", "_in_child")
    pig = Pig(place)
    compiled_in_child("pig", lambda: pig(2), emit=refuse)
    assert (len(pig.function.signatures), pig.compiled) == (1, 0)


def test_what_was_called_here_is_not_called_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pig = Pig(place)
    compiled_in_child("pig", lambda: pig(2))
    refuse_all(monkeypatch, "compile_lock", "_in_child", "_loaded")
    compiled_in_child("pig", refuse, emit=refuse)
    with pytest.raises(AssertionError, match="nobody asked"):
        compiled_in_child("another pig", refuse)


def test_few_kinds_are_remembered(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_in_child, "_REMEMBERED", 3)
    pig = Pig(place)
    for number in range(10):
        compiled_in_child(("pig", number), lambda: pig(2))
        assert len(compile_in_child._called) <= 3


def test_what_another_process_compiled_meanwhile_is_loaded(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    former = compile_lock

    def waited_for(*emit: Any) -> Any:
        Pig(place)(2)
        return former(*emit)

    monkeypatch.setattr(compile_in_child, "compile_lock", waited_for)
    refuse_all(monkeypatch, "_in_child")
    pig = Pig(place)
    compiled_in_child("pig", lambda: pig(2), emit=refuse)
    assert (len(pig.function.signatures), pig.compiled) == (1, 0)


def test_who_waits_says_for_whom(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At once: the other may compile for a minute."""
    folder, told, lines = cache_folder(), list[Any](), PlainLines(sys.stdout)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "compile.lock", "a+") as lock:
        assert take(lock, fcntl.LOCK_EX)
        sign(lock)

        def emit(event: Any) -> None:
            told.append(event)
            lines(event)
            if isinstance(event, WorkStarted):
                fcntl.flock(lock, fcntl.LOCK_UN)

        compiled_in_child("pig", lambda: Pig(place)(2), emit=emit)
        compiled_in_child("other pig", lambda: Pig(place, more=1)(2), emit=emit)
        with open(folder / "compile.lock") as signed:
            assert holder(signed).startswith(f"process {os.getpid()} ")
    begun, ended, compiling, *_ = told
    assert (begun.what, type(ended), type(compiling)) == (ended.what, WorkEnded, CompileStarted)
    first, last, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith(f"waiting for process {os.getpid()} on ")
    assert first.endswith(", which compiles")
    assert last.startswith(f"{first}: done in ")
    assert [type(event) for event in told].count(WorkStarted) == 1  # nobody holds it the second time


def test_what_is_not_loaded_is_compiled_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a child; the next time a file in the cache remembers it."""
    pig, events = Pig(place), list[Any]()
    compiled_in_child("pig", lambda: pig(2), load=False, emit=events.append)
    assert pig.function.signatures == []
    assert events == [CompileStarted(str(cache_folder()), ""), WorkAdvanced(COMPILING, 1)]
    refuse_all(monkeypatch, "compile_lock", "_in_child")
    compiled_in_child("pig", lambda: pig(2), load=False, emit=refuse)
    assert pig.function.signatures == []


def test_what_need_not_be_loaded_is_found_in_a_cache_without_the_lock(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Pig(place)(2)
    refuse_all(monkeypatch, "compile_lock")
    pig = Pig(place)
    compiled_in_child("pig", lambda: pig(2), load=False, emit=refuse)
    assert pig.function.signatures == []


def test_what_a_child_cannot_compile_is_compiled_here(place: Path) -> None:
    pig, parent = Pig(place), os.getpid()

    def call() -> None:
        pig(2)
        if os.getpid() != parent:
            os._exit(1)

    compiled_in_child("pig", call)
    assert pig(2) == 4
    compiled_in_child("other", lambda: pig(2.5) if os.getpid() == parent else os._exit(1), load=False)
    assert len(pig.function.signatures) == 2


@pytest.mark.parametrize(("why", "said"), [("", ""), ("WHY", "; the code that came with bigsvm cannot be used: WHY")])
def test_a_line_says_at_once_that_something_is_compiled(why: str, said: str) -> None:
    import io

    stream = io.StringIO()
    lines = PlainLines(stream)
    for _ in range(3):  # a fit compiles in several goes
        lines(CompileStarted("FOLDER", why))
    assert stream.getvalue() == f"compiling the code for these rows and options, once; it is kept in FOLDER{said}\n"


def test_what_a_child_compiles_counts_as_time_that_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although numba compiles nothing in this process: `ingest` tells these seconds apart from its own."""
    counting: list[int] = []

    def child(*arguments: Any, **named: Any) -> int:
        counting.append(clock._open)
        return compile_in_child._DONE

    monkeypatch.setattr(compile_in_child, "_in_child", child)
    with compile_time() as clock:
        compile_in_child._compile(lambda: None, lambda event: None)
    assert (counting, clock._open) == ([1], 0)
