"""Records of real fits, each made once, and what a page says, taken apart."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.cli.main import run
from bigsvm.store.ingest.ingest import ingest


class Page(HTMLParser):
    """Texts of a page by element, its numbers with their sources, and what it would ask others for."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.numbers: list[tuple[str, float, str]] = []
        self.asked: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.said: list[str] = []
        self._number: tuple[str, float] | None = None
        self._inside: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.tags.append(tag)
        self._inside.append(tag)
        self.ids += [str(named["id"])] if "id" in named else []
        self.asked += [str(v) for n, v in attrs if n in ("src", "href", "srcset", "data") or n.endswith(":href")]
        if "data-source" in named:
            self._number = (str(named["data-source"]), json.loads(str(named["data-value"])))

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "style" not in self._inside:
            self.said.append(data)
        if self._number is not None:
            self.numbers.append((*self._number, data))
            self._number = None

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.said).split())


def at(document: Any, path: str) -> Any:
    """The value at `a.0.b`; KeyError, IndexError where there is none."""
    for part in path.split("."):
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def rows_of_values(path: Path, kind: str, n: int, seed: int) -> Path:
    """A store of 12 dense columns; two classes, three classes or values."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 12)).astype(np.float32)
    noisy = X[:, 0] + 0.5 * X[:, 1] + rng.normal(size=n)
    y = {"two": np.where(noisy > 0, 1, -1), "three": np.digitize(noisy, [-0.7, 0.7]), "values": noisy}[kind]
    ingest((X, y), path, task="regression" if kind == "values" else "classification")
    return path


@pytest.fixture(scope="session")
def fits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of stores NAME.zarr and NAME-other.zarr with models NAME and runs NAME.run, of several kinds of fits."""
    root = tmp_path_factory.mktemp("fits")
    options = {
        "two": ["--loss", "hinge", "--solver", "dcd", "--tol", "1e-4"],
        "three": ["--tol", "1e-3", "--solver", "newton"],
        "rbf": ["--kernel", "rbf"],
        "values": ["--loss", "squared_epsilon_insensitive", "--solver", "newton"],
    }
    for k, (name, chosen) in enumerate(options.items()):
        kind = "two" if name == "rbf" else name
        rows_of_values(root / f"{name}.zarr", kind, 600, k)
        rows_of_values(root / f"{name}-other.zarr", kind, 300, 10 + k)
        assert run(["fit", str(root / f"{name}.zarr"), "-o", str(root / name), "--quiet", *chosen]) == 0
    return root
