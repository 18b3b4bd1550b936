"""newton-ws when --max-time is over while it solves: it leaves the step at once, and P of its model is no larger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.solvers.newton_ws import subproblem
from bigsvm.solvers.newton_ws.newton_ws import NewtonWS
from tests.solvers.newton_ws_problems import cloud
from tests.solvers.stepping import Bench


class Clock:
    """Says that the time is over, or that a signal came, from the piece number `over` of the Hessians on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pieces, self.over, self.signal = 0, 10**9, False
        add = subproblem.add_hessian

        def counted(*arguments: Any) -> None:
            self.pieces += 1
            add(*arguments)

        monkeypatch.setattr(subproblem, "add_hessian", counted)

    def told(self) -> bool:
        return self.pieces >= self.over


def made(tmp_path: Path, clock: Clock, loss: str, layout: str, streams: bool) -> Bench:
    X, y = cloud(600)
    bench = Bench(
        NewtonWS(), X if layout == "dense" else sparse.csr_matrix(X), y, tmp_path, 100 if streams else None,
        {"loss": loss, "C": 10.0}, row_buffer_bytes=1 << 24, tol=1e-9,
    )  # fmt: skip
    bench.ctx.control.expired = clock.told
    bench.ctx.control.stopping = lambda: clock.signal and clock.told()
    return bench


def reached(bench: Bench) -> np.ndarray:
    return np.concatenate([bench.state.w.ravel(), bench.state.direction.ravel()])


def objective(bench: Bench, loss: str) -> float:
    """P at the point that would be the model."""
    w = bench.state.w + bench.state.direction
    X, y = cloud(600)
    slack = np.maximum(1.0 - y * (X @ w[:-1] + w[-1]), 0.0)
    return 0.5 * float(w @ w) + 10.0 * float((slack**2 if loss == "squared_hinge" else slack).sum())


@pytest.mark.parametrize("signal", [False, True])
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_step_is_left_when_the_time_is_over(
    loss: str, layout: str, streams: bool, signal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went on to the end of the step: 20,000 x 300 rows with the hinge loss at C = 100 took 4 s of CPU in each."""
    clock = Clock(monkeypatch)
    bench = made(tmp_path, clock, loss, layout, streams)
    bench.step()
    for _ in range(2):
        before, value = reached(bench), objective(bench, loss)
        clock.over, clock.signal = clock.pieces + 1, signal
        info = bench.solver.step(bench.problem, bench.state, bench.ctx)
        late, clock.over = clock.pieces - clock.over, 10**9
        left = signal or not streams
        assert (late == 0) == left
        assert info.paused == signal
        if signal:
            assert np.array_equal(reached(bench), before)
        elif left:
            assert objective(bench, loss) <= value * (1 + 1e-9)
        assert info.visits == (0 if left else 600)
    if signal:  # what was left for a signal is repeated to the same bytes
        (tmp_path / "other").mkdir()
        undisturbed = made(tmp_path / "other", clock, loss, layout, streams)
        for some in (undisturbed, undisturbed, bench):
            some.step()
        assert np.array_equal(reached(bench), reached(undisturbed))


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_without_time_the_model_is_where_the_first_problem_was_left(
    loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the sample, or of all rows, was solved to its end, whatever the time was."""
    clock = Clock(monkeypatch)
    whole = made(tmp_path, clock, loss, "dense", streams=False)
    whole.solver._look_for_direction(whole.state, whole.ctx)
    pieces = clock.pieces
    for over in (0, pieces - 1):
        clock.pieces, clock.over = 0, over
        (tmp_path / str(over)).mkdir()
        bench = made(tmp_path / str(over), clock, loss, "dense", streams=False)
        assert not bench.solver.step(bench.problem, bench.state, bench.ctx).paused
        assert clock.pieces == over
        assert not bench.state.direction.any()
        assert objective(bench, loss) < 4500.0  # 6000 at w = 0
    X, y = cloud(600)
    result = bigsvm.fit((X, y), solver="newton-ws", loss=loss, C=10.0, max_time=1e-9)
    assert result.status == "stopped"
    assert result.figures["objective"] <= 6000.0  # that of w = 0
    result.save_model(tmp_path / "m")
    assert bigsvm.certify(tmp_path / "m", (X, y))["objective"] == pytest.approx(result.figures["objective"])
