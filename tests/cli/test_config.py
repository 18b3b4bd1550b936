"""Where values come from: flag > BIGSVM_* > --config > default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Bigsvm


def plan(bigsvm: Bigsvm, store: Path, *args: object) -> dict[str, Any]:
    said = bigsvm("plan", store, "--json", *args)
    assert said.code == 0, said.err
    return said.document["result"]


def test_precedence(bigsvm: Bigsvm, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("c.toml").write_text('memory = "64MiB"\n')
    assert plan(bigsvm, store, "--config", "c.toml")["budget_bytes"] == 64 << 20
    monkeypatch.setenv("BIGSVM_MEMORY", "48MiB")
    assert plan(bigsvm, store, "--config", "c.toml")["budget_bytes"] == 48 << 20
    assert plan(bigsvm, store, "--config", "c.toml", "--memory", "32MiB")["budget_bytes"] == 32 << 20
    monkeypatch.setenv("BIGSVM_CONFIG", "c.toml")
    monkeypatch.delenv("BIGSVM_MEMORY")
    assert plan(bigsvm, store)["budget_bytes"] == 64 << 20


def test_all_kinds_of_values(bigsvm: Bigsvm, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def look(data: Any, config: Any) -> Any:
        seen.append(config)
        raise ZeroDivisionError

    monkeypatch.setattr("bigsvm.run.fit.plan.make_plan", look)
    Path("c.toml").write_text(
        'c = 2\nbias-scale = 3.5\nmax_passes = 7\nmax-time = "2m"\nno-dual = true\nmemory = 100000000\n'
        'set = {eps1 = 0.5, safe = true}\nclass-weight = {"1" = 10, "-1" = 0.5}\nstage = "none"\n'
    )
    bigsvm("plan", store, "--config", "c.toml")
    config = seen[0]
    assert (config.C, config.bias_scale, config.max_passes, config.max_time) == (2.0, 3.5, 7.0, 120.0)
    assert (config.no_dual, config.stage, config.memory_bytes(1 << 40)) == (True, "none", 100_000_000)
    assert config.solver_options == {"eps1": 0.5, "safe": True}
    assert config.class_weight == {"1": 10.0, "-1": 0.5}
    bigsvm("plan", store, "--set", "eps1=1e-3", "--set", "order=random", "--class-weight", "a=b=2,c=1")
    assert seen[1].solver_options == {"eps1": 1e-3, "order": "random"}
    assert seen[1].class_weight == {"a=b": 2.0, "c": 1.0}


def test_a_flag_beats_its_opposite_in_the_file(bigsvm: Bigsvm, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def look(data: Any, config: Any) -> Any:
        seen.append(config)
        raise ZeroDivisionError

    monkeypatch.setattr("bigsvm.run.fit.plan.make_plan", look)
    Path("c.toml").write_text("lambda = 1e-3\n")
    bigsvm("plan", store, "--config", "c.toml", "-c", "2")
    bigsvm("plan", store, "--config", "c.toml")
    assert [(config.C, config.lam) for config in seen] == [(2.0, None), (1.0, 1e-3)]


@pytest.mark.parametrize(
    ("content", "code", "names"),
    [
        ("bogus = 1", 2, "bogus"),
        ("config = 'x'", 2, "config"),
        ("c = ", 2, "TOML"),
        ("c = 'x'", 2, "'x'"),
        ("memory = ['1GB']", 2, "memory"),
    ],
)
def test_bad_files(bigsvm: Bigsvm, store: Path, content: str, code: int, names: str) -> None:
    Path("c.toml").write_text(content)
    said = bigsvm("plan", store, "--config", "c.toml", "--json")
    assert said.code == code
    assert names in said.document["error"]["message"]


def test_a_missing_file(bigsvm: Bigsvm, store: Path) -> None:
    assert bigsvm("plan", store, "--config", "none.toml").code == 66
