"""Keys of the chunks of a Zarr array, from its metadata alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from bigsvm.errors import DataError, in_words


def chunk_keys(path: str, metadata: dict[str, Any]) -> Iterator[str]:
    """Keys of all chunks (or shards) of the array at `path`, in C order, from its v2 or v3 metadata.

    Raises
    ------
    DataError : shape or chunks are not lists of non-negative integers of one length, or unknown encodings.
    """
    v3 = metadata.get("node_type") == "array"
    try:
        if v3 and metadata["chunk_grid"]["name"] != "regular":
            hint = "write the array anew, with chunks of one size"
            raise DataError(f"chunks in a {metadata['chunk_grid']['name']} grid are not read", path, hint)
        shape = metadata["shape"]
        chunks = metadata["chunk_grid"]["configuration"]["chunk_shape"] if v3 else metadata["chunks"]
        if v3:
            encoding = metadata["chunk_key_encoding"]
            name = encoding["name"]
            default = "/" if name == "default" else "."
            separator = encoding.get("configuration", {}).get("separator", default)
        else:
            name, separator = "v2", metadata.get("dimension_separator", ".")
        grid = [-(-_natural(length) // max(_natural(chunk), 1)) for length, chunk in zip(shape, chunks, strict=True)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"array metadata cannot be understood: {in_words(error)}", path) from error
    if name not in ("default", "v2") or separator not in ("/", "."):
        raise DataError(f"unknown chunk key encoding {name!r} with separator {separator!r}", path)
    if math.prod(grid) > 2**40:
        raise DataError(f"{math.prod(grid)} chunks in one array", path)
    prefix = f"{path}/" if path else ""
    for place in _places(grid):
        if name == "default":
            yield prefix + separator.join(["c", *map(str, place)])
        else:
            yield prefix + (separator.join(map(str, place)) or "0")


def _places(grid: list[int]) -> Iterator[tuple[int, ...]]:
    """All places of a grid in C order, one at a time: metadata may promise any number of them."""
    for number in range(math.prod(grid)):
        place = []
        for length in reversed(grid):
            number, at = divmod(number, length)
            place.append(at)
        yield tuple(reversed(place))


def _natural(number: Any) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(f"{number!r} is not a natural number")
    return number
