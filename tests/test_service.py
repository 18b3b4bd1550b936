"""The service of the page of nights, which follows `current` without a restart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.model import versions as registry
from bigsvm.model.linear_model import LinearModel

pytest.importorskip("httpx")
fastapi = pytest.importorskip("fastapi")

PAGE = Path(__file__).parents[1] / "docs" / "nights.md"


def test_the_service_of_the_page_follows_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastapi.testclient import TestClient

    found = re.search(r"<!-- service -->\n```python\n(.+?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "service"}
    exec(compile(found[1], "service", "exec"), names)
    client = TestClient(names["app"])
    assert client.post("/predict", json=[[1.0, 2.0]]).status_code == 503
    for number, sign in enumerate((1.0, -1.0)):
        LinearModel(np.array([[sign, 0.0]]), np.zeros(1), np.array([-1, 1])).save(tmp_path / f"{number}.model")
    rows = [[1.0, 0.0], [-1.0, 0.0]]
    registry.promote("models", "0.model")
    assert client.post("/predict", json=rows).json() == {"version": "000001", "labels": [1, -1]}
    registry.promote("models", "1.model")
    assert client.post("/predict", json=rows).json() == {"version": "000002", "labels": [-1, 1]}
    registry.rollback("models")
    assert client.post("/predict", json=rows).json() == {"version": "000001", "labels": [1, -1]}
    refused = client.post("/predict", json=[[1.0, 2.0, 3.0]])
    assert (refused.status_code, "3 features" in refused.json()["detail"]) == (422, True)
    assert client.post("/predict", json=[[1.0], [1.0, 2.0]]).status_code == 422
