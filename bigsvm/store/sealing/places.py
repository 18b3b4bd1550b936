"""Places in a store, as messages name them: the store's path, and where in it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

from bigsvm.errors import DataError, MissingInput, ReadFailed
from bigsvm.files.paths import rename

P = ParamSpec("P")
T = TypeVar("T")


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
    """A method of a store: its errors name a place in the store with the store's `uri`.

    If another store took its place, that is the error, and not that chunks are missing or damaged.
    """

    @functools.wraps(method)
    def named(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        try:  # not `naming`: a store is read block by block, and this costs nothing
            return method(self, *args, **kwargs)
        except (DataError, MissingInput, ReadFailed) as error:
            if isinstance(error, DataError) and self.is_replaced():
                raise DataError("the store was replaced while it was read", self.uri, "repeat the command") from error
            _name(error, self.uri)
            raise

    return named


def _name(error: DataError | MissingInput | ReadFailed, store: str) -> None:
    error.where = place_in(store, error.where)
    rename(error)
