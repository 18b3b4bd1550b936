"""docs/output.md: the members of the JSON results that the page lists are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Bigsvm

PAGE = Path(__file__).parents[2] / "docs" / "output.md"
_LINE = re.compile(r"^\| `(\w+)` \| (.+) \|$", re.MULTILINE)
LISTED = {
    command: re.findall(r"`(\w+)`", re.sub(r"\([^()]*\)|: `store`, `model` or `run`", "", members))
    for command, members in _LINE.findall(PAGE.read_text())
}


@pytest.fixture
def typed(bigsvm: Bigsvm, store: Path, model: Path) -> dict[str, list[Any]]:
    """Command -> a call of it that succeeds."""
    assert bigsvm("dump", store, "rows.svm").code == 0
    assert bigsvm("promote", "registry", model).code == 0
    return {
        "ingest": ["rows.svm", "again.zarr"],
        "plan": [store],
        "predict": [model, store, "-o", "labels.csv"],
        "evaluate": [model, store],
        "certify": [model, store],
        "tune": [store, "--Cs", "0.1,1", "--folds", "2"],
        "inspect": [store],
        "verify": [store],
        "history": ["registry"],
        "export": [model, "m.npz"],
        "dump": [store, "again.svm"],
    }


def test_the_page_lists_commands() -> None:
    assert len(LISTED) == 11
    assert min(map(len, LISTED.values())) >= 3


@pytest.mark.parametrize("command", LISTED)
def test_the_members_that_the_page_lists_are_in_the_result(
    bigsvm: Bigsvm, typed: dict[str, list[Any]], command: str
) -> None:
    said = bigsvm(command, *typed[command], "--json")
    assert said.code == 0, said.err
    assert [name for name in LISTED[command] if name not in said.document["result"]] == []


@pytest.mark.parametrize("form", ["svm", "jsonl", "parquet", "zarr"])
def test_both_names_of_the_output_of_a_dump_stay(bigsvm: Bigsvm, store: Path, form: str) -> None:
    """`out` came first, and is not documented; scripts may read it."""
    result = bigsvm("dump", store, f"rows.{form}", "--json").document["result"]
    assert result["output"] == result["out"] == f"rows.{form}"
