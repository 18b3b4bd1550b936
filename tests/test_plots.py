"""Plots of docs are small, and can be drawn again from figures that stand beside them."""

from __future__ import annotations

import importlib
import json
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_MATPLOTLIB_WRITES = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">
 <defs>
  <style type="text/css">*{stroke-linejoin: round}</style>
 </defs>
 <g id="line2d_1">
  <path d="M 1.23456 20
L 3.999999 -0.0001
" style="fill: none"/>
  <g clip-path="url(#p1)">
   <use xlink:href="#m1" x="1.23456" y="20" style="fill: red"/>
   <use xlink:href="#m1" x="2.5" y="21.004" style="fill: red"/>
  </g>
 </g>
 <g id="line2d_2">
  <g>
   <use xlink:href="#m1" x="7" y="8" style="fill: none"/>
  </g>
 </g>
 <g id="text_1">
  <!-- 0.12345 -->
  <text transform="rotate(-0 1.5 2.5)" x="1.5">0.12345</text>
 </g>
</svg>
"""
_LEAN = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">
<defs>
<style type="text/css">*{stroke-linejoin: round}
.s0{fill: none}</style>
</defs>
<path d="M 1.23 20
L 4 0
" class="s0"/>
<g clip-path="url(#p1)" style="fill: red">
<use xlink:href="#m1" x="1.23" y="20"/>
<use xlink:href="#m1" x="2.5" y="21"/>
</g>
<g class="s0">
<use xlink:href="#m1" x="7" y="8"/>
</g>
<text x="1.5">0.12345</text>
</svg>
"""


@pytest.fixture
def small_svg(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "benchmarks"))
    return importlib.import_module("bench.small_svg")


@pytest.fixture
def plot(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "benchmarks"))
    return importlib.import_module("bench.plot")


def test_no_svg_is_large(small_svg: ModuleType) -> None:
    sizes = {str(path.relative_to(DOCS)): path.stat().st_size for path in DOCS.rglob("*.svg")}
    assert len(sizes) >= 6
    assert {name: size for name, size in sizes.items() if size > small_svg.MOST_BYTES} == {}


def test_what_a_plot_is_drawn_of_stands_beside_it() -> None:
    """NAME-more.svg is drawn of what NAME.svg is."""
    for folder, ending in ((DOCS / "plots", ".curves.json"), (DOCS / "reproduction", ".json")):
        plots = list(folder.glob("*.svg"))
        assert plots
        of = {path: {path.stem, path.stem.split("-")[0]} for path in plots}
        assert [p.name for p in plots if not any((folder / f"{name}{ending}").exists() for name in of[p])] == []


def test_the_lean_svg_says_the_same(small_svg: ModuleType) -> None:
    assert small_svg.lean(_MATPLOTLIB_WRITES) == _LEAN
    assert ElementTree.fromstring(_LEAN).tag.endswith("svg")


def test_neighbours_with_the_same_attributes_become_one_group(small_svg: ModuleType) -> None:
    one = '<g style="a">\n<path/>\n</g>\n'
    other = '<g transform="b">\n<g style="a">\n<path/>\n</g>\n</g>\n'
    assert small_svg.lean(one + one + other) == (
        '<g class="s0">\n<path/>\n<path/>\n</g>\n<g transform="b">\n<g class="s0">\n<path/>\n</g>\n</g>\n'
    )


def test_a_thinned_line_passes_no_point_far_off(small_svg: ModuleType) -> None:
    rng = np.random.default_rng(1)
    for step in (0.05, 0.5, 5.0):
        places = np.cumsum(rng.normal(size=(200, 2)) * (step, 1.0), axis=0)
        kept = small_svg.on_the_way(places, 0.7)
        assert kept[0] == 0
        assert kept[-1] == 199
        assert len(kept) < 200
        for begin, end in pairwise(kept):
            way = places[end] - places[begin]
            inside = places[begin : end + 1] - places[begin]
            share = np.clip(inside @ way / (way @ way), 0, 1)
            assert np.linalg.norm(inside - share[:, None] * way, axis=1).max() <= 0.7
    assert small_svg.on_the_way(np.zeros((0, 2)), 0.7) == []
    assert small_svg.on_the_way(np.zeros((5, 2)), 0.7) == [0, 4]


def test_markers_are_told_apart(small_svg: ModuleType) -> None:
    places = np.array([[0, 0], [1, 0], [2.5, 0], [3, 0], [9, 0], [9.5, 0]])
    assert small_svg.told_apart(places, 3.0) == [0, 3, 4, 5]
    assert small_svg.told_apart(places[:1], 3.0) == [0]
    assert small_svg.told_apart(places[:0], 3.0) == []


def test_a_plot_is_drawn_again_to_the_same_bytes(plot: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    many = [(0.01 * k, float(k), 1.0 / k) for k in range(1, 3000)]
    panels = [
        plot.Panel("a, hinge", [plot.Curve("dcd", many[::500], estimates=many), plot.Curve("pcd", [], True, many)]),
        plot.Panel("b, hinge", [plot.Curve("dcd", [(1.0, None, 0.1)], False)], gaps=(1e-6, 2.0)),
        plot.Panel("c, hinge", []),
    ]
    plot.draw_panels(tmp_path / "gaps.svg", panels)
    kept = json.loads((tmp_path / "gaps.curves.json").read_text())
    assert [row["label"] for row in kept["rows"]] == ["dcd", "pcd", "dcd"]
    first = (tmp_path / "gaps.svg").read_bytes()
    assert len(first) < 50_000
    ElementTree.fromstring(first)
    plot.draw_again(tmp_path / "gaps.curves.json", tmp_path / "gaps.svg")
    assert (tmp_path / "gaps.svg").read_bytes() == first
