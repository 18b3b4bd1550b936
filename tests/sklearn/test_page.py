"""The page of the estimators does what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("sklearn")

import bigsvm.sklearn

PAGE = Path(__file__).parents[2] / "docs" / "scikit-learn.md"


def test_the_page_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert {path.name for path in tmp_path.iterdir() if path.name != "scratch"} == {"rows.zarr", "radius.zarr"}


def test_the_page_names_every_parameter_of_ours() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in bigsvm.sklearn.__all__:
        assert f"`{name}`" in text
    for attribute in ("certificate_", "relative_gap_", "passes_", "memory", "threads", "solver"):
        assert f"`{attribute}" in text
