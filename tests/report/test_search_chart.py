"""`bigsvm plot` of a search: the held-out metric against C."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bigsvm.cli.main import run
from bigsvm.files.sealed_json import write_sealed
from bigsvm.report.candidates import search_chart
from bigsvm.report.draw.chart import braille
from bigsvm.report.draw.plots import picture


def candidate(C: float, mean: float | None, error: float | None, weight: Any = None) -> dict[str, Any]:
    scores = {"accuracy": {"mean": mean, "standard_error": error, "folds": []}}
    return {"C": C, "class_weight": weight, "gamma": None, "scores": scores}


def found(**changed: Any) -> dict[str, Any]:
    """As `TuneResult.document` has it, as far as a chart reads it; C in no order."""
    candidates = [candidate(10.0, 0.8, 0.02), candidate(0.1, 0.7, 0.03), candidate(1.0, 0.79, 0.01)]
    return {"metric": "accuracy", "candidates": candidates, "best": 0, "one_se": 2, **changed}


def test_a_curve_with_bars_and_both_choices() -> None:
    chart = search_chart(["a"], [found()])
    (curve,) = chart.curves
    assert (curve.name, list(curve.x), list(curve.y)) == ("accuracy", [0.1, 1.0, 10.0], [0.7, 0.79, 0.8])
    assert list(curve.errors) == [0.03, 0.01, 0.02]
    assert chart.log_x
    assert chart.marks == [("best mean: C = 10", 10.0, 0.8), ("one standard error: C = 1", 1.0, 0.79)]


def test_a_curve_for_each_class_weight_and_search() -> None:
    weights = [candidate(C, 0.5, None, weight) for C in (1.0, 2.0) for weight in (None, "balanced", {"1": 2.0})]
    beside = [*weights, candidate(4.0, None, None)]  # of folds that cannot give one
    chart = search_chart(["a", "b"], [found(candidates=beside), found()])
    assert [curve.name for curve in chart.curves] == [
        "a, accuracy", "a, weights balanced", "a, weights 1=2", "b, accuracy",
    ]  # fmt: skip
    assert all(list(curve.x) == [1.0, 2.0] and list(curve.errors) == [0.0, 0.0] for curve in chart.curves[:3])
    assert chart.marks[-1][0] == "b, one standard error: C = 1"


def test_in_characters_C_is_even_in_its_logarithm_and_bars_are_seen() -> None:
    flat = [candidate(C, 0.5, 0.1) for C in (0.01, 1.0, 100.0)]
    lines = braille(search_chart(["a"], [found(candidates=flat)]), width=60, height=9).splitlines()
    drawn = [line.partition("┤")[2].ljust(60) for line in lines[1:10]]
    middle = [column for column in range(60) if all(line[column] not in " ⠀" for line in drawn)]
    assert len(middle) == 3  # one at each end, one in the middle: the bars
    assert abs(middle[1] - sum(middle[::2]) / 2) <= 1
    assert "one standard error: C = 100, accuracy 0.5" in lines[-1]
    assert "0.01" in lines[11]


@pytest.mark.parametrize("form", ["svg", "png"])
def test_a_picture_has_powers_of_ten_that_can_be_read(form: str) -> None:
    pytest.importorskip("matplotlib")
    content = picture([search_chart(["a"], [found()])], form)
    assert content == picture([search_chart(["a"], [found()])], form)
    assert b"mathdefault" not in content


def test_in_a_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "search"
    folder.mkdir()
    write_sealed(folder / "search.json", {})
    assert run(["plot", str(folder)]) == 66
    assert "the search is not finished" in capsys.readouterr().err
    write_sealed(folder / "found.json", found())
    assert run(["plot", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["runs"] == [{"run": str(folder), "search": found()}]
    assert run(["plot", str(folder)]) == 0
    assert "Held-out accuracy against C" in capsys.readouterr().out
    (tmp_path / "fit.run").mkdir()
    assert run(["plot", str(folder), str(tmp_path / "fit.run")]) == 2
    assert "searches cannot be compared with fits" in capsys.readouterr().err
    (folder / "found.json").write_text("{}")
    assert run(["plot", str(folder)]) == 65
    assert "is damaged" in capsys.readouterr().err
