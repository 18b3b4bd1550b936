"""Pieces of the reproductions that say something by themselves."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from bigsvm.testing.reference import dual_optimum

SCRIPTS = Path(__file__).parents[1] / "scripts"
sys.path[:0] = [str(SCRIPTS), str(SCRIPTS / "benchmarks")]

from reproduction import hyperpass_readings, mackey_glass, notes  # noqa: E402
from reproduction.pegasos_pass import pegasos_pass  # noqa: E402
from reproduction.sets import made_up  # noqa: E402
from reproduction.wss_paper import LARGE, LARGE_COLUMNS, LARGE_READ, MSE  # noqa: E402


def test_the_mackey_glass_series_solves_its_equation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the step changes nothing that is seen, and where x is constant it stays at the equation's fixed point 1."""
    coarse = mackey_glass.series(150)
    monkeypatch.setattr(mackey_glass, "_STEPS", 40)
    assert np.abs(mackey_glass.series(150) - coarse).max() < 1e-4
    assert coarse[0] == 1.2
    # Before t = 17 the delayed value is 1.2: x = c + (1.2 - c) exp(-t / 10), a linear equation.
    c = 2.0 * 1.2 / (1.0 + 1.2**10)
    assert coarse[:17] == pytest.approx(c + (1.2 - c) * np.exp(-0.1 * np.arange(17)), abs=1e-9)


def test_a_row_of_mackey_glass_is_a_piece_of_the_series() -> None:
    data = mackey_glass.mackey_glass(50)
    assert data.X.shape == (50, 6)
    x = mackey_glass.series(700)
    assert data.y == pytest.approx(x[530 + 85 : 530 + 85 + 50])
    for column, lag in enumerate((0, 6, 12, 18, 24, 30)):
        assert np.corrcoef(data.X[:, column], x[530 - lag : 580 - lag])[0, 1] == pytest.approx(1.0)


def test_two_programs_of_steepest_hyperpass_take_the_same_iterations_on_mnist() -> None:
    """They share nothing; what is committed is of both."""
    found = json.loads((SCRIPTS.parent / "docs" / "reproduction" / "hyperpass.json").read_text())["found"]
    (package,) = found["work_to_optimum"]["steepest"]
    assert found["readings"][0]["iterations"] == [one["steps"] for one in package]
    assert [one["label"] for one in found["readings"]] == [one.label for one in hyperpass_readings.READINGS]


def test_a_reading_of_hyperpass_comes_to_the_optimum() -> None:
    data = made_up(60, 3, 2)
    Z = data.X * data.y[:, None]
    best = dual_optimum(data.X, data.y, np.full(60, 1.0 / (0.1 * 60)), "hinge", 0.0) * 0.1
    for reading in (hyperpass_readings.READINGS[0], hyperpass_readings.READINGS[5]):
        (near, nearer) = hyperpass_readings.iterations(Z, 0.1, reading, [best * 1.01, best * 1.001], 200)
        assert near is not None
        assert nearer is not None
        assert 1 <= near <= nearer
        assert hyperpass_readings.iterations(Z, 0.1, reading, [best * 0.999], 50) == [None]


def test_a_pass_of_pegasos_takes_the_steps_of_its_definition() -> None:
    data, lam, t = made_up(40, 3, 2), 0.5, 1
    Z = data.X * data.y[:, None]
    batches = np.random.default_rng(0).integers(0, 40, (12, 5))
    w, own = np.zeros(3), np.zeros(3)
    pegasos_pass.py_func(Z, batches, own, 1, lam)
    for A in batches:
        t += 1
        step = 1.0 / (lam * t)
        w = w - step * (lam * w - sum(z for z in Z[A] if z @ w < 1.0) / 5)
        w *= min(1.0, 1.0 / (np.sqrt(lam) * np.linalg.norm(w)))
    assert own == pytest.approx(w, rel=1e-12)


def test_the_same_kernel_is_made_in_each_way() -> None:
    data = made_up(20, 3, 1)
    data.X[:, 0] *= 0.05  # distances of the order of sigma
    for name, make in notes.GAUSS_AS.items():
        own = make(data.X[:, :1])
        if name == "the identity":
            assert np.array_equal(own, np.eye(20))
        else:
            assert own == pytest.approx(notes.KERNELS["Gauss"].matrix(data.X[:, :1], data.X[:, :1]), abs=1e-9)
            assert own[~np.eye(20, dtype=bool)].max() > 1e-3


def test_table_ix_has_its_36_numbers_under_either_heading() -> None:
    assert {name: len(ratios) for name, ratios in LARGE.items()} == {"a9a": 6, "w8a": 6, "ijcnn1": 6}
    assert all(0.0 < value < 1.0 for ratios in LARGE.values() for pair in ratios for value in pair)
    assert sorted(LARGE_COLUMNS) == sorted(LARGE_READ)
    assert list(MSE) == ["mpg", "MG"]
