"""A night on which rows arrive, killed by the system at random instants and started again."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bigsvm.model import versions as registry
from bigsvm.observe.jsonl import read_events
from bigsvm.store.formats.opener import open_store
from nightly.rows import job, night, store, text, tree
from pipelines import journal

_ROWS, _MORE, _FEATURES = 6000, 600, 40
_GATES = "min_accuracy = 0.7"


def killed_nights(work: Path, count: int, seed: int) -> str:
    """Kill `count` nights; a sentence.  SystemExit where the end is not that of an undisturbed night."""
    rng = random.Random(seed)
    aside, live = work / "aside", work / "live"
    aside.mkdir()
    store(aside / "train.zarr", 1, _ROWS, _FEATURES)
    store(aside / "holdout.zarr", 2, 500, _FEATURES)
    _in_child(aside, work / "first.json")
    (aside / "incoming").mkdir()
    (aside / "incoming" / "b.svm").write_text(text(3, _MORE, _FEATURES))
    (aside / "incoming" / "a.svm").write_text(text(4, _MORE, _FEATURES))
    _again(aside, live)
    _in_child(live, work / "undisturbed.json")  # compiles what a fit from duals calls
    _again(aside, live)
    began = time.monotonic()
    undisturbed = _in_child(live, work / "undisturbed.json")
    seconds = time.monotonic() - began
    if undisturbed is None or undisturbed["status"] != "promoted" or "warm_start" not in undisturbed["fit"]:
        raise SystemExit(f"the undisturbed night ended: {undisturbed}")
    right, straight = tree(live / "registry" / "current"), _epochs(live)
    if len(straight) < 4:
        raise SystemExit(f"the fit took {len(straight)} steps: too few to be killed between")
    ends = Counter[str]()
    for number in range(count):
        while True:
            _again(aside, live)
            in_fit = rng.random() < 0.5  # counted from its first checkpoint
            wait = rng.uniform(0.0, 0.2 * seconds if in_fit else seconds)
            if _in_child(live, work / "killed.json", wait, in_fit) is None:
                break
        ends[_go_on(live, work / "again.json", right, straight[0], number)] += 1
    ways = ", ".join(f"{ends[how]} {how}" for how in sorted(ends))
    return f"{count} nights of {seconds:.1f} s killed, {count} came to the same bytes, rows added once ({ways})"


def _go_on(live: Path, said: Path, right: dict[str, bytes], first: float, number: int) -> str:
    """The night after the kill; how its fit began.  SystemExit where something is not as it must be."""
    done = _epochs(live)
    had_checkpoint = _has_checkpoint(live)
    document = _in_child(live, said)
    if document is None or document["status"] not in ("promoted", "unchanged"):
        raise SystemExit(f"kill {number}: the next night ended {document}")
    if tree(live / "registry" / "current") != right:
        raise SystemExit(f"kill {number}: another model")
    if open_store(live / "train.zarr").n_samples != _ROWS + 2 * _MORE:
        raise SystemExit(f"kill {number}: rows were lost or added twice")
    history = [entry["version"] for entry in registry.history(live / "registry")]
    if history != [1, 2]:
        raise SystemExit(f"kill {number}: the history has versions {history}")
    how = document.get("fitted", "promoted before")
    if had_checkpoint and how == "trained":
        raise SystemExit(f"kill {number}: a fit that had a checkpoint began anew")
    if how == "resumed" and done and first in _epochs(live)[len(done) :]:
        raise SystemExit(f"kill {number}: a fit that was resumed took its first step again")
    return how


def _again(aside: Path, live: Path) -> None:
    shutil.rmtree(live, ignore_errors=True)
    shutil.copytree(aside, live, symlinks=True)


def _has_checkpoint(live: Path) -> bool:
    folder = live / "registry" / "work" / journal.RUN / "checkpoint"
    return folder.is_dir() and any(entry.name.isdigit() for entry in folder.iterdir())


def _epochs(live: Path) -> list[float]:
    """Of the record of the fit: where each step that was recorded stood."""
    path = live / "registry" / "work" / journal.RUN / "events.jsonl"
    found = read_events(path) if path.exists() else iter(())
    return [event["epochs"] for event in found if event["event"] == "EpochEnd"]


def _in_child(folder: Path, said: Path, kill_after: float | None = None, in_fit: bool = False) -> dict[str, Any] | None:
    """A night in a process of its own, killed after so many seconds; what came of it, None where it was killed.

    A fork: everything is imported already, so that all instants are the night's.
    """
    said.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            document = night(job(folder, _GATES, tol=1e-5, every=0.001))
            said.write_text(json.dumps(document, default=str))
            code = 0
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        finally:
            os._exit(code)
    if kill_after is None:
        os.waitpid(child, 0)
    else:
        until = None if in_fit else time.monotonic() + kill_after
        while until is None or time.monotonic() < until:
            if os.waitpid(child, os.WNOHANG)[0]:
                break
            if until is None and _has_checkpoint(folder):
                until = time.monotonic() + kill_after
            time.sleep(0.001)
        else:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
    return json.loads(said.read_text()) if said.exists() else None
