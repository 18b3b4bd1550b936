"""What WSS-WR and WSS3 do on the way: how often a variable is selected, objective and gap against steps.

Figs. 11 and 12 are on a1a, w1a, australian and splice, and with four kernels on w1a; here all four sets have all four
kernels, at C = 1 and gamma = 1 / n_features, as the paper's "gamma = 0" meant in the LIBSVM of its time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from reproduction.journal import Journal
from reproduction.sets import DataSet
from reproduction.wss import compile_for
from reproduction.wss_paper import KERNELS
from reproduction.wss_summary import RULES
from reproduction.wss_train import Point, cut, matrix_of, path, train, whole_matrix

LIMIT = 50_000
COUNTED = ("heart", "german.numer", "a1a")
SELECTED_AT = (1.0, 128.0)  # C at which selections are counted
FOLLOWED = ("a1a", "w8a sample", "australian", "splice")
_MARKS = 80


def run(sets: list[DataSet], journal: Journal, say: Callable[[str], None]) -> dict[str, Any]:
    """All that the report says, as JSON; of other sets than the paper's the first one for everything."""
    compile_for(sets)
    counted = [data for data in sets if data.name in COUNTED] or sets[:1]
    followed = [data for data in sets if data.name in FOLLOWED] or sets[:1]
    selected = [journal(f"selected/{data.name}", lambda data=data: _selected(data)) for data in counted]
    ways = []
    for data in followed:
        for kernel in KERNELS:
            ways.append(journal(f"way/{data.name}/{kernel}", lambda data=data, kernel=kernel: _way(data, kernel)))
            say(f"{data.name}, {kernel}: {[int(ways[-1]['paths'][rule][-1][0]) for rule in RULES]} steps")
    return {"selected": selected, "ways": ways}


def _selected(data: DataSet) -> dict[str, Any]:
    """How many variables were selected 0, 1, 2, ... times by WSS3, rbf."""
    point = Point(1.0, 1.0 / data.X.shape[1])
    rows = cut(whole_matrix(matrix_of(data.X), point.kernel("rbf")), np.arange(len(data.y)))
    found = {}
    for C in SELECTED_AT:
        run = train(rows, data.y, Point(C, point.gamma), "3", LIMIT, record=True)
        found[f"{C:g}"] = np.bincount(run.selected.sum(axis=0)).tolist()
    return {"set": data.name, "selected": found}


def _way(data: DataSet, kernel: str) -> dict[str, Any]:
    """[step, dual value, gap / primal] on the way of both rules, and of WSS3 after as many steps as WSS-WR.

    tanh allows no proof: its gaps are null.
    """
    point = Point(1.0, 1.0 / data.X.shape[1])
    of = point.kernel(kernel)
    rows = cut(whole_matrix(matrix_of(data.X), of), np.arange(len(data.y)))
    paths = {rule: path(rows, data.y, point, rule, LIMIT, _MARKS) for rule in RULES}
    paths["limited"] = path(rows, data.y, point, "3", int(paths["wr"][-1][0]), _MARKS)[-1:]
    if not of.positive_semidefinite:
        paths = {rule: [[step, dual, None] for step, dual, _ in marks] for rule, marks in paths.items()}
    return {"set": data.name, "kernel": kernel, "C": point.C, "gamma": point.gamma, "paths": paths}
