"""The service of the page of nights, which follows `current` without a restart."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.model import versions as registry
from bigsvm.model.linear_model import LinearModel

httpx = pytest.importorskip("httpx")
pytest.importorskip("fastapi")

PAGE = Path(__file__).parents[1] / "docs" / "nights.md"


def test_the_service_of_the_page_follows_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.search(r"<!-- service -->\n```python\n(.+?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "service"}
    exec(compile(found[1], "service", "exec"), names)

    def ask(rows: list[list[float]]) -> Any:
        async def post() -> Any:
            transport = httpx.ASGITransport(app=names["app"])
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                return await client.post("/predict", json=rows)

        return asyncio.run(post())

    assert ask([[1.0, 2.0]]).status_code == 503
    for number, sign in enumerate((1.0, -1.0)):
        LinearModel(np.array([[sign, 0.0]]), np.zeros(1), np.array([-1, 1])).save(tmp_path / f"{number}.model")
    rows = [[1.0, 0.0], [-1.0, 0.0]]
    registry.promote("models", "0.model")
    assert ask(rows).json() == {"version": "000001", "labels": [1, -1]}
    registry.promote("models", "1.model")
    assert ask(rows).json() == {"version": "000002", "labels": [-1, 1]}
    registry.rollback("models")
    assert ask(rows).json() == {"version": "000001", "labels": [1, -1]}
    refused = ask([[1.0, 2.0, 3.0]])
    assert (refused.status_code, "3 features" in refused.json()["detail"]) == (422, True)
    assert ask([[1.0], [1.0, 2.0]]).status_code == 422
