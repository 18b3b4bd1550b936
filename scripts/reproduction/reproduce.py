#!/usr/bin/env python3
"""The tables and figures of the papers beside ours: Markdown, JSON and SVG, into docs/.

    scripts/reproduction/reproduce.py --list                                   every table and figure, and its state
    scripts/reproduction/reproduce.py rosenbrock --data ../shared/data
    scripts/reproduction/reproduce.py hyperpass --seeds 5
    scripts/reproduction/reproduce.py all                                      the five; goes on where it stopped
    scripts/reproduction/reproduce.py cheap --check                            those of minutes, against what is in docs
    scripts/reproduction/reproduce.py all --redraw                             plots and page, of the figures in docs
    scripts/reproduction/reproduce.py rosenbrock --smoke --out /tmp/docs       small made-up data, for the test suite

Each paper's figures go to <out>/reproduction/<paper>.json and .svg (notes: no plot), with every number that the paper
prints beside ours; <out>/reproduction.md is then written anew from the figures of all papers that are there.  Every
part that is done is written down under --parts, with its seconds and CPU seconds, until the whole command is through,
so that a second start goes on; the sums are in the JSON and on the page.  A check begins with no part done, but goes on
with those of a check of the same program that was stopped.  The data are a folder with a `load.py`, given by --data, by
BIGSVM_TEST_DATA, or ../shared/data beside the checkout; 66 where there is none.  Plots need the extra `bench`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))  # where the package `bench` is
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the modules beside this are the package `reproduction`
# Before NumPy is there: the principal components of MNIST differ in the last digits by the number of BLAS threads, and
# methods that ask whether a row lies on its hyperplane make a difference in the seventh digit of it.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from reproduction.catalogue import Paper, printed
from reproduction.journal import costs, journals_of, total
from reproduction.listing import differences, listing
from reproduction.papers import PAPERS
from reproduction.report import save, write_page
from reproduction.sets import open_folder

ROOT = Path(__file__).resolve().parents[2]
_BESIDE = ROOT.parent / "shared" / "data"
_RENDERING = ("report", "tables", "times", "figures", "listing")
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
    add("--costs", action="store_true", help="with --check: what it took goes into --out, where no figure differs")
    add("--jobs", type=int, help="papers at a time, a process each [2 of a check, else 1, as times are then figures]")
    for paper in PAPERS.values():
        paper.options(parser.add_argument_group(paper.name, paper.title))
    options = parser.parse_args()
    if options.paper is None and not (options.smoke or options.redraw or options.list):
        parser.error(f"name a paper: {', '.join([*PAPERS, *_SEVERAL])}")
    if options.jobs is None:
        options.jobs = 2 if options.check and not options.smoke else 1
    if options.grid is None:
        options.grid = "both" if options.paper == "all" else "thin"
    return options


def document_of(paper: Paper, folder: Path) -> dict[str, Any] | None:
    """What <folder>/<paper>.json holds; None where there is none."""
    path = folder / f"{paper.name}.json"
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return found


class Done(NamedTuple):
    """A paper that was run: its figures, and by journal and kind of part what they cost."""

    name: str
    found: dict[str, Any]
    cost: dict[str, dict[str, dict[str, float]]]


def run(name: str, options: argparse.Namespace) -> Done:
    """One paper, in this process; what is no part, as loading the data, is counted for this start."""
    wall, cpu, before = time.perf_counter(), time.process_time(), total(costs(journals_of(name, options.parts)))
    found = json.loads(json.dumps(PAPERS[name].run(options, lambda text: say(f"{name}: {text}"))))
    cost = costs(journals_of(name, options.parts))
    kinds, parts = cost.get(name) or cost[next(iter(cost))], total(cost)
    kinds["what is no part"] = {
        "parts": 0,
        "seconds": round(max(time.perf_counter() - wall - (parts["seconds"] - before["seconds"]), 0.0), 3),
        "cpu_seconds": round(max(time.process_time() - cpu - (parts["cpu_seconds"] - before["cpu_seconds"]), 0.0), 3),
    }
    return Done(name, found, cost)


def run_all(names: list[str], options: argparse.Namespace) -> Iterator[Done]:
    """Each paper as it is done, --jobs at a time, those that took longest when docs were written first."""
    if options.jobs == 1 or len(names) == 1:
        yield from (run(name, options) for name in names)
        return
    if not options.smoke:
        open_folder(options.data)  # what is missing is said once
    known = {name: document_of(PAPERS[name], (options.out or ROOT / "docs") / "reproduction") or {} for name in names}
    order = sorted(names, key=lambda name: -total(known[name].get("cost", {}))["cpu_seconds"])
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(run, name, options) for name in order]):
            yield future.result()


def write(done: Done, options: argparse.Namespace, folder: Path) -> None:
    """The figures of a paper that was run; what a run leaves as it was keeps what it cost."""
    paper = PAPERS[done.name]
    command = f"scripts/reproduction/reproduce.py {done.name}" + (" --smoke" if options.smoke else "")
    cost = {**(document_of(paper, folder) or {}).get("cost", {}), **done.cost}
    shown = printed(paper, done.found)
    save(folder, done.name, {"command": command, "cost": cost, "printed": shown, "found": done.found})


def draw(paper: Paper, folder: Path) -> None:
    """The states and the plot, of the figures that are there."""
    document = document_of(paper, folder)
    if document is None:
        raise SystemExit(f"reproduce: --redraw needs {folder / paper.name}.json")
    save(folder, paper.name, {**document, "printed": printed(paper, document["found"])})
    if find_spec("matplotlib"):
        paper.draw(document["found"], folder / f"{paper.name}.svg")
    else:
        say("no plot: matplotlib is not installed")


def check(names: list[str], options: argparse.Namespace, folder: Path) -> int:
    """Run and compare: how many figures differ from those of docs, times left out."""
    documents = {name: document_of(PAPERS[name], folder) for name in names}
    missing = [name for name, document in documents.items() if document is None]
    if missing:
        raise SystemExit(f"reproduce: --check needs {folder / missing[0]}.json")
    whole = options.parts
    options.parts = whole / f"check-{_program()}"
    for other in whole.glob("check-*"):
        if other != options.parts:
            shutil.rmtree(other)  # of another program: of no use to any check
    count, began = 0, time.perf_counter()
    for done in run_all(names, options):
        document = documents[done.name]
        assert document is not None
        paper, kept = PAPERS[done.name], document["found"]
        differ = differences(kept, done.found, within=paper.within(kept), clock=paper.clock)
        for line in differ[:20]:
            sys.stdout.write(f"{done.name}: {line}\n")
        took = total(done.cost)
        sys.stdout.write(
            f"{done.name}: {len(differ)} figures differ; {took['parts']:.0f} parts, {took['seconds']:.0f} s, "
            f"{took['cpu_seconds']:.0f} CPU s\n"
        )
        sys.stdout.flush()
        count += len(differ)
        if options.costs and not differ:
            save(folder, done.name, {**document, "cost": {**document.get("cost", {}), **done.cost}})
    sys.stdout.write(f"{count} figures differ in all; this start took {time.perf_counter() - began:.0f} s\n")
    _forget(names, options.parts)
    return count


def _forget(names: list[str], parts: Path) -> None:
    """Of a command that is through nothing is left to go on with."""
    for path in (path for name in names for path in journals_of(name, parts)):
        path.unlink()
    if not any(parts.iterdir()):
        parts.rmdir()


def _program() -> str:
    """What the figures come from: the package and these scripts, but for those that only say and draw them."""
    found = hashlib.sha256()
    for folder in (ROOT / "bigsvm", ROOT / "scripts" / "reproduction"):
        for path in sorted(folder.rglob("*.py")):
            if not path.stem.endswith(_RENDERING):
                found.update(path.read_bytes())
    return found.hexdigest()[:12]


def main() -> int:
    """Run, write, and say where."""
    options = parse()
    papers = [PAPERS[name] for name in _SEVERAL.get(options.paper or "all", [options.paper])]
    names = [paper.name for paper in papers]
    with tempfile.TemporaryDirectory(prefix="reproduce-") as made:
        out = options.out or (Path(made) if options.smoke else ROOT / "docs")
        if options.parts is None or options.smoke:
            options.parts = Path(made) / "parts" if options.smoke else ROOT / "build" / "reproduction"
        folder, sections = out / "reproduction", {name: one.section for name, one in PAPERS.items()}
        if options.list:
            lines, absent = listing(papers, {one.name: document_of(one, folder) for one in papers})
            sys.stdout.write("\n".join(lines) + "\n")
            return min(absent, 1)
        if options.check:
            differ = check(names, options, folder)
            if options.costs:
                write_page(out / "reproduction.md", folder, sections)
            return min(differ, 1)
        for done in [] if options.redraw else run_all(names, options):
            write(done, options, folder)
        for paper in papers:
            draw(paper, folder)
        write_page(out / "reproduction.md", folder, sections)
        if not options.redraw:
            _forget(names, options.parts)
        sys.stdout.write((out / "reproduction.md").read_text() if options.smoke else f"{out / 'reproduction.md'}\n")
        return 0


if __name__ == "__main__":
    sys.exit(main())
