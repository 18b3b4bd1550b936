"""A small table of people: as delimited text, and the rows that a store of it has."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

CITIES = ["Rome", "New York", "Oslo"]


def people(n: int = 30) -> list[list[object]]:
    """Rows of age, city, label, member."""
    return [[i / 2, CITIES[i % 3], "no" if i % 2 else "yes", i % 5 == 0] for i in range(n)]


def write(path: Path, rows, header=("age", "city", "label", "member"), **options) -> Path:
    with open(path, "w", newline="") as file:
        csv.writer(file, **options).writerows([header, *rows] if header else rows)
    return path


def expected(rows) -> np.ndarray:
    names = sorted(CITIES)
    return np.array([[row[0], *(row[1] == name for name in names), row[3]] for row in rows], float)
