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
from reproduction.sets import made_up, open_folder, wss_large_sets, wss_sets

Say = Callable[[str], None]


def run_wss(options: Namespace, say: Say) -> dict[str, Any]:
    """Ten small sets and samples of three large ones, on every second point of the grid unless --every says not."""
    if options.smoke:
        sets, large = [made_up(60, 3, 1, "heart")], [made_up(120, 4, 2, "large")]
        targets = [made_up(50, 3, 3, "mpg")]
        few = wss.Protocol(folds=2, every=4, limit=300, large_rows=100)
        with _aside(few) as journal:
            found = wss.run(sets, targets, large, few, journal, say)
            return wss.run_kept(found, sets, [*targets, mackey_glass(40)], journal, say)
    data = open_folder(options.data)
    small, targets = wss_sets(data)
    targets.append(mackey_glass())
    protocol = wss.Protocol(options.folds, every=options.every, large_rows=options.large_rows)
    if options.keep:
        before = json.loads(options.keep.read_text())["found"]
        return wss.run_kept(before, small, targets, Journal(_path(options, "wss"), before["protocol"]), say)
    journal = Journal(_path(options, "wss"), asdict(protocol))
    return wss.run(small, targets, wss_large_sets(data), protocol, journal, say)


def run_full(options: Namespace, say: Say) -> dict[str, Any]:
    """The whole grid, all folds with every cache, on the sets that --sets names."""
    if options.smoke:
        few = wss.Protocol(folds=2, timed=2, every=3, limit=200)
        with _aside(few) as journal:
            return wss.run([made_up(40, 3, 1, "heart")], [], [], few, journal, say)
    small, _ = wss_sets(open_folder(options.data))
    names = options.sets.split(",") if options.sets else wss.FULL
    unknown = set(names) - {data.name for data in small}
    if unknown:
        known = ", ".join(data.name for data in small)
        raise SystemExit(f"reproduce: --sets has no {', '.join(sorted(unknown))}\n  there are: {known}")
    protocol = wss.Protocol(options.folds, timed=options.folds, every=1)
    journal = Journal(_path(options, "wss-full"), asdict(protocol))
    return wss.run([data for data in small if data.name in names], [], [], protocol, journal, say)


def run_ways(options: Namespace, say: Say) -> dict[str, Any]:
    """Selections and ways to the optimum, Fig. 1 and Figs. 11 and 12."""
    protocol = {"limit": wss_ways.LIMIT}
    if options.smoke:
        with tempfile.TemporaryDirectory(prefix="reproduce-") as folder:
            return wss_ways.run([made_up(60, 3, 1, "heart")], Journal(Path(folder) / "ways.jsonl", protocol), say)
    small, _ = wss_sets(open_folder(options.data))
    return wss_ways.run(small, Journal(_path(options, "wss-ways"), protocol), say)


def _path(options: Namespace, name: str) -> Path:
    return options.journal or Path(f"{name}.jsonl")


class _aside:
    """A journal that goes when it is left."""

    def __init__(self, protocol: wss.Protocol) -> None:
        self._protocol, self._folder = protocol, tempfile.TemporaryDirectory(prefix="reproduce-")

    def __enter__(self) -> Journal:
        return Journal(Path(self._folder.name) / "wss.jsonl", asdict(self._protocol))

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()
