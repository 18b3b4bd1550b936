"""Saving any state to disk: a tree of arrays, numbers and text, written and read only as a whole.

`dump` turns an object into such a tree (dataclasses and named tuples by field, row vectors by their values). `load`
fills an object of the same shape from a tree, in place where possible.  The files are JSON and plain .npy, each with
its digest; nothing is executed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from bigsvm.errors import DataError
from bigsvm.files.plain_arrays import load_array
from bigsvm.files.sealed_json import read_sealed, sealed
from bigsvm.store.state.vectors import RowVector

_TREE = "state.json"
_PIECE = 1 << 20  # bytes


def dump(value: Any) -> Any:
    """The tree of a value.  Fields marked `derived` in the metadata of a dataclass are left out."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "dump"):
        return value.dump()
    if isinstance(value, RowVector):
        return value.values
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field for field in dataclasses.fields(value) if not field.metadata.get("derived")]
        return {field.name: dump(getattr(value, field.name)) for field in fields}
    if isinstance(value, list | tuple):
        return [dump(item) for item in value]
    if isinstance(value, dict):
        return {key: dump(item) for key, item in value.items()}
    return value


def load(target: Any, tree: Any) -> Any:
    """`target` with the content of `tree`; arrays, row vectors and dataclasses are filled in place."""
    if hasattr(target, "load"):
        target.load(tree)
        return target
    if isinstance(target, RowVector):
        target.values[:] = tree
        return target
    if isinstance(target, np.ndarray):
        target[...] = tree
        return target
    if dataclasses.is_dataclass(target) and not isinstance(target, type):
        for name, item in tree.items():
            setattr(target, name, load(getattr(target, name), item))
        return target
    if isinstance(target, list) and len(target) == len(tree):
        return [load(item, part) for item, part in zip(target, tree, strict=True)]
    if isinstance(target, dict) and target.keys() == tree.keys():
        return {key: load(item, tree[key]) for key, item in target.items()}
    if isinstance(target, tuple):
        return tuple(tree)
    return tree


def write_tree(folder: Path, tree: Any) -> None:
    """Write a tree into an empty folder; state.json comes last.  Raises OSError, e.g. if the disk is full."""
    count = 0

    def stored(value: Any) -> Any:
        nonlocal count
        if isinstance(value, np.ndarray):
            name = f"{count:05d}.npy"
            count += 1
            return {"array": [name, _write_array(folder / name, value), _form_of(value)]}
        if isinstance(value, dict):
            return {"dict": {key: stored(item) for key, item in value.items()}}
        if isinstance(value, list):
            return {"list": [stored(item) for item in value]}
        if isinstance(value, np.generic):
            return {"value": value.item()}
        return {"value": value}

    (folder / _TREE).write_bytes(sealed(stored(tree)))


def tree_bytes(tree: Any) -> int:
    """Total bytes of the arrays in a tree."""
    if isinstance(tree, np.ndarray):
        return tree.nbytes
    if isinstance(tree, dict):
        return sum(tree_bytes(item) for item in tree.values())
    return sum(tree_bytes(item) for item in tree) if isinstance(tree, list) else 0


def read_tree(folder: Path, names: Collection[str] = ()) -> Any:
    """Read the tree in a folder; arrays are maps, every digest is checked.  Raises DataError if anything is damaged.

    names : for a tree that is a dictionary, the wanted keys; the others are neither read nor checked.  Empty: all
    """

    def found(value: Any) -> Any:
        ((kind, content),) = value.items()
        if kind == "array":
            name, digest, *form = content  # older versions wrote no form
            path = folder / name
            array = load_array(path)
            if _digest_of(array) != digest or form not in ([], [_form_of(array)]):
                raise DataError("a saved state is damaged: a digest does not match", str(path))
            return array
        if kind == "dict":
            return {key: found(item) for key, item in content.items()}
        return [found(item) for item in content] if kind == "list" else content

    try:
        whole = read_sealed(folder / _TREE)
        return {name: found(whole["dict"][name]) for name in names} if names else found(whole)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"a saved state cannot be read: {error}", str(folder)) from error


def _write_array(path: Path, array: np.ndarray) -> str:
    digest = xxhash.xxh3_128()
    with open(path, "xb") as file:
        header = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
        np.lib.format.write_array_header_1_0(file, header)
        for piece in _pieces(array):
            file.write(piece)
            digest.update(piece)
    return digest.hexdigest()


def _form_of(array: np.ndarray) -> list[Any]:
    """What the header of a .npy file says of an array, which the digest of its values does not contain."""
    return [array.dtype.str, list(array.shape)]


def _digest_of(array: np.ndarray) -> str:
    digest = xxhash.xxh3_128()
    for piece in _pieces(array):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(array: np.ndarray) -> Iterator[memoryview]:
    """The bytes of an array in pieces, because it may be a map of a file larger than memory."""
    rows = max(_PIECE // max(array[:1].nbytes, 1), 1)
    for start in range(0, len(array) if array.ndim else 0, rows):
        yield np.ascontiguousarray(array[start : start + rows]).reshape(-1).view(np.uint8).data
