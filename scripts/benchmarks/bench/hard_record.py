"""What the hard suite has measured so far: one JSON file, written after every run, read when the suite starts again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.evaluate import gap
from bench.problems import Problem

_WHICH = ("problem", "loss", "C", "solver", "rung", "limit_s", "memory_asked")
_GROUP = ("problem", "loss", "C")
Group = tuple[str, str, float]


class Record:
    """Finished runs, with sizes of the problems and plans; `about`: what else the file is to say."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.runs: list[dict[str, Any]] = []
        self.problems: dict[str, dict[str, Any]] = {}
        self.plans: dict[str, dict[str, Any]] = {}
        self.left_out: dict[str, str] = {}
        self.about: dict[str, Any] = {}
        if path is not None and path.exists():
            document = json.loads(path.read_text())
            if document.get("suite") != "hard":
                raise SystemExit(f"{path} is not a record of this suite: name another file")
            self.runs, self.problems, self.plans = document["runs"], document["problems"], document["plans"]

    def find(self, which: dict[str, Any]) -> dict[str, Any] | None:
        """A run that is finished; one that failed is done again, but for one that took too long."""
        for run in self.runs:
            if _key(run) == _key(which) and ("error" not in run or run["overtime"]):
                return run
        return None

    def add(self, which: dict[str, Any], figures: dict[str, Any]) -> dict[str, Any]:
        """Keep a run, in the place of one like it, and write the file."""
        run = {**which, **figures}
        self.runs = [*(other for other in self.runs if _key(other) != _key(which)), run]
        self.save()
        return run

    def plan(
        self, problem: str, loss: str, C: float, solver: str, make: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """The plan of a fit; made where it is not known, or was refused by a bigsvm that may have changed since."""
        key = f"{problem}, {loss}, C={C:g}, {solver}"
        if key not in self.plans or self.plans[key].get("refused", "").startswith("no plan"):
            self.plans[key] = make()
        return self.plans[key]

    def plan_of(self, group: Group, solver: str) -> dict[str, Any]:
        """A plan that was made; empty where none was."""
        return self.plans.get("{}, {}, C={:g}, {}".format(*group, solver), {})

    def learn_problem(self, name: str, problem: Problem) -> None:
        """Sizes, for the report of a later start that does not make the problem again."""
        sizes = ("n_samples", "n_features", "nnz", "data_bytes")
        self.problems[name] = {size: getattr(problem, size) for size in sizes}

    def groups(self) -> list[Group]:
        """(problem, loss, C) of all runs, in the order that they were measured in, C rising."""
        seen = dict.fromkeys((run["problem"], run["loss"]) for run in self.runs)
        costs = sorted({run["C"] for run in self.runs})
        return [(*pair, C) for pair in seen for C in costs if self.of((*pair, C))]

    def of(self, group: Group) -> list[dict[str, Any]]:
        """The runs of a group."""
        return [run for run in self.runs if tuple(run[name] for name in _GROUP) == group]

    def gap(self, run: dict[str, Any]) -> float | None:
        """(P - best D) / P, P by the evaluator, D the best that any bigsvm run of the group proved."""
        duals = [other["dual"] for other in self.of(tuple(run[name] for name in _GROUP)) if "dual" in other]
        if not duals or "primal" not in run:
            return None
        return gap(np.array(run["primal"]), np.max(duals, axis=0))

    def save(self, lines: list[dict[str, Any]] | None = None) -> None:
        """Write the file, whole or not at all."""
        if self.path is None:
            return
        document = {
            "suite": "hard", **self.about, "left_out": self.left_out, "problems": self.problems, "plans": self.plans,
            "lines": lines or [], "runs": self.runs,
        }  # fmt: skip
        beside = self.path.with_name(f"{self.path.name}.new")
        beside.write_text(json.dumps(document, indent=1) + "\n")
        os.replace(beside, self.path)


def _key(run: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(run.get(name) for name in _WHICH)
