"""The cache of one compiled function: a file for each signature and processor, which is complete or absent.

numba's own cache has an index for each function, which two processes must not write at the same time.  It identifies a
source by its path, and looks in one folder only.  Here the name of a file is a hash of all that determines its content,
so two writers never write different content to one file.  Before the content is unpickled, it is compared with its own
digest and with what was asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle  # noqa: TID251  (numba's form of compiled code; from files that `trust.py` believes, and no others)
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys
from numba.core.serialize import dumps
from numba.core.targetconfig import ConfigStack

from bigsvm.compiled.cache import places
from bigsvm.compiled.cache.parts import WITH_CALLERS, rebuilt, set_environments
from bigsvm.compiled.cache.stamp import stamp_digest
from bigsvm.compiled.cache.trust import read_believed

SUFFIX = ".compiled"
PART = ".part"
"""Suffix of functions that only other compiled functions call.  They are needed to compile, so they are not shipped."""
_FORM = b"bigsvm compiled function 1\n"
_DIGEST = 32  # bytes
_WIDE = "bigsvm.compiled.kernel."
"""Modules whose loops use vectors of 64 bytes: on a processor that has these, code for others is slower by half."""


class NotCompiled(Exception):
    """Inside `loading_only`, a function was called with types for which it is in no cache."""


_loading = threading.local()
_on_compile: list[Callable[[], object]] = []


@contextlib.contextmanager
def loading_only() -> Iterator[None]:
    """Inside this context the present thread compiles no function of bigsvm, but raises NotCompiled."""
    _loading.only = True
    try:
        yield
    finally:
        _loading.only = False


def only_loading() -> bool:
    """Whether the present thread is inside `loading_only`."""
    return getattr(_loading, "only", False)


@contextlib.contextmanager
def told_of_compiling(tell: Callable[[], object]) -> Iterator[None]:
    """Inside this context `tell` is called after each compilation of a function."""
    _on_compile.append(tell)
    try:
        yield
    finally:
        _on_compile.remove(tell)


class FunctionCache(_Cache):
    """The cache of `function`.  numba's dispatcher asks it for compiled code, and hands it what it has compiled.

    options : names of the options in the decorator of the function
    """

    suffix = SUFFIX

    def __init__(self, function: Callable[..., Any], options: Collection[str] = ()) -> None:
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._open = [(name, plain) for name, plain in _TAKEN_OVER.items() if name not in options]
        code, cells = function.__code__, function.__closure__ or ()
        self._function = {
            "function": self._name,
            "line": code.co_firstlineno,
            "code": hashlib.sha256(repr(_content(code)).encode()).hexdigest(),
            "closure": hashlib.sha256(dumps(tuple(cell.cell_contents for cell in cells)) if cells else b"").hexdigest(),
        }
        self._enabled = True

    def __repr__(self) -> str:
        return f"FunctionCache({self._name})"

    @property
    def cache_path(self) -> str:
        return str(places.cache_folder())

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def flush(self) -> None:
        """Nothing to do: numba compiles the function anew after this, but the files of the cache stay valid."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function for a signature, or None if it is in no cache.

        Raises NotCompiled instead of returning None inside `loading_only`.
        """
        found = self._found(sig, target_context.codegen().magic_tuple()) if self._enabled and stamp_digest() else None
        if found is not None:
            # What loaded code calls.  numba's tables of all that it can compile, which its own cache loads here, take
            # an eighth of a small fit; its compiler loads them when there is something to compile.
            rtsys.initialize(target_context)
            return self._rebuilt(target_context, found)
        if only_loading():
            raise NotCompiled(f"{self._name} {sig}")
        return None

    def _rebuilt(self, target_context: Any, found: Any) -> Any:
        return CompileResult._rebuild(target_context, *found)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store a compiled function in the user's cache.  If that fails, it is compiled again the next time."""
        self._compiled(data)
        if not (self._enabled and stamp_digest()) or data.library.has_dynamic_globals:
            return
        if any(not lifted.can_cache for lifted in data.lifted):
            return
        head = self._head(sig, data.codegen.magic_tuple())
        content = dumps((sig, data._reduce()))
        with contextlib.suppress(OSError):
            _write(self._path(places.cache_folder(), head), head + hashlib.sha256(content).digest() + content)

    def _compiled(self, data: Any) -> None:
        set_environments(data)
        for tell in _on_compile:
            tell()

    def _found(self, sig: Any, target: tuple[Any, ...]) -> Any:
        """The stored result, from the installation if it is there, else from the user's cache; None if in neither."""
        levels = places.shipped(places.SHIPPED).levels
        if self._name.startswith(_WIDE):
            levels = tuple(level for level in levels if level == best_level())
        for level in levels:
            head = self._head(sig, (target[0], level, ""))
            found = _read(self._path(places.SHIPPED, head), head, sig, places.owner_of_installation())
            if found is not None:
                return found
        return self._found_of_user(sig, target)

    def _found_of_user(self, sig: Any, target: tuple[Any, ...]) -> Any:
        """The stored result from the user's cache, or from the one that can only be read; None if in neither."""
        head = self._head(sig, target)
        found = _read(self._path(places.cache_folder(), head), head, sig, (os.geteuid(),))
        other = None if found is not None else places.folder_only_read()
        return found if other is None else _read(self._path(other, head), head, sig, (os.geteuid(),))

    def _head(self, sig: Any, target: tuple[Any, ...]) -> bytes:
        """The beginning of a file: all that determines the compiled code."""
        known = {
            **self._function,
            "flags": self._flags(),
            "signature": str(sig),
            "target": target,
            "stamp": stamp_digest(),
        }
        return _FORM + json.dumps(known, sort_keys=True).encode() + b"\n"

    def _flags(self) -> dict[str, str]:
        """Flags that numba takes over from the caller, because the decorator of the function does not set them."""
        caller = ConfigStack.top_or_none()
        taken = {} if caller is None else {name: _said(getattr(caller, name)) for name, _ in self._open}
        return {name: taken[name] for name, plain in self._open if taken.get(name, plain) != plain}

    def _path(self, folder: Path, head: bytes) -> Path:
        short = "".join(c for c in self._name.rpartition(".")[2] if c.isalnum() or c == "_")
        return folder / f"{short}-{hashlib.sha256(head).hexdigest()[:32]}{self.suffix}"


class PartCache(FunctionCache):
    """The cache of a function that only compiled functions call: it is used to compile, not shipped, not counted."""

    suffix = PART

    def _rebuilt(self, target_context: Any, found: Any) -> Any:
        return rebuilt(target_context, found) if WITH_CALLERS else super()._rebuilt(target_context, found)

    def _compiled(self, data: Any) -> None:
        """Nothing to do: these functions are not called from Python, and are not counted."""

    def _found(self, sig: Any, target: tuple[Any, ...]) -> Any:
        return self._found_of_user(sig, target)


_TAKEN_OVER = {"fastmath": "[]", "error_model": "python", "nrt": "True", "forceinline": "False"}
"""The flags that a function takes over from its first caller unless its decorator sets them, and their defaults."""


def _said(flag: Any) -> str:
    return str(sorted(flag.flags)) if hasattr(flag, "flags") else str(flag)


def _content(code: CodeType) -> tuple[Any, ...]:
    """Instructions, names and constants of a function, which distinguish functions defined on one line."""
    constants = [_content(found) if isinstance(found, CodeType) else repr(found) for found in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants


def best_level() -> str:
    """The highest of LEVELS that this processor supports; '' if it supports none."""
    return next((level for level in reversed(places.LEVELS) if not places.lacks(level)), "")


def level_and_name(path: Path) -> tuple[str, str]:
    """(the processor that the code in a file is for, the name of the function)."""
    with open(path, "rb") as file:
        file.readline()
        known = json.loads(file.readline())
    return known["target"][1], known["function"]


def is_wide(function: str) -> bool:
    """Whether a function uses vectors of 64 bytes.  function : its name with that of the module"""
    return function.startswith(_WIDE)


def _read(path: Path, head: bytes, sig: Any, owners: tuple[int, ...]) -> Any:
    """The pickled result in a file that is complete, trusted, and the one asked for; else None."""
    data = read_believed(path, owners)
    if data is None or not data.startswith(head):
        return None
    digest, content = data[len(head) : len(head) + _DIGEST], data[len(head) + _DIGEST :]
    if hashlib.sha256(content).digest() != digest:
        return None
    found, reduced = pickle.loads(content)
    return reduced if found == sig else None  # two types may have one name


def _write(path: Path, data: bytes) -> None:
    """Write a file completely or not at all, in a folder that only the user can access."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix="new-")
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
