#!/usr/bin/env python3
"""The reference of commands, options and Python names: written from the program itself, never by hand.

    scripts/reference.py              writes docs/reference/commands.md and docs/reference/python.md
    scripts/reference.py --check      says which of them differs; exit 1
    scripts/reference.py --man DIR    man pages: bigsvm.1, and one for each command

Commands and options are those that the command line has (which takes the options of a fit from `bigsvm.config`);
the Python pages are signatures and docstrings as they stand in the source.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this tree, and not one that is installed

from site_pages import commands, manual, names

ROOT = Path(__file__).resolve().parents[1]

PAGES = {
    ROOT / "docs" / "reference" / "commands.md": commands.page,
    ROOT / "docs" / "reference" / "python.md": names.page,
}


def check() -> list[str]:
    """What is wrong with the pages, a sentence each."""
    return [
        f"{path.relative_to(ROOT)} is not what scripts/reference.py writes"
        for path, made in PAGES.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != made()
    ]


def main(argv: list[str] | None = None) -> int:
    """Write or check; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--man", type=Path, metavar="DIR", help="write man pages there, and nothing else")
    options = parser.parse_args(argv)
    if options.check:
        wrong = check()
        print("\n".join(wrong), end="\n" if wrong else "", file=sys.stderr)
        return 1 if wrong else 0
    if options.man is not None:
        options.man.mkdir(parents=True, exist_ok=True)
        for name, text in manual.pages().items():
            (options.man / name).write_text(text, encoding="utf-8")
        return 0
    for path, made in PAGES.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(made(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
