"""Places in a store, as messages name them: the store's path, and where in it."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

from bigsvm.errors import BigSVMError, DataError, MissingInput, ReadFailed

P = ParamSpec("P")
T = TypeVar("T")
_copies: dict[str, str] = {}


def place_in(store: str, where: str) -> str:
    """`where` with the path of the store before it, unless it has that, or another whole path, already."""
    if os.path.isabs(where) or "://" in where:
        return where
    plain = store.rstrip("/") or store
    for known in (plain, os.path.normpath(plain)):
        if where == known or where.startswith((f"{known}/", f"{known},")):
            return where
    return f"{plain}/{where}".rstrip("/")


@contextmanager
def naming(store: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of the block that name a place in a store name the store, too."""
    try:
        yield
    except (DataError, MissingInput, ReadFailed) as error:
        _name(error, os.fspath(store))
        raise


def naming_its_store(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A method of a store: its errors name a place in the store with the store's `uri`."""

    @functools.wraps(method)
    def named(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        try:  # not `naming`: a store is read block by block, and this costs nothing
            return method(self, *args, **kwargs)
        except (DataError, MissingInput, ReadFailed) as error:
            _name(error, self.uri)
            raise

    return named


def came_from(path: str, name: str) -> None:
    """Remember that what lies at `path` here is a copy of `name`."""
    _copies[path] = name.rstrip("/")


def given_as(name: str | os.PathLike[str]) -> None:
    """Remember how a user wrote the path of an input, which is opened by its whole path.  Of a glob: its folder."""
    given = os.path.normpath(os.fspath(name))
    while set(given) & set("*?["):
        given = os.path.dirname(given)
    real = os.path.realpath(given)
    if "://" in _copies.get(real, ""):
        return  # a copy, which the user knows by the name of the remote one
    if real == given:
        _copies.pop(real, None)
    elif real != os.path.realpath(""):  # else the path of any other file here would change, too
        _copies[real] = given


def rename(error: BigSVMError) -> BigSVMError:
    """The same error, with the names that a user knows in the place of the paths by which files were opened."""
    for path, name in sorted(_copies.items(), key=lambda known: -len(known[0])):
        whole = re.compile(rf"(?<![^\s'\"(=:]){re.escape(path)}(?![^\s/'\"),:;])")
        error.what, error.where, error.hint = (
            name.join(whole.split(text)) for text in (error.what, error.where, error.hint)
        )
    error.args = (error.what, error.where, error.hint)
    return error


def _name(error: DataError | MissingInput | ReadFailed, store: str) -> None:
    error.where = place_in(store, error.where)
    rename(error)
