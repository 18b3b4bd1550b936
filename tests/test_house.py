"""Lint, layout and types, as the tools see the tree that is tested."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "bigsvm"
MODULES = 14  # of a folder, at most
MEDIAN = 140  # lines of a file, a third of which are docstrings and comments
LINES = 100  # of a function outside compiled/
PARAMETERS = 12  # of a function anywhere
WIDE = {
    "ingest": "public: a keyword for each option of the command, with all that they mean",
    "open_source": "the options of ingest as they came",
    "open_store": "public: a keyword for each way to read rows, with all that they mean",
    "fit": "public: those of open_store, and arrays beside",
    "__init__": "of an estimator: a keyword for each parameter, as scikit-learn has them",
}
"""Functions outside compiled/ that are longer or take more, and why."""
TOLD_ALL = {
    "shared/shuffle.py: pack_rows": "the arrays of CSR rows twice, as they are and as they are to be",
}
"""Functions of compiled/ that take more, and why."""


@pytest.mark.parametrize(
    "command",
    [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]],
    ids=lambda command: " ".join(command[:2]),
)
def test_tools_are_content(command: list[str]) -> None:
    if importlib.util.find_spec(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    if command == ["mypy"] and not (ROOT / ".mypy_cache").exists():
        command = ["mypy", "--cache-dir", os.devnull]  # a cache that nobody keeps takes a fifth of the time
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_the_readme_has_its_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    for mark in ("<!-- demo -->", "<!-- tests -->"):
        found = re.search(re.escape(mark) + r"\s*```(?:bash|sh)?\n(.+?)\n```", text, re.DOTALL)
        assert found is not None, mark
        assert len(found[1].splitlines()) == 1, "one command, one line"


def test_scripts_have_a_smoke_test() -> None:
    scripts = list((ROOT / "scripts" / "benchmarks").glob("bench_*.py"))
    assert scripts
    for script in scripts:
        assert "--smoke" in script.read_text(), script.name


def test_no_folder_is_a_heap() -> None:
    folders = Counter(path.parent for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
    assert {str(folder.relative_to(ROOT)): n for folder, n in folders.items() if n > MODULES} == {}


def test_every_folder_says_what_it_is() -> None:
    for folder in {path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE}:
        text = (folder / "__init__.py").read_text()
        assert ast.get_docstring(ast.parse(text)), f"{folder.relative_to(ROOT)} has no docstring"


def test_files_are_short() -> None:
    lengths = [len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"]
    assert statistics.median(lengths) <= MEDIAN


def functions() -> Iterator[tuple[Path, ast.FunctionDef]]:
    for path in PACKAGE.rglob("*.py"):
        yield from ((path, node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))


def takes_much(node: ast.FunctionDef) -> bool:
    return len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs) > PARAMETERS


def test_functions_are_short_and_take_little() -> None:
    found = {
        node.name
        for path, node in functions()
        if "compiled" not in path.parts and ((node.end_lineno or 0) - node.lineno + 1 > LINES or takes_much(node))
    }
    assert found == set(WIDE)


def test_compiled_loops_are_told_in_tuples_what_belongs_together() -> None:
    compiled = PACKAGE / "compiled"
    found = {
        f"{path.relative_to(compiled).as_posix()}: {node.name}"
        for path, node in functions()
        if path.is_relative_to(compiled) and takes_much(node)
    }
    assert found == set(TOLD_ALL)


def test_the_picture_of_the_house_is_that_of_the_tree() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "architecture.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_files_are_limited_in_one_place() -> None:
    """A test with a limit of its own would cut off the .pyc files that Python writes meanwhile."""
    using = [
        path.name for path in (ROOT / "tests").rglob("*.py") if "setrlimit(resource.RLIMIT_FSIZE" in path.read_text()
    ]
    assert sorted(using) == ["full_disk.py", "test_house.py"]
