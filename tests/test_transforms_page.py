"""The examples of docs/transforms.md run as they stand, on a small store of counts."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.cli.main import run
from bigsvm.model.linear_model import load_model
from tests.store import formats

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "transforms.md").read_text()
EXAMPLES = dict(re.findall(r"<!-- example: (\w+) -->\n```bash\n(.+?)\n```", PAGE, re.DOTALL))


@pytest.mark.parametrize("name", ["standard", "counts", "split", "files"])
def test_an_example_runs_as_it_stands(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(EXAMPLES) == 4
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    counts = (rng.poisson(1.0, (150, 12)) * (rng.random((150, 12)) < 0.5)).astype(np.float32)
    types = (counts[:, 0] > counts[:, 1]).astype(np.int8)
    cells = {"X": sp.csr_matrix(counts), "obs/cell_type": (types, ["B cell", "T cell"])}
    formats.anndata(tmp_path / "cells.zarr", cells)
    assert run(["seal", "cells.zarr", "--empty-chunks", "zeros"]) == 0, capsys.readouterr().err
    for line in EXAMPLES[name].splitlines():
        program, *arguments = shlex.split(line)
        assert program == "bigsvm"
        assert run(arguments) == 0, (line, capsys.readouterr().err)
    said = capsys.readouterr().out
    if name == "standard":
        assert not load_model("standard.model").about["rows"]["scale"]["centred"]
    if name == "counts":
        assert load_model("cells.model").about["rows"]["normalize"] == "total=10000.0,log1p"
        assert (tmp_path / "labels.parquet").exists()
    if name == "split":
        assert "other rows" in said
        assert json.loads((tmp_path / "split.model.run" / "run.json").read_bytes())["result"]["held_out"]["n_rows"] < 60
    if name == "files":
        assert load_model("again.model").classes.tolist() == ["B cell", "T cell"]


def test_the_benchmark_of_the_page_runs(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "benchmarks" / "bench_standard.py"
    command = [sys.executable, str(script), "--smoke", "--work", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert [line.split(" | ")[0] for line in done.stdout.splitlines()[3:]] == ["| none", "| maxabs", "| standard"]
    assert list(tmp_path.iterdir()) == []
