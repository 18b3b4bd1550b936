"""Every page that shows commands, Python or a job file is run by a test; here those that have no test of their own."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest

import bigsvm
from bigsvm.cli.main import run
from bigsvm.errors import UsageError
from pipelines.config import read_job
from tests.test_site import DOCS, blocks, rows, typed

RUN_ELSEWHERE = {
    "append": "tests/run/test_warm_start.py", "cluster": "tests/shards/test_recipes.py",
    "data": "tests/test_data_page.py", "events": "tests/observe/test_schema.py", "index": "tests/test_site.py",
    "recipes": "tests/test_site.py", "scikit-learn": "tests/sklearn/test_page.py",
    "transforms": "tests/test_transforms_page.py", "tuning": "tests/run/test_tune.py",
    "tutorial": "tests/sklearn/test_tutorial.py",
}  # fmt: skip
INSTALLS = {"install"}
"""Their commands install, build or start containers: scripts/container.py and scripts/benchmarks/cold_start.py do."""
HERE = {"export", "kernels", "nights", "report"}
NEEDS = {
    "spam.onnx": "onnx",
    "--mlflow": "mlflow",
    "--report": "matplotlib",
    ".html": "matplotlib",
    ".svg": "matplotlib",
}
"""A word of a command -> the library without which it is only read."""


def test_every_page_with_code_is_run_somewhere() -> None:
    shown = {page.stem for page in DOCS.glob("*.md") if re.search(r"^```(bash|python|toml)$", page.read_text(), re.M)}
    assert shown == set(RUN_ELSEWHERE) | INSTALLS | HERE
    for page, test in RUN_ELSEWHERE.items():
        assert f"{page}.md" in (DOCS.parent / test).read_text() or page == "index", page


def commands(page: str) -> list[list[str]]:
    """The calls of bigsvm on a page that what is installed here allows."""
    found = [words for code in blocks(DOCS / f"{page}.md", "bash") for words in typed(code)]
    lacks = {part for part, library in NEEDS.items() if importlib.util.find_spec(library) is None}
    return [words for words in found if not any(part in word for word in words for part in lacks)]


@pytest.mark.parametrize(("page", "least"), [("export", 4), ("report", 7), ("kernels", 1)])
@pytest.mark.filterwarnings("ignore")
def test_the_commands_of_a_page_run(
    page: str, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("rows", "held-out"):
        bigsvm.ingest(rows(120), f"{name}.zarr")
    if page != "kernels":
        for name in ("spam", "a"):
            assert run(["fit", "rows.zarr", "-o", f"{name}.model", "--quiet"]) == 0
        assert run(["export", "spam.model", "-o", "foreign.txt", "--format", "liblinear", "--quiet"]) == 0
        assert run(["promote", "registry", "spam.model", "--quiet"]) == 0
        shutil.copytree("a.model.run", "b.model.run")
        if page == "export":
            shutil.rmtree("a.model")
            shutil.copyfile("foreign.txt", "a9a.model")
        else:
            for made in ("spam.model", "spam.model.run"):
                shutil.rmtree(made)
    done = 0
    for words in commands(page):
        if "/var/lib/node_exporter/textfile/spam.prom" in words:
            continue  # tests/report/test_watch.py has it at another place
        assert run(words) == 0, (shlex.join(words), capfd.readouterr().err)
        done += 1
    assert done >= least


def test_the_job_files_of_the_page_of_nights_are_jobs(tmp_path: Path) -> None:
    """Each alone, beside what every job has; a key that is not known is refused."""
    tables = [tomllib.loads(code) for code in blocks(DOCS / "nights.md", "toml")]
    assert {"arrivals", "drift", "notify", "mlflow"} <= {name for table in tables for name in table}
    base = 'store = "train.zarr"\nholdout = "holdout.zarr"\nregistry = "registry"\n'
    for code in blocks(DOCS / "nights.md", "toml"):
        (tmp_path / "job.toml").write_text(base + code)
        assert read_job(tmp_path / "job.toml").store.endswith("train.zarr")
    (tmp_path / "job.toml").write_text(f"{base}{code}\nexperimnt = 1\n")
    with pytest.raises(UsageError, match="experimnt"):
        read_job(tmp_path / "job.toml")


def test_the_gates_of_the_page_of_nights_are_gates(tmp_path: Path) -> None:
    page = (DOCS / "nights.md").read_text()
    keys = re.findall(r"^\| `(\w+ = [^`]+)` \|", page, re.MULTILINE)
    assert len(keys) > 5
    base = 'store = "t.zarr"\nholdout = "h.zarr"\nregistry = "r"\n[fit]\ncalibrate = "sigmoid"\n[gates]\n'
    for key in keys:
        (tmp_path / "job.toml").write_text(f"{base}{key}\n")
        assert read_job(tmp_path / "job.toml").gates.model_fields_set == {key.partition(" ")[0]}
