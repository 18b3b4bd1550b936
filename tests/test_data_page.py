"""The examples of docs/data.md run as they stand, on small files of the names that they use."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.cli.main import run
from tests.store import formats

PAGE = Path(__file__).parents[1] / "docs" / "data.md"
EXAMPLES = dict(re.findall(r"<!-- example: (\w+) -->\n```bash\n(.+?)\n```", PAGE.read_text(), re.DOTALL))


def people(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for name, n in (("people.csv", 200), ("new.csv", 20)):
        age, city = rng.normal(size=n), rng.integers(0, 3, n)
        member = np.where(age + (city == 1) > 0.5, "yes", "no")
        lines = [f"{a},{['Rome', 'Oslo', 'Bonn'][c]},{m}" for a, c, m in zip(age, city, member, strict=True)]
        if name == "new.csv":
            lines = [line.rpartition(",")[0] for line in lines]
        (folder / name).write_text(("age,city,member\n" if n == 200 else "age,city\n") + "\n".join(lines) + "\n")


def atlas(folder: Path) -> None:
    """60 types of cells, some without one."""
    pytest.importorskip("h5py")
    rng = np.random.default_rng(0)
    types = np.arange(600) % 60
    X = sp.random(600, 80, 0.1, random_state=0, format="csr") + sp.csr_matrix(
        (np.ones(600), (range(600), types)), (600, 80)
    )
    holes = np.where(rng.random(600) < 0.1, -1, types).astype(np.int8)
    names = [f"gene{j}" for j in range(80)]
    formats.anndata(
        folder / "atlas.h5ad",
        {
            "X": X,
            "layers/scaled": X / 2,
            "obs/cell_type": (holes, [f"type{k:02d}" for k in range(60)]),
            "var/_index": names,
        },
    )


def vectors(folder: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 6)) * (rng.random((120, 6)) < 0.6)
    (folder / "vectors").mkdir()
    for k in range(2):
        rows = slice(60 * k, 60 * k + 60)
        labels = np.where(X[rows, 0] > 0, 1, 0)
        formats.parquet(folder / "vectors" / f"part-{k}.parquet", X[rows], labels, layout="spark")


@pytest.mark.parametrize(("name", "make"), [("csv", people), ("atlas", atlas), ("spark", vectors)])
def test_an_example_runs_as_it_stands(
    name, make, tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path)
    for line in EXAMPLES[name].splitlines():
        program, *arguments = shlex.split(line)
        assert program == "bigsvm"
        assert run(arguments) == 0, (line, capsys.readouterr().err)
    out = capsys.readouterr().out
    if name == "csv":
        assert "city=Oslo" in out
        assert len((tmp_path / "labels.csv").read_text().splitlines()) == 20
    if name == "atlas":
        assert "for type59" in out
        assert "gene59" in out


def test_every_example_is_run() -> None:
    assert set(EXAMPLES) == {"csv", "atlas", "spark"}
    assert PAGE.read_text().count("```bash") == len(EXAMPLES)
