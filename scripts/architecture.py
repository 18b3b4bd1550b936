#!/usr/bin/env python
"""The picture of the house: floors as the import contracts have them, rooms as the folders are.

scripts/architecture.py            draws docs/architecture.svg anew
scripts/architecture.py --check    exit 1 where it is not what would be drawn
"""

from __future__ import annotations

import argparse
import ast
import html
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "architecture.svg"
WIDTH, LEFT, GAP, ROW, LETTER = 960, 12, 6, 22, 6.9
INK, PAPER, FLOOR, ROOM = "#1f2933", "#ffffff", "#eef2f6", "#d5e0ec"


def floors() -> list[list[str]]:
    """Packages and modules of each floor, the highest first, as pyproject.toml holds them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(c["layers"] for c in contracts if c["type"] == "layers" and c["containers"] == ["bigsvm"])
    return [[name.strip() for name in layer.split("|")] for layer in layers]


def about(place: Path) -> str:
    """The first sentence of a module or folder."""
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    said = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].replace("\n", " ")
    return said.split(". ")[0].split("; ")[0].rstrip(".")


def rooms(place: Path) -> list[str]:
    """Names of the folders below, a folder's own in brackets."""
    found = []
    for folder in sorted(path for path in place.iterdir() if (path / "__init__.py").exists()) if place.is_dir() else []:
        inner = rooms(folder)
        found.append(f"{folder.name} ({', '.join(inner)})" if inner else folder.name)
    return found


def drawn() -> str:
    """The picture as SVG."""
    shapes, y = [], 10
    for names in floors():
        top, lines = y, []
        for name in names:
            place = ROOT / "bigsvm" / name
            lines.append((name, about(place), rooms(place)))
        y += 8
        for name, said, chips in lines:
            label = name + ("/" if (ROOT / "bigsvm" / name).is_dir() else ".py")
            shapes.append(text(LEFT + 8, y + 15, label, bold=True))
            shapes.append(text(LEFT + 100, y + 15, said))
            y += ROW
            x = LEFT + 100.0
            for chip in chips:
                width = len(chip) * LETTER + 12
                if x + width > WIDTH - LEFT:
                    x, y = LEFT + 100.0, y + ROW
                shapes.append(box(x, y, width, ROW - 4, ROOM))
                shapes.append(text(x + 6, y + 13, chip))
                x += width + GAP
            y += ROW + 4 if chips else 0
        shapes.insert(0, box(LEFT, top, WIDTH - 2 * LEFT, y - top, FLOOR))
        y += GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 4}" width="{WIDTH}" height="{y + 4}"'
    style = f'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="11.5" fill="{INK}">'
    return "\n".join([f"{head} {style}", box(0, 0, WIDTH, y + 4, PAPER), *shapes, "</svg>", ""])


def box(x: float, y: float, width: float, height: float, fill: str) -> str:
    return f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="3" fill="{fill}"/>'


def text(x: float, y: float, said: str, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{weight}>{html.escape(said)}</text>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="draw nothing; exit 1 where the picture is old")
    if parser.parse_args().check:
        if not PICTURE.exists() or PICTURE.read_text() != drawn():
            raise SystemExit("docs/architecture.svg is old: scripts/architecture.py draws it")
        return
    PICTURE.write_text(drawn())


if __name__ == "__main__":
    main()
