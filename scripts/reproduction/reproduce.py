#!/usr/bin/env python3
"""The tables and figures of the papers beside ours: Markdown, JSON and SVG, into docs/.

    scripts/reproduction/reproduce.py rosenbrock --data ../shared/data
    scripts/reproduction/reproduce.py hyperpass --seeds 5
    scripts/reproduction/reproduce.py rosen --partitions 100
    scripts/reproduction/reproduce.py wss --journal wss.jsonl                  about 40 minutes
    scripts/reproduction/reproduce.py wss --keep docs/reproduction/wss.json    final trainings and new sets alone
    scripts/reproduction/reproduce.py wss --grid full --sets heart,german.numer     the whole grid on some sets
    scripts/reproduction/reproduce.py wss-ways                                 Fig. 1, Figs. 11 and 12
    scripts/reproduction/reproduce.py --redraw                                 plots and page, of the figures in docs
    scripts/reproduction/reproduce.py rosenbrock --smoke --out /tmp/docs       small made-up data, for the test suite

Each paper's figures go to <out>/reproduction/<paper>.json and .svg (notes: no plot); <out>/reproduction.md is then
written anew from the figures of all papers that are there.  The data are a folder with a `load.py`, given by --data, by
BIGSVM_TEST_DATA, or ../shared/data beside the checkout; 66 where there is none.  Plots need the extra `bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))  # where the package `bench` is
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the modules beside this are the package `reproduction`

from reproduction import (
    hyperpass,
    hyperpass_report,
    notes,
    notes_report,
    rosen,
    rosen_report,
    rosenbrock,
    rosenbrock_report,
    wss_full_report,
    wss_report,
    wss_ways_report,
)
from reproduction.report import save, write_page
from reproduction.sets import (
    Partitioned,
    made_up,
    mnist_zero,
    notes_set,
    open_folder,
    rosen_sets,
    rosenbrock_sets,
)
from reproduction.wss_runs import run_full, run_ways, run_wss

ROOT = Path(__file__).resolve().parents[2]
_BESIDE = ROOT.parent / "shared" / "data"
REPORTS: dict[str, Any] = {
    "rosenbrock": rosenbrock_report,
    "hyperpass": hyperpass_report,
    "rosen": rosen_report,
    "notes": notes_report,
    "wss": wss_report,
    "wss-full": wss_full_report,
    "wss-ways": wss_ways_report,
}


def say(text: str) -> None:
    """Progress goes to standard error."""
    sys.stderr.write(f"{text}\n")


def run_rosenbrock(options: argparse.Namespace) -> dict[str, Any]:
    """20 splits of each set, unless --splits says otherwise."""
    if options.smoke:
        sets = [made_up(80, 3, 1, "balance, L and R"), made_up(80, 4, 2, "heart")]
        few = rosenbrock.Protocol(splits=2, folds=2, costs=(0.01, 1.0), searches=(0.1,))
        return rosenbrock.run(sets, few, say)
    return rosenbrock.run(rosenbrock_sets(open_folder(options.data)), rosenbrock.Protocol(options.splits), say)


def run_hyperpass(options: argparse.Namespace) -> dict[str, Any]:
    """MNIST, as many seeds of the mini-batches as --seeds says."""
    if options.smoke:
        train, test = made_up(400, 5, 1), made_up(100, 5, 1)
        return hyperpass.run(train, test, hyperpass.Protocol(seeds=2, shorter=20), say)
    train, test = mnist_zero(open_folder(options.data))
    return hyperpass.run(train, test, hyperpass.Protocol(options.seeds), say)


def run_rosen(options: argparse.Namespace) -> dict[str, Any]:
    """Six sets, as many random partitions as --partitions says of those that have no published ones."""
    if options.smoke:
        sets = [Partitioned(made_up(90, 3, k, name), 60) for k, name in enumerate(("heart", "thyroid"))]
        return rosen.run(sets, rosen.Protocol(partitions=3, fewer=2, most=5000, slow=2000), say, options.parts)
    sets = rosen_sets(open_folder(options.data))
    return rosen.run(sets, rosen.Protocol(options.partitions), say, options.parts)


def run_notes(options: argparse.Namespace) -> dict[str, Any]:
    """heart_scale."""
    if options.smoke:
        return notes.run(made_up(40, 3, 1), repeats=1, seeds=2, say=say)
    return notes.run(notes_set(open_folder(options.data)), repeats=5, seeds=20, say=say)


RUNS = {
    "rosenbrock": run_rosenbrock,
    "hyperpass": run_hyperpass,
    "rosen": run_rosen,
    "notes": run_notes,
    "wss": lambda options: run_wss(options, say),
    "wss-full": lambda options: run_full(options, say),
    "wss-ways": lambda options: run_ways(options, say),
}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("paper", nargs="?", choices=list(RUNS), help="all of them with --smoke and no name")
    add("--data", type=Path, default=Path(os.environ.get("BIGSVM_TEST_DATA", _BESIDE)), help="folder with load.py")
    add("--out", type=Path, help="folder for reproduction.md and reproduction/ [docs; with --smoke a temporary one]")
    add("--splits", type=int, default=20, help="of rosenbrock")
    add("--seeds", type=int, default=5, help="of the mini-batches of hyperpass")
    add("--partitions", type=int, default=100, help="of rosen")
    add("--parts", type=Path, help="folder for what is done of rosen, from which a second start goes on")
    add("--folds", type=int, default=5, help="of cross-validation, of wss")
    add("--every", type=int, default=2, help="so many-th point of the grid in each direction, of wss")
    add("--large-rows", type=int, default=10_000, help="of each large set, of wss")
    add("--journal", type=Path, help="what is done of wss, from which a second start goes on [<name>.jsonl]")
    add("--grid", choices=("thin", "full"), default="thin", help="of wss; full: as wss-full, on the sets of --sets")
    add("--sets", help="of wss-full, with commas [heart,breast-cancer]")
    add("--keep", type=Path, metavar="JSON", help="of wss: keep what it has but for final trainings; add its new sets")
    add("--smoke", action="store_true", help="a few seconds, on made-up data, to see that it works")
    add("--redraw", action="store_true", help="plots and page anew from the figures that are there; runs nothing")
    options = parser.parse_args()
    if options.paper is None and not options.smoke and not options.redraw:
        parser.error(f"name a paper: {', '.join(RUNS)}")
    if options.grid == "full":
        if options.paper != "wss":
            parser.error("--grid full is of wss")
        options.paper = "wss-full"
    return options


def reproduce(paper: str, options: argparse.Namespace, out: Path) -> None:
    """One paper: figures, plot, and the page of all."""
    folder = out / "reproduction"
    if options.redraw:
        if find_spec("matplotlib") is None or not (folder / f"{paper}.json").exists():
            raise SystemExit(f"reproduce: --redraw needs matplotlib, and {folder / paper}.json")
        found = json.loads((folder / f"{paper}.json").read_text())["found"]
    else:
        found = RUNS[paper](options)
        save(folder, paper, f"scripts/reproduction/reproduce.py {paper}" + (" --smoke" if options.smoke else ""), found)
    if find_spec("matplotlib"):
        REPORTS[paper].draw(found, folder / f"{paper}.svg")
    else:
        say("no plot: matplotlib is not installed")
    write_page(out / "reproduction.md", folder, {name: report.section for name, report in REPORTS.items()})


def main() -> None:
    """Run, write, and say where."""
    options = parse()
    with tempfile.TemporaryDirectory(prefix="reproduce-") as folder:
        out = options.out or (Path(folder) if options.smoke else ROOT / "docs")
        for paper in [options.paper] if options.paper else list(RUNS):
            reproduce(paper, options, out)
        page = out / "reproduction.md"
        sys.stdout.write(page.read_text() if options.smoke else f"{page}\n")


if __name__ == "__main__":
    main()
