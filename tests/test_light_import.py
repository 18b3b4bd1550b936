"""`import bigsvm` and `bigsvm --help` load nothing heavy and are quick."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

HEAVY = (
    "numpy", "numba", "zarr", "numcodecs", "dask", "distributed", "pyarrow", "scipy", "sklearn", "rich",
    "pandas", "psutil", "xxhash", "zstandard", "matplotlib",
)  # fmt: skip
ALLOWED_S = 0.15

IMPORT = "import bigsvm"
HELP = "from bigsvm.cli.main import run; assert run(['--help']) == 0"
COMMAND_HELP = "from bigsvm.cli.main import COMMANDS, run; assert not any(run([c, '--help']) for c in COMMANDS)"
VERSION = "from bigsvm.cli.main import run; assert run(['--version']) == 0"
USAGE = "from bigsvm.cli.main import run; assert run(['fit', '--no-such-option', '--json']) == 2"


@pytest.mark.parametrize("code", [IMPORT, HELP, COMMAND_HELP, VERSION, USAGE])
def test_nothing_heavy_is_imported(code: str) -> None:
    check = f"{code}\nimport sys\nprint('LOADED', *[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].strip() == "LOADED"


def test_only_click_comes_from_outside() -> None:
    check = (
        f"{HELP}\nimport sys\n"
        "roots = {m.partition('.')[0] for m in sys.modules}\n"
        "print('LOADED', *(m for m in roots if m[0] != '_' and m not in sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", _with_path(check)], capture_output=True, text=True, check=True)
    assert set(done.stdout.splitlines()[-1].split()[1:]) <= {"bigsvm", "click"}


@pytest.mark.parametrize("code", [IMPORT, HELP])
def test_it_is_quick(code: str) -> None:
    # The best of several: a busy machine makes single runs slow, not all of them.
    assert _best(code) - _best("pass") < ALLOWED_S


def _best(code: str, tries: int = 7) -> float:
    times = []
    for _ in range(tries):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        times.append(time.perf_counter() - began)
    return min(times)


def _with_path(code: str) -> str:
    """Code that finds the packages of this process without the hooks of its site directory."""
    return f"import sys\nsys.path[:] = {sys.path!r}\n{code}"
