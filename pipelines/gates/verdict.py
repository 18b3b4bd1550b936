"""The gates that were evaluated, and their results."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Gate:
    """A condition on a candidate."""

    name: str
    passed: bool
    value: Any
    limit: Any
    message: str


@dataclass
class Verdict:
    """All gates that were evaluated, and the figures behind them.

    current : the version that the candidate was compared with; None if nothing was current
    """

    gates: list[Gate] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    current: int | None = None

    @property
    def passed(self) -> bool:
        return bool(self.gates) and all(gate.passed for gate in self.gates)

    @property
    def refusals(self) -> list[Gate]:
        return [gate for gate in self.gates if not gate.passed]

    def ask(self, name: str, passed: bool, value: Any, limit: Any, message: str) -> bool:
        """Add the result of a gate; returns whether it was passed."""
        self.gates.append(Gate(name, passed, value, limit, message))
        return passed

    def accept_drift(self) -> None:
        """The user accepts the present rows, so gates on drift count as passed."""
        self.gates = [
            replace(gate, passed=True, message=f"{gate.message}; accepted") if gate.name.startswith("drift") else gate
            for gate in self.gates
        ]
