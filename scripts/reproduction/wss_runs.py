"""The runs of WSS-WR as the command line asks for them, each with a journal from which a second start goes on."""

from __future__ import annotations

import json
import tempfile
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reproduction import wss, wss_ways
from reproduction.journal import Journal
from reproduction.mackey_glass import mackey_glass
from reproduction.sets import DataSet, made_up, open_folder, wss_large_sets, wss_sets

Say = Callable[[str], None]
_DOCS = Path(__file__).resolve().parents[2] / "docs"
_FEW = wss.Protocol(folds=2, every=4, limit=300, large_rows=100)


def run(asked: Namespace, say: Say) -> dict[str, Any]:
    """The thinned grid and the ways; or, beside what is there, the full grid of some sets, or final trainings alone."""
    if asked.smoke:
        with tempfile.TemporaryDirectory(prefix="reproduce-") as folder:
            return _smoke(Path(folder), say)
    before = _before(asked)
    data = open_folder(asked.data)
    small, targets = wss_sets(data)
    targets.append(mackey_glass())
    if asked.grid == "full":
        if not before:
            raise SystemExit("reproduce: --grid full goes beside the thinned grid\n  run `reproduce.py wss` first")
        return {**before, "full": _full(asked, small, say)}
    if asked.keep:
        if not before:
            raise SystemExit("reproduce: --keep has nothing to keep\n  leave it out")
        journal = Journal(asked.parts / "wss-kept.jsonl", before["protocol"])
        found = wss.run_kept(before, small, targets, journal, say)
    else:
        protocol = wss.Protocol(asked.folds, every=asked.every, large_rows=asked.large_rows)
        journal = Journal(asked.parts / "wss.jsonl", asdict(protocol))
        found = wss.run(small, targets, wss_large_sets(data), protocol, journal, say)
    ways = wss_ways.run(small, Journal(asked.parts / "wss-ways.jsonl", {"limit": wss_ways.LIMIT}), say)
    full = {"full": before["full"]} if "full" in before else {}
    return {**found, **ways, **full}


def _full(asked: Namespace, small: list[DataSet], say: Say) -> dict[str, Any]:
    """The whole grid, all folds with every cache, on the sets that --sets names."""
    names = asked.sets.split(",") if asked.sets else wss.FULL
    unknown = set(names) - {data.name for data in small}
    if unknown:
        known = ", ".join(data.name for data in small)
        raise SystemExit(f"reproduce: --sets has no {', '.join(sorted(unknown))}\n  there are: {known}")
    protocol = wss.Protocol(asked.folds, timed=asked.folds, every=1)
    journal = Journal(asked.parts / "wss-full.jsonl", asdict(protocol))
    return wss.run([data for data in small if data.name in names], [], [], protocol, journal, say)


def _smoke(folder: Path, say: Say) -> dict[str, Any]:
    """All of it on made-up data, and final trainings and a set that were not there a second time."""
    sets, targets = [made_up(60, 3, 1, "heart")], [made_up(50, 3, 3, "mpg")]
    journal = Journal(folder / "wss.jsonl", asdict(_FEW))
    found = wss.run(sets, targets, [made_up(120, 4, 2, "large")], _FEW, journal, say)
    found = wss.run_kept(found, sets, [*targets, mackey_glass(40)], journal, say)
    few = wss.Protocol(folds=2, timed=2, every=3, limit=200)
    full = wss.run([made_up(40, 3, 1, "heart")], [], [], few, Journal(folder / "full.jsonl", asdict(few)), say)
    ways = wss_ways.run(sets, Journal(folder / "ways.jsonl", {"limit": wss_ways.LIMIT}), say)
    return {**found, **ways, "full": full}


def _before(asked: Namespace) -> dict[str, Any]:
    """The figures that are there."""
    path = (asked.out or _DOCS) / "reproduction" / "wss.json"
    found: dict[str, Any] = json.loads(path.read_text())["found"] if path.exists() else {}
    return found
