"""The memory budget: what is held, what is free, who is named when it is not enough."""

from __future__ import annotations

import threading

import pytest

from bigsvm.budget import MemoryBudget, Reservation
from bigsvm.errors import BudgetExceeded


def test_reservations_add_up_and_come_back() -> None:
    budget = MemoryBudget(100)
    with budget.reserve("alpha", 60):
        assert budget.free == 40
        with budget.reserve("rows", 40):
            assert budget.free == 0
            assert budget.report() == [("alpha", 60), ("rows", 40)]
    assert budget.free == 100
    assert budget.report() == []


def test_a_refusal_names_the_holders_and_the_smallest_budget() -> None:
    budget = MemoryBudget(100)
    budget.reserve("alpha", 60)
    with pytest.raises(BudgetExceeded, match=r"kernel rows needs 50 B, 40 B free of 100 B; held: alpha 60 B") as seen:
        budget.reserve("kernel rows", 50)
    assert seen.value.code == 78
    assert seen.value.min_memory_bytes == 110
    assert budget.free == 40


def test_who_can_spill_asks_softly() -> None:
    budget = MemoryBudget(10)
    assert budget.try_reserve("cache", 11) is None
    held = budget.try_reserve("cache", 10)
    assert isinstance(held, Reservation)
    held.release()
    held.release()  # twice does no harm
    assert budget.free == 10


def test_an_error_inside_gives_the_bytes_back() -> None:
    budget = MemoryBudget(10)
    with pytest.raises(RuntimeError, match="inside"), budget.reserve("x", 10):
        raise RuntimeError("inside")
    assert budget.free == 10


def test_equal_reservations_are_told_apart() -> None:
    budget = MemoryBudget(10)
    first, second = budget.reserve("x", 4), budget.reserve("x", 4)
    first.release()
    first.release()
    assert budget.free == 6
    second.release()
    assert budget.free == 10


def test_threads_cannot_overdraw() -> None:
    budget = MemoryBudget(50)
    got: list[Reservation] = []

    def ask() -> None:
        for _ in range(100):
            held = budget.try_reserve("x", 1)
            if held is not None:
                got.append(held)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 50
    assert budget.free == 0
