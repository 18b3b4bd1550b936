#!/usr/bin/env python3
"""The figures of README and docs: written from the JSON files of docs/figures, never by hand.

    scripts/figures.py                                        writes every passage anew
    scripts/figures.py --check                                says which page differs; exit 1
    scripts/figures.py --plots                                docs/plots/NAME.svg of NAME.curves.json; needs matplotlib
    scripts/figures.py --promise 'scripts/stress/kill_test.py --kills 100'      runs it, and keeps what it says

A passage stands between `<!-- figures: NAME -->` and `<!-- /figures -->`; `benchmarks/bench/passages.py` says what NAME
is.  To measure again, run the command that stands beside a passage with `--figures docs/figures/FILE.json`, then this
script.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "benchmarks"))  # where the package `bench` is

from bench.passages import PASSAGES
from bench.plot import draw_again
from bench.record import ROOT, commit, dumped, meter

FIGURES = ROOT / "docs" / "figures"
PLOTS = ROOT / "docs" / "plots"
_PASSAGE = re.compile(r"(<!-- figures: ([a-z-]+) -->\n)(.*?)(<!-- /figures -->)", re.DOTALL)
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_MEASURED = re.compile(r"\d (?:s|ms|passes|MiB|MB|MB/s)\b")
_BY_OTHERS = ("reproduction.md", "tuned.md")
"""Pages that a script of their own writes."""


def pages() -> Iterator[Path]:
    """README and docs."""
    yield ROOT / "README.md"
    yield from sorted(path for path in (ROOT / "docs").glob("*.md") if path.name not in _BY_OTHERS)


def passage(name: str) -> str:
    """What stands between the marks.  Raises ValueError where there is no such passage, or it names no commit."""
    if name not in PASSAGES:
        raise ValueError(f"no passage is called {name!r}")
    path = FIGURES / f"{PASSAGES[name].figures}.json"
    document = json.loads(path.read_text())
    by_row = [row for row in document["rows"] if isinstance(row, dict) and "promise" in row]
    for one in by_row or [document]:
        if not _COMMIT.search(one["commit"]):
            raise ValueError(f"{path.name} does not say at which commit it was measured: {one['commit']!r}")
    return "\n".join(["", *PASSAGES[name].render(document), "", ""])


def rewritten(text: str) -> str:
    """A page with its passages made anew."""
    return _PASSAGE.sub(lambda found: found[1] + passage(found[2]) + found[4], text)


def by_hand(text: str) -> list[str]:
    """Lines of tables with measurements that stand outside of every passage."""
    rest = _PASSAGE.sub("", text)
    return [line for line in rest.splitlines() if line.startswith("|") and _MEASURED.search(line)]


def check() -> list[str]:
    """What is wrong with the pages, a sentence each."""
    wrong, used = [], set()
    for page in pages():
        text = page.read_text()
        used |= {found[2] for found in _PASSAGE.finditer(text)}
        if rewritten(text) != text:
            wrong.append(f"{page.name} is not what scripts/figures.py writes")
        wrong += [f"{page.name} has figures in a table that no script writes: {line[:80]}" for line in by_hand(text)]
    wrong += [f"no page has the passage {name}" for name in PASSAGES if name not in used]
    known = {one.figures for one in PASSAGES.values()} | {"mutation"}
    wrong += [f"no passage is made of {path.name}" for path in FIGURES.glob("*.json") if path.stem not in known]
    return wrong


def promise(asked: str) -> None:
    """Run a promise's script, and keep the last line that it writes.  Raises SystemExit where it fails."""
    path = FIGURES / "promises.json"
    document = json.loads(path.read_text())
    rows = [row for row in document["rows"] if row["command"] == asked]
    if len(rows) != 1:
        commands = ", ".join(row["command"] for row in document["rows"])
        raise SystemExit(f"no promise has the command {asked!r}; there are: {commands}")
    script, *options = shlex.split(asked)
    done = subprocess.run(
        [sys.executable, str(ROOT / script), *options], stdout=subprocess.PIPE, text=True, check=False
    )
    sys.stdout.write(done.stdout)
    if done.returncode:
        raise SystemExit(f"{asked} ended with {done.returncode}: the promise is not kept")
    said = [line for line in done.stdout.splitlines() if line.strip() and not line.startswith("{")]
    rows[0] |= {"measured": said[-1].strip().replace("|", "/"), "commit": commit(), "machine": meter()}
    path.write_text(dumped(document))


def main() -> None:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--plots", action="store_true", help="draw the plots again, too")
    parser.add_argument("--promise", metavar="COMMAND", help="as it stands in the table of promises")
    options = parser.parse_args()
    if options.check:
        wrong = check()
        if wrong:
            raise SystemExit("\n".join(wrong))
        return
    if options.promise:
        promise(options.promise)
    if options.plots:
        for kept in sorted(PLOTS.glob("*.curves.json")):
            draw_again(kept, PLOTS / f"{kept.name.removesuffix('.curves.json')}.svg")
    for page in pages():
        page.write_text(rewritten(page.read_text()))


if __name__ == "__main__":
    main()
