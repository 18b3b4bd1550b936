"""`import bigsvm` and `bigsvm --help` load nothing heavy, and little: they are to be quick."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

HEAVY = (
    "numpy", "numba", "zarr", "numcodecs", "dask", "distributed", "pyarrow", "scipy", "sklearn", "rich",
    "pandas", "psutil", "xxhash", "zstandard", "matplotlib",
)  # fmt: skip

IMPORT = "import bigsvm"
HELP = "from bigsvm.cli.main import run; assert run(['--help']) == 0"
COMMAND_HELP = "from bigsvm.cli.main import COMMANDS, run; assert not any(run([c, '--help']) for c in COMMANDS)"
FIT = "import bigsvm, numpy; assert bigsvm.fit(numpy.array([[1.0], [-1.0]]), [1, 0]).status == 'converged'"
VERSION = "from bigsvm.cli.main import run; assert run(['--version']) == 0"
USAGE = "from bigsvm.cli.main import run; assert run(['fit', '--no-such-option', '--json']) == 2"


@pytest.mark.parametrize("code", [IMPORT, HELP, COMMAND_HELP, VERSION, USAGE])
def test_nothing_heavy_is_imported(code: str) -> None:
    assert _loaded(code, HEAVY) == []


def test_a_fit_of_arrays_loads_no_format_and_no_compiler() -> None:
    """A quarter of what the command line or the estimators load before a fit was pyarrow and zarr with theirs.

    An eighth of a fit whose compiled code is there already was numba's tables of what it can compile.
    """
    formats = ("zarr", "numcodecs", "fsspec", "pyarrow", "pandas", "dask", "distributed", "h5py")
    tables = ("numba.np.polynomial.polynomial_core", "numba.typed.dictimpl", "scipy.linalg")
    found = _loaded(FIT, formats + tables)
    assert found == [] or _loaded(FIT, formats + tables) == []  # what is compiled the first time is there the second


def _loaded(code: str, modules: Sequence[str]) -> list[str]:
    """Which of some modules `code` loads, in a process of its own."""
    check = f"{code}\nimport sys\nprint('LOADED', *[m for m in {modules!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()[1:]


def test_only_click_comes_from_outside() -> None:
    check = (
        f"{HELP}\nimport sys\n"
        "roots = {m.partition('.')[0] for m in sys.modules}\n"
        "print('LOADED', *(m for m in roots if m[0] != '_' and m not in sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", _with_path(check)], capture_output=True, text=True, check=True)
    assert set(done.stdout.splitlines()[-1].split()[1:]) <= {"bigsvm", "click"}


def test_nobody_else_needs_the_estimators() -> None:
    """All other modules load without scikit-learn: it is an extra."""
    check = (
        "import sys, pkgutil, importlib\n"
        "sys.modules['sklearn'] = None\n"
        "import bigsvm\n"
        "for found in pkgutil.walk_packages(bigsvm.__path__, 'bigsvm.'):\n"
        "    if not found.name.startswith(('bigsvm.sklearn', 'bigsvm.__main__', 'bigsvm.testing')):\n"
        "        importlib.import_module(found.name)\n"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_scikit_learn_one_line_says_what_is_missing() -> None:
    check = "import sys; sys.modules['sklearn'] = None; import bigsvm.sklearn"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith("bigsvm.sklearn needs scikit-learn: pip install 'bigsvm[sklearn]'")


@pytest.mark.parametrize(("code", "most"), [(IMPORT, 40), (HELP, 120)])
def test_little_is_imported(code: str, most: int) -> None:
    """Of modules of under a millisecond each, 120 stay below the 0.15 s that are promised."""
    assert _modules(code) - _modules("pass") < most


def _modules(code: str) -> int:
    check = f"{code}\nimport sys\nprint(len(sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return int(done.stdout.splitlines()[-1])


def _with_path(code: str) -> str:
    """Code that finds the packages of this process without the hooks of its site directory."""
    return f"import sys\nsys.path[:] = {sys.path!r}\n{code}"
