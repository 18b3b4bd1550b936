"""The decorators that compile loops: those of numba, with a cache of bigsvm (`bigsvm/compiled/cache`).

`njit`, `overload` and `register_jitable` work as numba's.  But numba caches nothing of the last two, so a function that
dozens of loops call would be compiled again for each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core import types
from numba.core.dispatcher import Dispatcher
from numba.core.typing.templates import infer, infer_global, make_overload_template

from bigsvm.compiled.cache.functions import FunctionCache, PartCache
from bigsvm.compiled.cache.parts import WITH_CALLERS, PartCompiler

_Function = Callable[..., Any]
_NOT_FROM_C: dict[str, Any] = {"no_cfunc_wrapper": True}
"""Without it numba would compile each function once more, as one that C can call.  Nothing needs that."""


def njit(*, cache: bool, **options: Any) -> Callable[[_Function], Any]:
    """`numba.njit`.  cache : keep the compiled function in the cache of bigsvm;  options : those of `numba.njit`"""
    given = {name.removeprefix("_") for name in options}

    def decorated(function: _Function) -> Any:
        compiled = numba.njit(**_NOT_FROM_C, **options)(function)
        if cache and isinstance(compiled, Dispatcher):
            compiled._cache = FunctionCache(function, given)  # type: ignore[attr-defined]
        return compiled

    return decorated


def _part(**options: Any) -> Callable[[_Function], Dispatcher]:
    """The decorator for what an overload returns, which only compiled code calls."""
    given = {name.removeprefix("_") for name in options}

    def decorated(function: _Function) -> Dispatcher:
        own: dict[str, Any] = {"pipeline_class": PartCompiler} if WITH_CALLERS else {}
        compiled: Any = numba.jit(**_NOT_FROM_C, **options, **own)(function)
        compiled._cache = PartCache(function, given)
        return compiled

    return decorated


def overload(
    function: _Function, *, strict: bool = True, inline: str = "never", **options: Any
) -> Callable[[_Function], _Function]:
    """`numba.extending.overload`, with a cache.  options : those of `njit`, given directly"""

    def decorated(implementation: _Function) -> _Function:
        how = {"nopython": True, "no_cpython_wrapper": True, **options}
        template: Any = make_overload_template(function, implementation, how, strict, inline)
        template._get_jit_decorator = lambda self: _part
        infer(template)
        infer_global(function, types.Function(template))
        return implementation

    return decorated


def register_jitable(function: _Function, **options: Any) -> _Function:
    """`numba.extending.register_jitable`, with a cache: a Python function that compiled code can call too."""
    overload(function, strict=False, **options)(lambda *arguments, **named: function)
    return function


inner_loop = njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
"""The decorator for loops over rows that allocate nothing.

They do without numba's reference counts, which would cost dozens of atomic additions for each row, as the arrays are
taken out of X (3.2 instead of 1.6 ns for each non-zero, with 70 in a row).  Division by zero gives inf or nan, as in
NumPy.
"""


def part_of_loop(function: _Function) -> _Function:
    """As `inner_loop`, for functions that only compiled code calls.

    numba then does not make the wrapper through which Python would call them, a large part of the compiled code.
    """
    return register_jitable(function, error_model="numpy", _nrt=False)
