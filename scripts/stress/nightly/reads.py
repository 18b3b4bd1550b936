"""Readers of `current` beside somebody who promotes and rolls back."""

from __future__ import annotations

import multiprocessing
import random
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np

from bigsvm.model import versions as registry
from bigsvm.model.linear_model import LinearModel, load_model
from nightly.rows import tree

_READERS = 2
_MODELS = 5
_FEATURES = 400


def reads_of_current(work: Path, count: int, seed: int) -> str:
    """Load `current` `count` times in all; a sentence.  SystemExit where a read found nothing or two versions."""
    root = work / "registry"
    for k in range(_MODELS):  # every number of a model is its own
        model = LinearModel(np.full((1, _FEATURES), float(k)), np.full(1, float(k)), np.array([-1, 1]))
        model.save(work / f"{k}.model", alpha=np.full((1, 50), float(k)))
    registry.promote(root, work / "0.model")
    over = multiprocessing.Event()
    changes = multiprocessing.Array("q", 3)
    writer = multiprocessing.Process(target=_change, args=(work, root, seed, over, changes))
    answers = multiprocessing.SimpleQueue()
    readers = [
        multiprocessing.Process(target=_read, args=(root, count // _READERS, reader, answers))
        for reader in range(_READERS)
    ]
    began = time.monotonic()
    for process in (writer, *readers):
        process.start()
    found = [answers.get() for _ in readers]
    seconds = time.monotonic() - began
    over.set()
    for process in (writer, *readers):
        process.join()
    bad = [said for _, _, said in found if said]
    if bad or writer.exitcode:
        raise SystemExit(bad[0] if bad else "a version that was rolled back to is not what it was")
    promoted, back, same = changes[:]
    if not promoted or not back or same != back:
        raise SystemExit(f"{promoted} promotions and {back} rollbacks: nothing happened while it was read")
    versions = max(seen for _, seen, _ in found)
    return (
        f"{sum(n for n, _, _ in found)} reads while there were {promoted} promotions and {back} rollbacks: 0 found "
        f"nothing, 0 torn; a reader saw up to {versions} versions; {same} of {back} rollbacks byte-identical "
        f"({seconds:.0f} s)"
    )


def _read(root: Path, count: int, reader: int, answers: multiprocessing.SimpleQueue) -> None:
    seen: set[int] = set()
    said = ""
    try:
        for number in range(count):
            # As a reader with the library does, and as one that opens the link itself.
            path = registry.current(root) if number % 2 else root / registry.CURRENT
            if path is None:
                said = f"reader {reader}, read {number}: nothing was current"
                break
            model = load_model(path)
            values = {float(value) for array in (model.coef, model.intercept) for value in np.unique(array)}
            if len(values) != 1 or model.coef.shape != (1, _FEATURES):
                said = f"reader {reader}, read {number}: a model of {sorted(values)}"
                break
            if number % 20 == 1:
                seen.add(registry.current_version(root) or 0)
    except Exception as error:
        said = f"reader {reader}: {type(error).__name__}: {error}"
    answers.put((count, len(seen), said))


def _change(work: Path, root: Path, seed: int, over: Event, changes: multiprocessing.Array) -> None:
    rng = random.Random(seed)
    versions = {1: tree(root / registry.CURRENT)}
    while not over.is_set() or not (changes[0] and changes[1]):
        if len(versions) < 3 or rng.random() < 0.3:
            number = registry.promote(root, work / f"{rng.randrange(_MODELS)}.model")
            versions[number] = tree(root / registry.CURRENT)
            changes[0] += 1
        else:
            to = registry.rollback(root, to=rng.choice(sorted(versions)))
            changes[1] += 1
            changes[2] += tree(root / registry.CURRENT) == versions[to]
