"""How loops are compiled, and where what was compiled is kept.

`njit`, `overload` and `register_jitable` are numba's, with the cache of ours (`bigsvm/compiled/cache`).  numba keeps
nothing of the last two, so that whoever compiles a loop would compile anew what dozens of others take in as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core import types
from numba.core.dispatcher import Dispatcher
from numba.core.typing.templates import infer, infer_global, make_overload_template

from bigsvm.compiled.cache.functions import FunctionCache, PartCache

_Function = Callable[..., Any]
_NOT_FROM_C: dict[str, Any] = {"no_cfunc_wrapper": True}
"""numba would compile each function once more, as one that C can call: nobody does."""


def njit(*, cache: bool, **options: Any) -> Callable[[_Function], Any]:
    """numba's decorator of that name; `cache`: in the cache of ours."""
    given = {name.removeprefix("_") for name in options}

    def decorated(function: _Function) -> Any:
        compiled = numba.njit(**_NOT_FROM_C, **options)(function)
        if cache and isinstance(compiled, Dispatcher):
            compiled._cache = FunctionCache(function, given)  # type: ignore[attr-defined]
        return compiled

    return decorated


def _part(**options: Any) -> Callable[[_Function], Dispatcher]:
    """How numba compiles what an overload returned: compiled code alone calls it."""
    given = {name.removeprefix("_") for name in options}

    def decorated(function: _Function) -> Dispatcher:
        compiled: Any = numba.jit(**_NOT_FROM_C, **options)(function)
        compiled._cache = PartCache(function, given)
        return compiled

    return decorated


def overload(
    function: _Function, *, strict: bool = True, inline: str = "never", **options: Any
) -> Callable[[_Function], _Function]:
    """numba's decorator of that name; `options` are `njit`'s."""

    def decorated(implementation: _Function) -> _Function:
        how = {"nopython": True, "no_cpython_wrapper": True, **options}
        template: Any = make_overload_template(function, implementation, how, strict, inline)
        template._get_jit_decorator = lambda self: _part
        infer(template)
        infer_global(function, types.Function(template))
        return implementation

    return decorated


def register_jitable(function: _Function, **options: Any) -> _Function:
    """numba's decorator of that name: a function of Python that compiled code can call, too."""
    overload(function, strict=False, **options)(lambda *arguments, **named: function)
    return function


inner_loop = njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
"""For loops over rows that allocate nothing.

Without numba's reference counts: every row would otherwise pay dozens of atomic additions for taking the arrays
out of X (3.2 against 1.6 ns a non-zero for rows of 70).  Division by zero gives inf or nan, as in NumPy.
"""


def part_of_loop(function: _Function) -> _Function:
    """As `inner_loop`, for what compiled code alone calls: much of what numba makes of a function is its way in."""
    return register_jitable(function, error_model="numpy", _nrt=False)
