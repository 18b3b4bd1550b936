"""`dcd` under --stop paper: it ends by the rule of Hsieh et al. 2008, and the proof is made beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.errors import Unsupported
from bigsvm.testing.problems import random_problem
from bigsvm.testing.reference import dual_optimum

C = 0.1


def by_rule(X: np.ndarray, y: np.ndarray, eps: float, loss: str = "hinge", **options: Any) -> Any:
    asked = {"solver": "dcd", "stop": "paper", "loss": loss, "C": C, "solver_options": {"eps": str(eps)}}
    return bigsvm.fit((X, y), **{**asked, **options})


def spread(X: np.ndarray, signs: np.ndarray, alpha: np.ndarray, loss: str) -> float:
    """Largest less smallest projected gradient at the alpha that the fit ended with, as the textbook writes it."""
    rows = np.column_stack([X, np.ones(len(signs))]) * signs[:, None]
    diagonal, most = (0.0, C) if loss == "hinge" else (1.0 / (2.0 * C), np.inf)
    G = rows @ (alpha @ rows) - 1.0 + diagonal * alpha
    PG = np.where(alpha <= 0.0, np.minimum(G, 0.0), np.where(alpha >= most, np.maximum(G, 0.0), G))
    return float(PG.max() - PG.min())


def check(loss: str) -> list[Any]:
    """Two precisions: the rule holds at each, also of the gradients computed anew, and the tighter is nearer."""
    X, y = random_problem(400, 6, 0.7, seed=21, noise=0.2)
    found = [by_rule(X, y, eps, loss) for eps in (0.1, 1e-3)]
    optimum = dual_optimum(X, y, np.full(400, C), loss)
    for result, eps in zip(found, (0.1, 1e-3), strict=True):
        assert result.status == "paper_rule"
        rule = result.figures["rule"]
        assert rule["name"] == "largest less smallest projected gradient of a sweep"
        assert 0.0 < rule["value"] <= rule["tolerance"] == eps
        # The rule sees each row before its step, while others still move: at the end the spread is of that order.
        assert spread(X, np.where(y > 0, 1.0, -1.0), result.alpha[0].values[:, 0], loss) <= 2.0 * eps
        gap = result.figures["objective"] - result.figures["dual_objective"]
        assert gap >= result.figures["objective"] - optimum - 1e-9 * optimum
    assert found[1].certificate.relative_gap < 0.1 * found[0].certificate.relative_gap
    assert found[1].figures["epochs"] > found[0].figures["epochs"]
    return found


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_the_papers_rule_holds_of_rows_in_memory(loss: str) -> None:
    check(loss)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_the_papers_rule_holds_of_rows_that_stream(loss: str, streaming: None) -> None:
    for result in check(loss):
        plan = result.model.about["plan"]
        assert not plan["resident"]
        assert plan["row_buffer_bytes"] == 0  # nothing that the method of the rule lacks
        passes = result.figures["passes"] - 1.0  # the last is the proof's
        assert result.figures["epochs"] == pytest.approx(passes, abs=1.01)


def test_every_model_must_meet_the_rule() -> None:
    X, y = random_problem(200, 5, seed=27, n_classes=10)
    result = by_rule(X, y, 1e-2)
    assert result.status == "paper_rule"
    assert 0.0 < result.figures["rule"]["value"] <= 1e-2
    alpha = np.hstack([part.values for part in result.alpha])
    assert alpha.shape == (200, 10)
    for m in range(10):
        assert spread(X, np.where(y == m, 1.0, -1.0), alpha[:, m], "hinge") <= 2e-2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"shards": 2}, "on shards"),
        ({"solver_options": {"order": "random"}}, "with order=random"),
        ({"solver_options": {"momentum": "on"}}, "with momentum=on"),
    ],
)
def test_where_the_rule_does_not_speak_of_all_rows_it_is_refused(options: dict[str, Any], said: str) -> None:
    X, y = random_problem(50, 3, seed=1)
    with pytest.raises(Unsupported, match=f"{said} has no stop rule"):
        by_rule(X, y, 1e-3, **options)
