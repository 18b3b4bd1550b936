"""The runs of WSS-WR as the command line asks for them, each with a journal from which a second start goes on."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reproduction import wss, wss_ways
from reproduction.journal import journal_of
from reproduction.mackey_glass import mackey_glass
from reproduction.sets import DataSet, made_up, open_folder, wss_large_sets, wss_sets

Say = Callable[[str], None]
_DOCS = Path(__file__).resolve().parents[2] / "docs"
_FEW = wss.Protocol(folds=2, every=4, limit=300, large_rows=100)


def run(asked: Namespace, say: Say) -> dict[str, Any]:
    """The thinned grid, the ways, and the full grid of some sets; or, beside what is there, parts of that."""
    if asked.smoke:
        return _smoke(asked, say)
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
        journal = journal_of(asked, "wss-kept", before["protocol"])
        found = wss.run_kept(before, small, targets, journal, say)
    else:
        protocol = wss.Protocol(asked.folds, every=asked.every, large_rows=asked.large_rows)
        journal = journal_of(asked, "wss", asdict(protocol))
        found = wss.run(small, targets, wss_large_sets(data), protocol, journal, say)
    ways = wss_ways.run(small, journal_of(asked, "wss-ways", {"limit": wss_ways.LIMIT}), say)
    full = {"full": before["full"]} if "full" in before else {}
    if asked.grid == "both":
        full = {"full": _full(asked, small, say)}
    return {**found, **ways, **full}


def _full(asked: Namespace, small: list[DataSet], say: Say) -> dict[str, Any]:
    """The whole grid, all folds with every cache, on the sets that --sets names."""
    names = asked.sets.split(",") if asked.sets else wss.FULL
    unknown = set(names) - {data.name for data in small}
    if unknown:
        known = ", ".join(data.name for data in small)
        raise SystemExit(f"reproduce: --sets has no {', '.join(sorted(unknown))}\n  there are: {known}")
    protocol = wss.Protocol(asked.folds, timed=asked.folds, every=1)
    journal = journal_of(asked, "wss-full", asdict(protocol))
    return wss.run([data for data in small if data.name in names], [], [], protocol, journal, say)


def _smoke(asked: Namespace, say: Say) -> dict[str, Any]:
    """All of it on made-up data, and final trainings and a set that were not there a second time."""
    sets, targets = [made_up(60, 3, 1, "heart")], [made_up(50, 3, 3, "mpg")]
    journal = journal_of(asked, "wss", asdict(_FEW))
    found = wss.run(sets, targets, [made_up(120, 4, 2, "large")], _FEW, journal, say)
    found = wss.run_kept(found, sets, [*targets, mackey_glass(40)], journal, say)
    few = wss.Protocol(folds=2, timed=2, every=3, limit=200)
    full = wss.run([made_up(40, 3, 1, "heart")], [], [], few, journal_of(asked, "wss-full", asdict(few)), say)
    ways = wss_ways.run(sets, journal_of(asked, "wss-ways", {"limit": wss_ways.LIMIT}), say)
    return {**found, **ways, "full": full}


def _before(asked: Namespace) -> dict[str, Any]:
    """The figures that are there."""
    path = (asked.out or _DOCS) / "reproduction" / "wss.json"
    found: dict[str, Any] = json.loads(path.read_text())["found"] if path.exists() else {}
    return found
