"""Gates that were looked at, and what came of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Gate:
    """One demand on a candidate."""

    name: str
    passed: bool
    value: Any
    limit: Any
    message: str


@dataclass
class Verdict:
    """All gates that were looked at, and the figures behind them.

    current : the version that the candidate was compared with; None where nothing was current
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
        """Add a gate; whether it was passed."""
        self.gates.append(Gate(name, passed, value, limit, message))
        return passed

    def accept_drift(self) -> None:
        """Somebody said that rows are as they are now from here on."""
        self.gates = [
            replace(gate, passed=True, message=f"{gate.message}; accepted") if gate.name.startswith("drift") else gate
            for gate in self.gates
        ]
