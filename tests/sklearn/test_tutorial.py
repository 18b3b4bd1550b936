"""The tutorial does what it says: ten lines changed, and a store of ten times the memory."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sklearn")

from bigsvm.units import MIB

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


def test_the_tutorial_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    rows, before, after = blocks
    changed = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if re.match(r"\+ .*\S", line)]
    assert 1 < len(changed) <= 10
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in (rows, before):
        exec(compile(block, str(PAGE), "exec"), names)
    few = names["model"].score(names["X_new"], names["y_new"])
    exec(compile(after, str(PAGE), "exec"), names)
    model, X = names["model"], names["X"]
    assert X.n_samples * 128 * 8 > 10 * 12 * MIB  # a value and a column of each entry, 4 bytes each
    assert '"12MiB"' in after
    assert model.relative_gap_ < 1e-6
    assert model.passes_ > 1.0  # it streamed
    assert model.score(names["X_new"], names["y_new"]) > few
