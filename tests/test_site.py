"""The site: what its pages say is what the program has, and what they show can be typed."""

from __future__ import annotations

import ast
import glob
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bigsvm
from bigsvm.cli.main import COMMANDS, group, run
from tests.test_data_page import people

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])--[A-Za-z][a-z0-9-]+|(?<![\w-])-[a-zA-Z]\b")
_ELSEWHERE = {"--scheduler", "--scheduler-file", "--kernel", "--task", "--epsilon", "GridSearchCV", "report"}
"""Recipes that start processes or compile much, and that other tests go through: here they are read and not run."""
_ASKS_FOR_NOTHING = {
    "--config", "--dir", "--labels", "--normalize", "--positive", "--label-map", "--set", "--warm-start", "--calibrate",
    "--report", "--mlflow", "--group", "--sizes", "--csv", "--memory-per-worker", "--openmetrics", "--top", "--data",
    "--note",
}  # fmt: skip
"""Options with a value that add something: without them nothing is added."""
_DEFAULT_OF_OTHERS = {
    "--lambda", "--scheduler-file", "--fold", "--store", "--to", "--output", "--out", "--split", "--c", "--epsilon"
}  # fmt: skip
"""Options whose help, or that of the command, says what happens without them."""


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of `scripts`."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module


def blocks(page: Path, language: str) -> list[str]:
    return [code for name, code in _BLOCK.findall(page.read_text(encoding="utf-8")) if name == language]


def typed(code: str) -> Iterator[list[str]]:
    """The calls of bigsvm in a block of shell: their words."""
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] == "bigsvm":
            yield words[1 : words.index(">") if ">" in words else None]


# -- the reference


def test_the_reference_is_what_the_script_writes(scripts: Any) -> None:
    assert scripts("reference").check() == []


def test_a_page_that_was_edited_is_noticed(scripts: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reference: ModuleType = scripts("reference")
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    monkeypatch.setattr(reference, "PAGES", {tmp_path / "a.md": lambda: "as made\n"})
    assert reference.check() == ["a.md is not what scripts/reference.py writes"]
    assert reference.main([]) == 0
    assert reference.check() == []
    (tmp_path / "a.md").write_text("by hand\n")
    assert reference.main(["--check"]) == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_what_help_lists_is_in_the_reference_and_in_the_manual(name: str, scripts: Any) -> None:
    page = (DOCS / "reference" / "commands.md").read_text()
    common, _, rest = page.partition("\n## Options of every command\n")[2].partition("\n## ")
    section = f"\n## {rest}".partition(f"\n## bigsvm {name}\n")[2].partition("\n## ")[0]
    command = group.get_command(click.Context(group), name)
    assert command is not None
    shown = command.get_help(click.Context(command, info_name=name)).partition("Options:")[2]
    listed = {_OPTION.findall(line)[0] for line in shown.splitlines() if re.match(r"  -", line)}
    assert listed
    manual = scripts("site_pages.manual").pages()[f"bigsvm-{name}.1"].replace("\\-", "-")
    for option in listed - {"-h", "--help"}:
        assert re.search(rf"^\| `{option}[ ,`]", section + common, re.MULTILINE), option
        assert re.search(rf"^\.B {option}\b", manual, re.MULTILINE), option


def test_every_public_name_is_in_the_reference() -> None:
    page = (DOCS / "reference" / "python.md").read_text()
    for name in set(bigsvm.__all__) - {"__version__", "predictor", "BigSVMError"}:
        assert f"\n### {name}\n" in page
    assert "\n## bigsvm.predictor\n" in page
    assert "`BigSVMError`" in page


def test_every_estimator_is_in_the_reference() -> None:
    pytest.importorskip("sklearn")
    import bigsvm.sklearn

    page = (DOCS / "reference" / "python.md").read_text()
    assert [name for name in bigsvm.sklearn.__all__ if f"\n### {name}\n" not in page] == []


@pytest.mark.parametrize("kind", ["LinearModel", "KernelModel"])
def test_the_reference_says_how_a_model_predicts(kind: str) -> None:
    """These methods are inherited, and are what most readers look for."""
    page = (DOCS / "reference" / "python.md").read_text()
    section = page.partition(f"\n### {kind}\n")[2].partition("\n### ")[0]
    for name in ("predict", "decision_function", "predict_proba"):
        assert f"**`.{name}(X)`**" in section


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_man_pages_are_sound(scripts: Any, tmp_path: Path) -> None:
    scripts("reference").main(["--man", str(tmp_path)])
    pages = sorted(tmp_path.iterdir())
    assert len(pages) == len(COMMANDS) + 1
    done = subprocess.run(
        ["groff", "-man", "-Tascii", "-ww", *map(str, pages)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is_and_what_its_default_is(name: str, scripts: Any) -> None:
    """A default may be left out only where an option that is not given asks for nothing."""
    found = list(scripts("site_pages.commandline").options_of(name))
    assert [one.spelled for one in found if not one.said] == []
    without = {one.spelled.split()[-2] for one in found if one.spelled.split()[-1][0] != "-" and not one.default}
    assert without <= _ASKS_FOR_NOTHING | _DEFAULT_OF_OTHERS, name


# -- what pages show


def test_messages_of_the_page_of_errors_are_messages() -> None:
    """A heading is a part of what the program says; the dots stand for a value."""
    source = "\n".join(path.read_text() for path in sorted((ROOT / "bigsvm").rglob("*.py")))
    source = re.sub(r"\{counted\(([^{}]*?), '(\w+)'(?:, commas=True)?\)\}", r"{\1} \2s", source)
    headings = re.findall(r"^### (.+)$", (DOCS / "errors.md").read_text(), re.MULTILINE)
    assert len(headings) > 30
    for heading in headings:
        parts = map(re.escape, heading.split(" … "))
        assert re.search(r" \{[^}\n]*\} ".join(parts), source), heading


def test_every_kind_of_error_has_an_anchor_of_its_own() -> None:
    anchors = re.findall(r'^<a id="([\w-]+)"></a>$', (DOCS / "errors.md").read_text(), re.MULTILINE)
    kinds = [kind for kind in vars(bigsvm.errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    own = [kind for kind in kinds if "anchor" in vars(kind)]  # the others are told where their base is
    assert sorted(anchors) == sorted(kind.anchor for kind in own)  # type: ignore[attr-defined]
    for kind in kinds:
        assert kind.anchor in anchors  # type: ignore[attr-defined]
        assert bigsvm.errors.anchor_of(kind.code) in anchors  # type: ignore[attr-defined]
    assert bigsvm.errors.anchor_of(65) == "bad-data"


def test_the_page_of_errors_has_every_exit_code() -> None:
    codes = re.findall(r"^## Exit (\d+)", (DOCS / "errors.md").read_text(), re.MULTILINE)
    table = re.findall(r"^\| (\d+) \|", (DOCS / "output.md").read_text(), re.MULTILINE)
    assert codes == [code for code in table if code != "0"]
    kinds = [kind for kind in vars(bigsvm.errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    known = {kind.code for kind in kinds}  # type: ignore[attr-defined]
    assert {str(code) for code in known} <= set(codes)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_on_pages_can_be_typed(page: Path) -> None:
    """Python is Python, and every command has the options that it is shown with."""
    for code in blocks(page, "python"):
        ast.parse(code)
    for code in blocks(page, "bash"):
        for name, *arguments in typed(code):
            command = group.get_command(click.Context(group), name)
            assert command is not None, name
            known = {option for one in command.params for option in one.opts} | {"--help", "-h"}
            wrong = [word for word in arguments if re.match(r"--?[a-zA-Z]", word) and word not in known]
            assert wrong == [], f"bigsvm {name}"


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_five_lines_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    bigsvm.ingest(rows(200), "rows.zarr")
    (code,) = blocks(ROOT / page, "python")
    exec(compile(code, page, "exec"), {})
    assert capsys.readouterr().out.startswith("converged 0.000")
    assert (tmp_path / "spam.model" / "model.json").is_file()


def rows(n: int) -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(0)
    X = sp.random(n, 8, 0.6, format="csr", random_state=0, dtype=np.float32)
    return X, np.where(X @ rng.standard_normal(8) > 0, 1, -1)


def prepared(folder: Path) -> None:
    """The files that recipes name."""
    import zstandard

    X, y = rows(120)
    lines = [
        f"{label} " + " ".join(f"{j + 1}:{v}" for j, v in zip(row.indices, row.data, strict=True))
        for label, row in zip(y, X, strict=True)
    ]
    text = "\n".join(lines) + "\n"
    (folder / "part-1.svm.zst").write_bytes(zstandard.compress(text.encode()))
    (folder / "more.svm").write_text("\n".join(lines[:20]) + "\n")
    (folder / "targets.svm").write_text(text.replace("-1 ", "-0.5 "))
    bigsvm.ingest((X, y), folder / "new.zarr")
    (folder / "table").mkdir()
    frame = pd.DataFrame(X.toarray(), columns=[f"x{j}" for j in range(X.shape[1])])
    frame.assign(clicked=y, city="Oslo").to_parquet(folder / "table" / "1.parquet")
    people(folder)


def test_recipes_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """Every call of a shell and every block of Python, in the order of the page, on small files of these names."""
    prepared(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    X, y = rows(120)
    known: dict[str, Any] = {"X": X, "y": y, "X_new": X, "holdout_error": lambda model: 0.0}
    ran = 0
    for language, code in _BLOCK.findall((DOCS / "recipes.md").read_text()):
        if language == "python":
            if any(one in code for one in _ELSEWHERE):
                continue
            if "bigsvm.ingest(" in code:
                shutil.rmtree("rows.zarr")
                shutil.rmtree("spam.model")
            exec(compile(code, "recipes.md", "exec"), known)
        for words in typed(code) if language == "bash" else ():
            if set(words) & _ELSEWHERE:
                continue
            words = [os.path.expandvars(word) for word in words]
            words = [found for word in words for found in (sorted(glob.glob(word)) or [word])]
            made = words[words.index("-o") + 1] if "-o" in words and "--resume" not in words else ""
            for former in (made, f"{made}.run") if made else ():
                shutil.rmtree(former, ignore_errors=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of rows this small
                code_of = run([*words, "--quiet"])
            assert code_of == 0, f"bigsvm {shlex.join(words)}: {capfd.readouterr().err}"
            ran += 1
    assert ran > 15
    assert known["result"].status == "converged"
    assert set(known["labels"]) <= {-1, 1}


# -- the site


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    named = re.findall(r"^ +- [^\n:]+: ([\w/-]+\.md)$", text, re.MULTILINE)
    assert sorted(named) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


@pytest.mark.slow
def test_the_site_is_built_strictly(tmp_path: Path) -> None:
    for library in ("mkdocs", "material", "latex2mathml"):
        pytest.importorskip(library)
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    built = "\n".join(path.read_text() for path in (tmp_path / "site").rglob("*.html"))
    assert built.count("<math") > 500
    assert "arithmatex" not in built
    assert not re.search(r"""<(?:script|link|img)[^>]+(?:src|href)=["']https?://""", built), "it asks another host"


def test_the_root_of_the_container_is_read_only(scripts: Any, tmp_path: Path) -> None:
    """As the Dockerfile says: not root, and nothing but its two folders can be written."""
    container = scripts("container")
    user, variables = container.said_in_dockerfile()
    assert user > 0
    assert set(variables) >= {"PATH", "HOME", "TMPDIR", "BIGSVM_SCRATCH", "BIGSVM_CACHE"}
    if not container.can_unshare():
        pytest.skip("no rights to mount")
    tmp_path.chmod(0o755)
    found = container.smoke(tmp_path)
    assert container.missed(found) == []
    assert found["probe"]["uid"] == user
    assert found["version"] == f"bigsvm {bigsvm.__version__}"
