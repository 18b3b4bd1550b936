"""Where two folders of written files differ first: by key in JSON, by entry in .npy files, by byte in all others."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

NOT_COMPARED = {
    "scratch": "working copies, of no meaning after the fit",
    "model.run": "events of a run, with clocks",
}
"""Names in the folder of a case that are not compared, and why.  There is no exception among the files of a model."""

CLOCKS = {
    "elapsed_s": "a clock",
    "compile_seconds": "a clock",
    "seconds": "a clock, or several",
    "memory": "measured: what the process holds depends on all that it has loaded",
    "cluster": "what moved between processes, where there are several",
}
"""Keys of what a command says that are not compared, at any depth, and why."""
_LAST = ("digest", "digests")  # they differ wherever another value does: the other one is worth saying
_SAID = ".said.json"


class Difference(NamedTuple):
    """A file that differs, and where it does first."""

    file: str
    words: str


def compare_folders(old: Path, new: Path) -> list[Difference]:
    """A difference for each file of either folder that is not the same in the other."""
    found = []
    names = [{str(path.relative_to(folder)): path for path in _files(folder)} for folder in (old, new)]
    for name in sorted({**names[0], **names[1]}):
        if name not in names[0] or name not in names[1]:
            found.append(Difference(name, f"only the {'old' if name in names[0] else 'new'} tree wrote it"))
            continue
        words = compare_bytes(name, names[0][name].read_bytes(), names[1][name].read_bytes())
        if words:
            found.append(Difference(name, words))
    return found


def _files(folder: Path) -> list[Path]:
    """All files of a folder that are compared."""
    return [
        path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] not in NOT_COMPARED
    ]


def compare_bytes(name: str, old: bytes, new: bytes) -> str:
    """Where two files of that name differ first, in words; nothing where they are the same."""
    if name.endswith(_SAID):
        return first_difference(without_clocks(json.loads(old)), without_clocks(json.loads(new)))
    if old == new:
        return ""
    words = ""
    if name.endswith(".json"):
        words = first_difference(json.loads(old), json.loads(new))
    elif name.endswith(".npy"):
        words = _first_entry(*(np.load(io.BytesIO(text), allow_pickle=False) for text in (old, new)))
    return words or _first_byte(old, new)


def without_clocks(document: Any) -> Any:
    """A document without what a clock or the process's memory decides."""
    if isinstance(document, dict):
        return {key: without_clocks(value) for key, value in document.items() if key not in CLOCKS}
    if isinstance(document, list):
        return [without_clocks(value) for value in document]
    return document


def first_difference(old: Any, new: Any, at: str = "") -> str:
    """The first key of two documents whose values differ, with both values; nothing where they are the same."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({**old, **new}, key=lambda key: (key in _LAST, key)):
            inner = f"{at}.{key}" if at else key
            if key not in old or key not in new:
                return f"{inner}: only the {'old' if key in old else 'new'} one has it"
            if words := first_difference(old[key], new[key], inner):
                return words
        return ""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return next((words for i, pair in pairs if (words := first_difference(*pair, f"{at}[{i}]"))), "")
    # As text: 1 and 1.0 are equal and not the same, a NaN is the same and not equal.
    texts = [json.dumps(value) for value in (old, new)]
    return "" if texts[0] == texts[1] else f"{at}: {texts[0]} and {texts[1]}"


def _first_entry(old: np.ndarray, new: np.ndarray) -> str:
    if old.dtype != new.dtype or old.shape != new.shape:
        return f"{old.dtype} {old.shape} and {new.dtype} {new.shape}"
    rows = [np.ascontiguousarray(array).reshape(-1) for array in (old, new)]
    raw = [array.view(np.uint8).reshape(array.size, -1) for array in rows]
    at = np.flatnonzero((raw[0] != raw[1]).any(axis=1))
    if not len(at):
        return ""
    index = tuple(int(i) for i in np.unravel_index(at[0], old.shape))
    return f"entry {index}: {old[index]!r} and {new[index]!r} ({len(at)} of {old.size} differ)"


def _first_byte(old: bytes, new: bytes) -> str:
    shorter = min(len(old), len(new))
    same = np.frombuffer(old[:shorter], np.uint8) == np.frombuffer(new[:shorter], np.uint8)
    offset = shorter if same.all() else int(np.argmin(same))
    around = [text[max(offset - 20, 0) : offset + 40] for text in (old, new)]
    return f"byte {offset} of {len(old)} and {len(new)}: {around[0]!r} and {around[1]!r}"
