"""Which fits are called hopeless: those that will not arrive within their limits, whatever single looks show."""

from __future__ import annotations

import numpy as np

from bigsvm.solvers.pace import Limits, Pace, kernel_limits

LIMITS = Limits(most=1000.0, patience=100.0)
TARGET = np.array([1e-3])


def looked(*looks: tuple[float, float]) -> Pace:
    pace = Pace.of(1)
    for count, value in looks:
        pace.see(count, np.array([value]))
    return pace


def test_a_value_that_does_not_fall_is_hopeless_once_patience_is_over() -> None:
    looks = [(float(count), 0.5) for count in range(1, 100)]
    assert not looked(*looks).hopeless(TARGET, LIMITS).any()
    assert looked(*looks, (100.0, 0.5)).hopeless(TARGET, LIMITS).all()


def test_a_line_that_ends_beyond_the_limit_is_hopeless() -> None:
    """From 1 down by 1e-5 of it in a unit of work: 1e5 units would be needed; by 1e-2, not a hundred."""
    for rate, hopeless in ((1e-5, True), (1e-2, False)):
        pace = looked(*((float(count), max(1.0 - rate * count, 0.0)) for count in range(1, 129)))
        assert pace.hopeless(TARGET, LIMITS).tolist() == [hopeless]


def test_still_to_come_is_along_the_line_since_the_older_look() -> None:
    """Looks at 1, 2, 4 and 8: the last doubling keeps what was least at 4; from there on 0.1 a unit."""
    pace = looked((1.0, 1.0), (2.0, 0.9), (4.0, 0.8), (8.0, 0.4))
    assert pace.still_to_come(np.array([0.2]))[0] == 2.0
    assert pace.still_to_come(np.array([0.5]))[0] == 0.0


def test_one_bad_look_takes_nothing_back() -> None:
    good = looked((1.0, 1.0), (2.0, 0.5), (4.0, 0.25), (8.0, 0.125))
    worse = looked((1.0, 1.0), (2.0, 0.5), (4.0, 0.25), (8.0, 0.125), (9.0, 5.0), (10.0, float("nan")))
    assert worse.least[0] == good.least[0] == 0.125
    assert np.isfinite(worse.still_to_come(TARGET)[0])


def test_what_is_not_known_yet_is_not_hopeless() -> None:
    pace = looked((1.0, float("nan")), (200.0, float("nan")), (500.0, 0.7))
    assert not pace.hopeless(TARGET, LIMITS).any()


def test_small_problems_are_granted_a_million_rows_of_values() -> None:
    assert kernel_limits(10) == Limits(1e5, 1e4)
    assert kernel_limits(10**6) == Limits(2000.0, 200.0)
