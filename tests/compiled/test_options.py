"""Options of functions compare as numba compares them."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path
from typing import Any

import pytest
from numba.core.compiler import Flags
from numba.core.targetconfig import TargetConfig

import bigsvm
from bigsvm.compiled.cache import options
from bigsvm.compiled.cache.options import compare_quickly


def test_options_of_functions_compare_as_numba_compares_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none, the same, a default or another value is set, of flags that functions are compiled with."""
    values: dict[str, tuple[Any, ...]] = {
        "nrt": (None, True, False),
        "error_model": (None, "python", "numpy"),
        "fastmath": (None, False, True, {"nnan"}),
        "no_cfunc_wrapper": (None, False, True),
    }
    flags = []
    for chosen in itertools.product(*values.values()):
        flag = Flags()
        for name, value in zip(values, chosen, strict=True):
            if value is not None:
                setattr(flag, name, value)
        flags.append(flag)
    others = [*flags, object(), None, TargetConfig()]

    def compared() -> tuple[list[bool], set[int]]:
        return [one == other for one in flags for other in others], {hash(one) for one in flags}

    monkeypatch.setattr(TargetConfig, "__eq__", options.plainly)  # what tests compare by is put back at the end
    monkeypatch.setattr(TargetConfig, "__hash__", options.plain_hash)
    plainly = compared()
    assert TargetConfig.__eq__.__module__ == TargetConfig.__module__
    compare_quickly()
    assert TargetConfig.__eq__.__module__ == options.__name__
    assert compared() == plainly
    assert 0 < sum(plainly[0]) - len(flags) < len(plainly[0]) / 2


LOOPS = {"inner_loop", "part_of_loop", "_loop", "_vectors"}
"""Decorators that set options, which what they call takes over unless it has its own."""
COMPILED = {"njit", "overload", "register_jitable", "intrinsic", *LOOPS}


def decorators(function: ast.FunctionDef) -> set[str]:
    return {ast.unparse(one).partition("(")[0] for one in function.decorator_list}


def test_no_function_has_other_options_from_python_than_in_a_loop() -> None:
    """The cache keeps what was compiled for a loop under the options of the loop.

    In the process that compiles, Python then gets this function too, and nothing is kept for Python: the next process
    compiles again, while a budget is counted, or warns of a full cache folder.
    """
    package = Path(bigsvm.__file__).parent
    functions = [
        (path, node)
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    ]
    bare = {node.name for path, node in functions if "njit" in decorators(node) and "compiled" in path.parts}
    assert len(bare) > 20
    called: dict[str, set[bool]] = {name: set() for name in bare}  # whether from a loop with options
    for _, function in functions:
        names = {
            node.func.id
            for node in ast.walk(function)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in bare
        }
        from_a_loop = bool(decorators(function) & LOOPS)
        if from_a_loop or not decorators(function) & COMPILED:
            for name in names:
                called[name].add(from_a_loop)
    assert {name for name, kinds in called.items() if len(kinds) > 1} == set()
