"""The status of a fit and the meaning of its certificate, each in one sentence."""

from __future__ import annotations

from typing import Any

from bigsvm.report.facts import Source, Told, small

_TONES = {"converged": "good", "paper_rule": "good", "kkt": "so-so", "stopped": "so-so", "stalled": "so-so"}
_OPEN = {"running": "open", "starting": "open", "ok": "good", "imported": "open"}


def tone(status: str) -> str:
    """The tone of a status: good, so-so, bad or open."""
    return _TONES.get(status) or _OPEN.get(status, "bad")


def percent(gap: float) -> str:
    """0.0077 %"""
    return f"{100 * gap:.2g} %"


def proof_sentence(status: str, gap: Told | None, tol: Told | None, kind: Any, rule: dict[str, Any]) -> list[Told]:
    """A sentence about a model whose fit has ended.

    gap : its relative gap; None if there is none
    kind : proved, estimate or none
    """
    asked = [Told("(asked for:"), tol, Told(").")] if tol is not None else [Told(".")]
    if status == "kkt":
        return [Told(f"The optimality conditions hold ({_rule(rule)}); for this kernel no gap can be proved.")]
    if gap is None or gap.value is None:
        elsewhere = "It was trained by another program. " if status == "imported" else ""
        return [Told(f"{elsewhere}No gap is known: nothing was proved.")]
    before = {
        "paper_rule": f"The solver's own stop rule is met ({_rule(rule)}). ",
        "stopped": "Stopped before its tolerance. ",
        "stalled": "Stalled before its tolerance. ",
        "interrupted": "Interrupted. ",
    }.get(status, "")
    said = "is proved" if kind == "proved" else "is estimated, not proved,"
    best = Told(f"({percent(gap.value)}) of the best objective that any model of this problem can have")
    return [Told(f"{before}The objective of this model {said} to be within a share of"), gap, best, *asked]


def run_sentence(status: str, source: Source, last: Source | None, tol: Told | None) -> list[Told]:
    """Sentences about a run.

    tol : the tolerance that was asked for
    last : the event of the last certificate, if the run has no result yet
    """
    if source.get("result.relative_gap") is not None:
        gap = source.told("result.relative_gap", small)
        rule = source.get("result.rule") or {}
        return proof_sentence(status, gap, tol, source.get("result.certificate"), rule)
    so_far = [Told("There is no certificate yet.")]
    if last is not None:
        so_far = [Told("The last certificate has a relative gap of"), last.told("relative_gap", small), Told(".")]
    began = {
        "running": "The fit is running.",
        "starting": "The fit is starting.",
        "died": "The process of this fit has ended without a model: bigsvm resume continues the fit.",
        "interrupted": "The fit was interrupted: bigsvm resume continues it.",
    }.get(status, f"The fit failed: {source.get('error') or 'the record gives no reason'}.")
    return [Told(began), *so_far]


def _rule(rule: dict[str, Any]) -> str:
    """`violation 0.00099, tolerance 0.001`"""
    if not rule:
        return "as reported by the solver"
    value, tolerance = rule.get("value"), rule.get("tolerance")
    said = f"{rule.get('name')} {value:.3g}" if isinstance(value, int | float) else str(rule.get("name"))
    return f"{said}, tolerance {tolerance:.3g}" if isinstance(tolerance, int | float) else said
