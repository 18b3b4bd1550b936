"""What compiled functions take in of others is kept as well: whoever compiles the next caller loads it."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

import numba.extending
import pytest
from numba.core import event
from numba.core.codegen import JITCodeLibrary

import bigsvm.compiled
from bigsvm.compiled.cache.functions import PART, SUFFIX, told_of_compiling
from bigsvm.compiled.cache.parts import WITH_CALLERS
from bigsvm.compiled.cache.places import cache_folder
from bigsvm.compiled.cache.shipping import gather
from tests.guinea_pig import place

__all__ = ["place"]

PIG = """
from numba import types
from bigsvm.compiled.shared.compile import njit, overload, register_jitable

@register_jitable
def ratio(x, y):
    return x / y

def kind(x):
    raise NotImplementedError


@overload(kind)
def _kind(x):
    return (lambda x: 1) if isinstance(x, types.Integer) else (lambda x: 2)

@register_jitable
def refuse(x):
    raise ValueError("no", x)

@njit(cache=True)
def refused(x):
    refuse(x)

@njit(cache=True)
def first(x, y):
    return ratio(x, y) + kind(x)

@njit(cache=True)
def second(x, y):
    return ratio(x, y) - kind(x)

@njit(cache=True, error_model="numpy")
def as_numpy(x, y):
    return ratio(x, y)
"""


class Compiled(event.Listener):
    """The names of what numba compiled."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_start(self, event: event.Event) -> None:
        self.names.append(event.data["dispatcher"].py_func.__name__)

    def on_end(self, event: event.Event) -> None:
        pass


def new(place: Path) -> ModuleType:
    """The module, as a process has it that called nothing before."""
    path = place / "pig.py"
    path.write_text(PIG)
    spec = importlib.util.spec_from_file_location("pig", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["pig"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled(call: object, *arguments: float) -> tuple[float, list[str]]:
    heard = Compiled()
    with event.install_listener("numba:compile", heard):
        found: float = call(*arguments)  # type: ignore[operator]
    return found, heard.names


def kept(suffix: str) -> int:
    return sum(1 for _ in cache_folder().glob(f"*{suffix}"))


def test_the_next_caller_loads_what_the_first_one_compiled(place: Path) -> None:
    assert compiled(new(place).first, 3, 2) == (2.5, ["first", "ratio", "<lambda>"])
    assert (kept(SUFFIX), kept(PART)) == (1, 2)
    assert compiled(new(place).second, 3, 2) == (0.5, ["second"])
    assert (kept(SUFFIX), kept(PART)) == (2, 2)


@pytest.mark.skipif(not WITH_CALLERS, reason="this version of numba compiles parts by itself")
def test_parts_are_optimised_and_become_machine_code_with_their_callers(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    for name in ("_optimize_final_module", "_finalize_specific"):
        plain = getattr(JITCodeLibrary, name)
        told = lambda library, plain=plain: (done.append(library.name), plain(library))[1]  # noqa: E731
        monkeypatch.setattr(JITCodeLibrary, name, told)
    new(place).first(3, 2)
    assert done == ["first", "first"]
    new(place).second(3, 2)  # whose parts are loaded
    assert done[2:] == ["second", "second"]


def test_what_a_part_raises_is_what_its_caller_raises(place: Path) -> None:
    """numba keeps what an error is made of beside the machine code, of each function: a part has none."""
    for names in (["refused", "refuse"], []):
        refused, heard = new(place).refused, Compiled()
        with event.install_listener("numba:compile", heard), pytest.raises(ValueError) as error:
            refused(3)
        assert (error.value.args, heard.names) == (("no", 3), names)


def test_functions_of_one_line_and_one_code_keep_apart(place: Path) -> None:
    """That differ in a constant alone."""
    new(place).first(3, 2)
    assert compiled(new(place).first, 3.0, 2.0) == (3.5, ["first", "ratio", "<lambda>"])
    assert compiled(new(place).second, 3.0, 2.0) == (-0.5, ["second"])


def test_flags_of_a_caller_keep_apart(place: Path) -> None:
    """numba compiles a part as its caller asks: here, what division by zero gives."""
    with pytest.raises(ZeroDivisionError):
        new(place).first(3.0, 0.0)
    assert compiled(new(place).as_numpy, 3.0, 0.0) == (float("inf"), ["as_numpy", "ratio"])
    with pytest.raises(ZeroDivisionError):
        new(place).second(3.0, 0.0)
    assert kept(PART) == 3


def test_damage_is_compiled_over(place: Path) -> None:
    new(place).first(3, 2)
    for path in cache_folder().glob(f"*{PART}"):
        path.write_bytes(path.read_bytes()[:-1])
    assert compiled(new(place).second, 3, 2) == (0.5, ["second", "ratio", "<lambda>"])


def test_parts_are_not_counted_and_not_shipped(place: Path) -> None:
    told = list[int]()
    with told_of_compiling(lambda: told.append(1)):
        new(place).first(3, 2)
    assert told == [1]
    assert gather({"x86-64-v3": cache_folder()}, place / "shipped") in (0, 1)  # none but of that processor
    assert not list((place / "shipped").glob(f"*{PART}"))


def test_no_loop_of_ours_takes_numbas_own() -> None:
    """Whose parts are compiled anew by every process."""
    theirs = (numba.extending.overload, numba.extending.register_jitable, numba.njit)
    for found in pkgutil.walk_packages(bigsvm.compiled.__path__, "bigsvm.compiled."):
        module = importlib.import_module(found.name)
        assert not [name for name, value in vars(module).items() if any(value is one for one in theirs)], found.name
