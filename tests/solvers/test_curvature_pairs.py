"""What preconditions conjugate gradients: the arrowhead of a Hessian, and pairs of directions and products."""

from __future__ import annotations

import numpy as np
import pytest

from bigsvm.solvers.primal.bias_eliminated import BiasEliminated
from bigsvm.solvers.primal.curvature_pairs import CurvaturePairs, dot


def pair(k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of two models, along feature k, where the Hessian is 4 and 9."""
    u = np.zeros((6, 2))
    u[k] = 1.0
    Hu = u * np.array([4.0, 9.0])
    return u, Hu, dot(u, Hu)


def kept(pairs: CurvaturePairs, m: int) -> list[int]:
    """The feature of each pair of a model, the oldest first."""
    there = pairs.inverse[:, m] > 0.0
    return [int(k) for k in pairs.directions[there][..., m].argmax(axis=1)]


def test_it_inverts_where_it_was_told_and_divides_by_the_diagonal_elsewhere() -> None:
    pairs, r = CurvaturePairs.new(3, (6, 2)), np.arange(1.0, 13.0).reshape(6, 2)
    core = BiasEliminated(np.full((6, 2), 2.0), np.zeros((6, 2)))
    np.testing.assert_array_equal(pairs.applied(r, core), r / 2.0)
    pairs.add(*pair(1))
    wanted = r / 2.0
    wanted[1] = r[1] / [4.0, 9.0]
    np.testing.assert_allclose(pairs.applied(r, core), wanted, rtol=1e-6)


@pytest.mark.parametrize(("held", "left"), [(0, [2, 3, 4]), (1, [0, 3, 4]), (2, [0, 1, 4])])
def test_the_first_ones_held_and_the_last_ones_stay(held: int, left: list[int]) -> None:
    pairs = CurvaturePairs.new(3, (6, 2))
    for k in range(5):
        pairs.add(*pair(k), held=held)
    assert kept(pairs, 0) == kept(pairs, 1) == left
    earlier = CurvaturePairs.new(4, (6, 2))
    earlier.add(*pair(5))
    earlier.take_over(pairs)
    assert kept(earlier, 1) == [5, *left]
    assert kept(pairs, 0) == []


def test_a_model_that_waits_keeps_what_it_has() -> None:
    pairs = CurvaturePairs.new(2, (6, 2))
    for k in range(4):
        u, Hu, bend = pair(k)
        if k > 0:
            u[:, 1] = Hu[:, 1] = bend[1] = 0.0
        pairs.add(u, Hu, bend, held=1)
    assert kept(pairs, 0) == [0, 3]
    assert kept(pairs, 1) == [0]


def test_pairs_that_float32_has_no_room_for_are_left_out() -> None:
    pairs = CurvaturePairs.new(2, (6,))
    u, Hu = np.zeros(6), np.full(6, 1e200)
    u[0] = 1e-100
    pairs.add(u, Hu, dot(u, Hu))
    assert not pairs.inverse.any()
    assert not pairs.directions.any()
    for scale in (1e-150, 1e150):
        u[0], Hu[:] = scale, 0.0
        Hu[0] = 4.0 * scale
        pairs.add(u, Hu, dot(u, Hu))
    assert np.all(pairs.inverse == pytest.approx(1.0, rel=1e-6))


def test_conjugate_takes_out_what_rounding_brought_back() -> None:
    pairs, u = CurvaturePairs.new(2, (6, 2)), np.ones((6, 2))
    pairs.add(*pair(0))
    pairs.conjugate(u)
    np.testing.assert_allclose(u[0], 0.0, atol=1e-6)
    np.testing.assert_array_equal(u[1:], 1.0)
