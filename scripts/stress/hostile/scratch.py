"""What lies beside a store and is read as if it were ours: working copies, side manifests; and holes in a store.

Of these nothing but the right model will do, or a refusal: the store is good, or has lost something.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from hostile.cases import Case, edit, link, pipe, put

STAGED, SEGMENT, INDEX = "staged.json", "segment-00000.json", "segment-00000.idx"


def inside(name: str, *path: Any) -> Case:
    """Set a value in a sealed document of a copy: keys below its content, then the value."""

    def change(document: dict[str, Any]) -> None:
        *keys, last, value = path
        document = document["content"]
        for key in keys:
            document = document[key]
        document[last] = value

    return edit(name, change)


COPIES: dict[str, Case] = {
    "copy of 2^62 rows": inside(STAGED, "meta", "n_samples", 1 << 62),
    "copy of 2^40 features": inside(STAGED, "meta", "n_features", 1 << 40),
    "copy with blocks of 0 rows": inside(STAGED, "meta", "block_rows", 0),
    "copy with other classes": inside(STAGED, "meta", "classes", [0, 7]),
    "copy of another store": inside(STAGED, "made_of", "identity", "store", "0" * 32),
    "copy of another label": inside(STAGED, "meta", "identity", "label", "obs/other"),
    "copy of other content": inside(STAGED, "survey", "content", "0" * 32),
    "copy without segments": inside(STAGED, "segments", []),
    "copy of other orders": inside(STAGED, "orders", {"../../../etc/passwd": "0" * 32}),
    "copy whose segment is longer": inside(STAGED, "segments", 0, "nbytes", 1 << 50),
    "copy whose segment begins elsewhere": inside(SEGMENT, "start", 100),
    "staged.json not JSON": put(STAGED, b"{"),
    "staged.json a pipe": pipe(STAGED),
    "staged.json /dev/zero": link(STAGED, "/dev/zero"),
    "staged.json of 100000 levels": put(STAGED, b"[" * 100_000),
    "index of noise": put(INDEX, bytes(range(256)) * 16),
    "index /dev/zero": link(INDEX, "/dev/zero"),
    "segment a pipe": pipe("segment-00000.bin"),
    "segment /dev/zero": link("segment-00000.bin", "/dev/zero"),
}
"""Of the files in the folder of a working copy; their own digests are not made again: scratch is private."""


def all_chunks(digest: str) -> Case:
    """A side manifest that says the same of every chunk."""
    return edit("MANIFEST", lambda d: d.update(chunks=dict.fromkeys(d["chunks"], digest)))


SIDES: dict[str, Case] = {
    "side manifest not JSON": put("MANIFEST", b"{"),
    "side manifest empty": put("MANIFEST", b""),
    "side manifest of 100000 levels": put("MANIFEST", b"[" * 100_000),
    "side manifest a pipe": pipe("MANIFEST"),
    "side manifest /dev/zero": link("MANIFEST", "/dev/zero"),
    "side manifest a folder": lambda root: ((root / "MANIFEST").unlink(), (root / "MANIFEST").mkdir())[1],
    "side manifest without chunks": edit("MANIFEST", lambda d: d.update(chunks={})),
    "side manifest that names a file outside": edit("MANIFEST", lambda d: d["chunks"].update({"../../x": "0" * 32})),
    "side manifest of other digests": all_chunks("0" * 32),
    "side manifest where all is empty": all_chunks("empty"),
}
"""Of the file MANIFEST, which is the side manifest of a store that was never sealed."""


def gone(*arrays: str) -> Case:
    """All chunks of some arrays are taken away."""

    def case(root: Path) -> None:
        for array in arrays:
            shutil.rmtree(root / array / "c")

    return case


def one_gone(array: str) -> Case:
    """The last chunk of an array is taken away."""

    def case(root: Path) -> None:
        sorted(path for path in (root / array / "c").rglob("*") if path.is_file())[-1].unlink()

    return case


HOLES: dict[str, Case] = {
    **{f"the last chunk of {name} is gone": one_gone(name) for name in ("X/data", "X/indices", "X/indptr")},
    **{f"the last chunk of {name} is gone": one_gone(name) for name in ("obs/label/codes", "obs/label/categories")},
    **{f"all of {name} is gone": gone(name) for name in ("X/data", "X/indices", "X/indptr", "obs/label/codes")},
    "all of X is gone": gone("X/data", "X/indices", "X/indptr"),
}
"""Of a store that was sealed, and of the same one before it is sealed."""
