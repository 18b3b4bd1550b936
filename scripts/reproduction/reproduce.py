#!/usr/bin/env python3
"""The tables and figures of the papers beside ours: Markdown, JSON and SVG, into docs/.

    scripts/reproduction/reproduce.py --list                                   every table and figure, and its state
    scripts/reproduction/reproduce.py rosenbrock --data ../shared/data
    scripts/reproduction/reproduce.py hyperpass --seeds 5
    scripts/reproduction/reproduce.py all                                      the five, hours; goes on where it stopped
    scripts/reproduction/reproduce.py cheap --check                            those of minutes, against what is in docs
    scripts/reproduction/reproduce.py all --redraw                             plots and page, of the figures in docs
    scripts/reproduction/reproduce.py rosenbrock --smoke --out /tmp/docs       small made-up data, for the test suite

Each paper's figures go to <out>/reproduction/<paper>.json and .svg (notes: no plot), with every number that the paper
prints beside ours; <out>/reproduction.md is then written anew from the figures of all papers that are there.  What is
done of a run is kept under --parts until the run is through, so that a second start goes on.  The data are a folder
with a `load.py`, given by --data, by BIGSVM_TEST_DATA, or ../shared/data beside the checkout; 66 where there is none.
Plots need the extra `bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))  # where the package `bench` is
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the modules beside this are the package `reproduction`

from reproduction.catalogue import Paper, printed
from reproduction.listing import differences, listing
from reproduction.papers import PAPERS
from reproduction.report import save, write_page

ROOT = Path(__file__).resolve().parents[2]
_BESIDE = ROOT.parent / "shared" / "data"
_SEVERAL = {"all": list(PAPERS), "cheap": [name for name, paper in PAPERS.items() if paper.cheap]}


def say(text: str) -> None:
    """Progress goes to standard error."""
    sys.stderr.write(f"{text}\n")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("paper", nargs="?", choices=[*PAPERS, *_SEVERAL], help="all of them with --smoke or --redraw and no name")
    add("--data", type=Path, default=Path(os.environ.get("BIGSVM_TEST_DATA", _BESIDE)), help="folder with load.py")
    add("--out", type=Path, help="folder for reproduction.md and reproduction/ [docs; with --smoke a temporary one]")
    add("--parts", type=Path, help="folder for what is done of a run that is not through [build/reproduction]")
    add("--smoke", action="store_true", help="a few seconds, on made-up data, to see that it works")
    add("--redraw", action="store_true", help="plots and page anew from the figures that are there; runs nothing")
    add("--list", action="store_true", help="every table and figure of the papers and its state; runs nothing")
    add("--check", action="store_true", help="run, write nothing, and say what differs from the figures in --out")
    for paper in PAPERS.values():
        paper.options(parser.add_argument_group(paper.name, paper.title))
    options = parser.parse_args()
    if options.paper is None and not (options.smoke or options.redraw or options.list):
        parser.error(f"name a paper: {', '.join([*PAPERS, *_SEVERAL])}")
    if options.parts is None:
        options.parts = ROOT / "build" / "reproduction"
    return options


def document_of(paper: Paper, folder: Path) -> dict[str, Any] | None:
    """What <folder>/<paper>.json holds; None where there is none."""
    path = folder / f"{paper.name}.json"
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return found


def reproduce(paper: Paper, options: argparse.Namespace, out: Path) -> None:
    """One paper: figures, plot, and the page of all."""
    folder = out / "reproduction"
    if options.redraw:
        document = document_of(paper, folder)
        if find_spec("matplotlib") is None or document is None:
            raise SystemExit(f"reproduce: --redraw needs matplotlib, and {folder / paper.name}.json")
        found = document["found"]
        save(folder, paper.name, {**document, "printed": printed(paper, found)})
    else:
        found = json.loads(json.dumps(paper.run(options, say)))
        command = f"scripts/reproduction/reproduce.py {paper.name}" + (" --smoke" if options.smoke else "")
        save(folder, paper.name, {"command": command, "printed": printed(paper, found), "found": found})
        if not options.smoke:
            _forget(paper, options.parts)
    if find_spec("matplotlib"):
        paper.draw(found, folder / f"{paper.name}.svg")
    else:
        say("no plot: matplotlib is not installed")
    write_page(out / "reproduction.md", folder, {name: one.section for name, one in PAPERS.items()})


def check(paper: Paper, options: argparse.Namespace, out: Path) -> int:
    """Run it and compare: how many figures differ from those of docs, seconds left out."""
    document = document_of(paper, out / "reproduction")
    if document is None:
        raise SystemExit(f"reproduce: --check needs {out / 'reproduction' / paper.name}.json")
    with tempfile.TemporaryDirectory(prefix="reproduce-") as parts:
        options.parts = Path(parts)  # figures that are kept are not run
        found = json.loads(json.dumps(paper.run(options, say)))
    differ = differences(document["found"], found)
    for line in differ[:20]:
        sys.stdout.write(f"{paper.name}: {line}\n")
    sys.stdout.write(f"{paper.name}: {len(differ)} figures differ\n")
    return len(differ)


def _forget(paper: Paper, parts: Path) -> None:
    for path in parts.glob(f"{paper.name}*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def main() -> int:
    """Run, write, and say where."""
    options = parse()
    papers = [PAPERS[name] for name in _SEVERAL.get(options.paper or "all", [options.paper])]
    with tempfile.TemporaryDirectory(prefix="reproduce-") as folder:
        out = options.out or (Path(folder) if options.smoke else ROOT / "docs")
        if options.list:
            lines, absent = listing(papers, {one.name: document_of(one, out / "reproduction") for one in papers})
            sys.stdout.write("\n".join(lines) + "\n")
            return min(absent, 1)
        if options.check:
            return min(sum(check(paper, options, out) for paper in papers), 1)
        for paper in papers:
            reproduce(paper, options, out)
        page = out / "reproduction.md"
        sys.stdout.write(page.read_text() if options.smoke else f"{page}\n")
        return 0


if __name__ == "__main__":
    sys.exit(main())
