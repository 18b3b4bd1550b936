"""A small store, a model of it, and a way to call the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bigsvm.cli.main import run
from bigsvm.store.ingest.demo_rows import write_problem


class Said(NamedTuple):
    """What a call of the command line left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on standard output."""
        assert self.out.endswith("\n")
        return json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


Bigsvm = Callable[..., Said]


@pytest.fixture
def bigsvm(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bigsvm:
    """Call the command line in an empty folder; no option comes from the environment."""
    monkeypatch.chdir(tmp_path)

    def call(*args: object) -> Said:
        capsys.readouterr()
        code = run([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return call


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1500 sparse rows of two classes; read-only by agreement."""
    path = tmp_path_factory.mktemp("cli") / "small.zarr"
    write_problem(path, 1500)
    return path


@pytest.fixture(scope="session")
def model(store: Path) -> Path:
    """A model of `store`, to a gap of 1e-3."""
    path = store.with_name("small.model")
    assert run(["fit", str(store), "-o", str(path), "--quiet", "--json"]) == 0
    return path
