#!/usr/bin/env python3
"""All combinations of solvers, losses, layouts, corners, ... that the tests go through a selection of.

    python scripts/cross_products.py            every file whose tests use `tests/products.py`, all combinations
    python scripts/cross_products.py rosen      only files with "rosen" in their names
    python scripts/cross_products.py --smoke    the combinations of one small test

The asserts are those of the tests, which run here by pytest with BIGSVM_TEST_PRODUCTS=whole.  Ends with the exit code
of pytest, and with 2 where no file is meant.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SMOKE = "tests/test_products.py::test_the_whole_product_is_run_on_request"


def files_of(part: str) -> list[str]:
    """Test files, from the root, that ask for a product and have `part` in their names."""
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if part in path.name and "from tests.products import" in path.read_text():
            found.append(str(path.relative_to(ROOT)))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the whole cross products of the tests.")
    parser.add_argument("part", nargs="?", default="", help="part of the names of the files to run")
    parser.add_argument("--workers", type=int, default=0, help="processes at once, by pytest-xdist")
    parser.add_argument("--smoke", action="store_true", help="one small test")
    options = parser.parse_args()
    meant = [SMOKE] if options.smoke else files_of(options.part)
    if not meant:
        print(f"no test file that uses products has {options.part!r} in its name", file=sys.stderr)
        return 2
    workers = ["-n", str(options.workers)] if options.workers else []
    command = [sys.executable, "-m", "pytest", "-q", *workers, *meant]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, "BIGSVM_TEST_PRODUCTS": "whole"}, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
