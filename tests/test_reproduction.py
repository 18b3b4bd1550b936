"""The catalogue of what the papers print: nothing is left out, and what is committed follows from the figures."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
sys.path[:0] = [str(SCRIPTS), str(SCRIPTS / "benchmarks")]

import tuned  # noqa: E402
from reproduction.catalogue import (  # noqa: E402
    ABSENT,
    DIFFERENT,
    IMPOSSIBLE,
    REPRODUCED,
    Claim,
    Item,
    Number,
    half_a_digit,
    printed,
)
from reproduction.journal import costs, journal_of, journals_of, total  # noqa: E402
from reproduction.listing import differences, listing  # noqa: E402
from reproduction.papers import PAPERS  # noqa: E402
from reproduction.report import write_page  # noqa: E402

FIGURES = Path(__file__).parents[1] / "docs" / "reproduction"


def document(paper: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FIGURES / f"{paper}.json").read_text())
    return found


@pytest.mark.parametrize("paper", PAPERS)
def test_every_printed_number_stands_beside_ours(paper: str) -> None:
    kept = document(paper)
    assert kept["printed"] == json.loads(json.dumps(printed(PAPERS[paper], kept["found"])))
    for item in PAPERS[paper].items:
        numbers = kept["printed"][item.name]["numbers"]
        assert len(numbers) == item.prints, item.name
        assert len({number["of"] for number in numbers}) == item.prints, "each says whose it is"


def test_the_page_is_written_from_the_figures(tmp_path: Path) -> None:
    write_page(tmp_path / "page.md", FIGURES, {name: paper.section for name, paper in PAPERS.items()})
    assert (tmp_path / "page.md").read_text() == (FIGURES.parent / "reproduction.md").read_text()


@pytest.mark.parametrize("paper", PAPERS)
def test_nothing_is_absent_and_what_differs_says_why(paper: str) -> None:
    for item in PAPERS[paper].items:
        state, why = item.state(document(paper)["found"])
        assert state != ABSENT, item.name
        assert state == REPRODUCED or why, item.name
    assert listing([PAPERS[paper]], {paper: None})[1] == sum(not item.missing for item in PAPERS[paper].items)


def test_the_state_of_an_item_follows_from_its_figures() -> None:
    def item(ours: float | None, holds: bool | None = None, **given: Any) -> Item:
        claims = [] if holds is None else [Claim("it falls", holds)]
        return Item("T", "t", numbers=lambda _: [Number("a", 2.5, ours, 0.05)], claims=lambda _: claims, **given)

    found = {"any": 1}
    assert item(2.54).state(found)[0] == REPRODUCED
    assert item(2.56, why="it is luck").state(found) == (DIFFERENT, "0 of 1 numbers agree (). It is luck.")
    assert item(2.54, holds=False).state(found)[0] == DIFFERENT
    assert item(None, missing="it is lost").state(found) == (IMPOSSIBLE, "It is lost.")
    assert item(None).state(found)[0] == ABSENT
    assert item(2.54).state(None)[0] == ABSENT
    assert Item("F", "f", numbers=lambda _: [Number("a", 1.0, 2.0, None)]).state(found)[0] == DIFFERENT


def test_half_a_digit_is_of_the_text() -> None:
    assert [half_a_digit(text) for text in ("5.0695504", "96", "0.10")] == [5e-8, 0.5, 0.005]


def test_two_runs_are_compared_without_their_times() -> None:
    kept = {"seconds": 1.0, "a": [1, {"ms": 2, "b": 3}]}
    assert differences(kept, {"seconds": 2.0, "a": [1, {"ms": 5, "b": 3}]}) == []
    assert differences({"P": 2.0}, {"P": 2.0 + 1e-15}) == []
    assert differences({"P": 2.0}, {"P": 2.000001}) == ["P is 2.000001, not 2.0"]
    assert differences(kept, {"seconds": 2.0, "a": [1, {"b": 4}, 7]}) == ["a/1/b is 4, not 3", "a/2 is 7, not None"]


def test_of_wss_its_steps_are_compared_and_no_seconds() -> None:
    small = {"final": {"100 MB": {"wr": [1.0, 292, 584]}}, "ratios": {"final": [0.6, 0.6, 0.5, 0.5, 0.4]}}
    later = {"final": {"100 MB": {"wr": [2.0, 292, 584]}}, "ratios": {"final": [0.7, 0.7, 0.7, 0.7, 0.4]}}
    other = {"final": {"100 MB": {"wr": [1.0, 293, 584]}}, "ratios": {"final": [0.6, 0.6, 0.5, 0.5, 0.3]}}
    clock = PAPERS["wss"].clock
    assert differences({"small": [small]}, {"small": [later]}, clock=clock) == []
    assert len(differences({"small": [small]}, {"small": [later]})) == 5
    assert len(differences({"small": [small]}, {"small": [other]}, clock=clock)) == 2


def test_an_excess_is_compared_as_well_as_the_optimum_is_known() -> None:
    kept, found = ({"curves": {"a": [[1.0, 8.2057e-07]]}, "P": 8.2057e-07}, {"curves": {"a": [[1.0, 8.2050e-07]]}})
    within = PAPERS["hyperpass"].within({"gap": 9.1e-10, "optimum": 0.5446})
    assert within == {"curves": pytest.approx(4.96e-10, rel=1e-2)}
    assert differences(kept, {**found, "P": 8.2057e-07}, within=within) == []
    assert len(differences(kept, {**found, "P": 8.2050e-07}, within=within)) == 1, "of curves alone"
    assert len(differences(kept, {"curves": {"a": [[1.0, 8.3e-07]]}, "P": 8.2057e-07}, within=within)) == 1


def test_a_run_goes_on_where_it_was_stopped_and_says_what_it_took(tmp_path: Path) -> None:
    asked = Namespace(smoke=True, parts=tmp_path)
    done: list[int] = []

    def work(k: int) -> list[float]:
        done.append(k)
        return [k, 0.1]

    for stop in (2, 4):
        journal = journal_of(asked, "rosen", {"seeds": 1})
        assert [journal(f"a/{k}", lambda k=k: work(k)) for k in range(stop)] == [[k, 0.1] for k in range(stop)]
        with (tmp_path / "rosen.jsonl").open("a") as file:
            file.write('["a/9", [9')  # cut off in the middle of a line
    assert done == [0, 1, 2, 3]
    journal_of(asked, "rosenbrock", {})
    journal_of(asked, "rosen-more", {})
    assert [path.stem for path in journals_of("rosen", tmp_path)] == ["rosen-more", "rosen"]
    (tmp_path / "rosen.jsonl").write_text('{}\n["a/0", 1, [2.0, 1.5]]\n["a/1", 1, [1.0, 0.5]]\n["b", 1, [1.0, 1.0]]\n')
    found = costs([tmp_path / "rosen.jsonl"])
    assert found == {
        "rosen": {
            "a": {"parts": 2, "seconds": 3.0, "cpu_seconds": 2.0},
            "b": {"parts": 1, "seconds": 1.0, "cpu_seconds": 1.0},
        }
    }
    assert total(found) == {"parts": 3, "seconds": 4.0, "cpu_seconds": 3.0}
    with pytest.raises(SystemExit, match="65"):
        journal_of(asked, "rosen", {"seeds": 2})


def test_the_table_of_tuned_constants_has_the_values_of_the_code() -> None:
    kept = json.loads((FIGURES.parent / "tuned.json").read_text())
    assert {one["name"]: one["value"] for one in kept} == {one.name: one.value for one in tuned.CONSTANTS}
    assert (FIGURES.parent / "tuned.md").read_text() == tuned.page(kept)
    for one, constant in zip(kept, tuned.CONSTANTS, strict=True):
        assert list(one["tried"]) == list(constant.sets)
        assert not any(name in constant.on for name in constant.sets), "checked on what it was chosen on"


def test_constants_are_counted_at_multiples_of_their_value() -> None:
    (theta,) = (one for one in tuned.CONSTANTS if one.name == "theta")
    rows = tuned.made_up(40, 3, 1)[1:3]
    (found,) = tuned.measure(dict.fromkeys(theta.sets, rows), (theta,))
    assert [value for value, _ in found["tried"]["german"]] == [0.125, 0.25, 0.5, 1.0, 2.0]
    assert all(0 < count < float("inf") for _, count in found["tried"]["german"])
    assert "over the best" in tuned.page([found])
