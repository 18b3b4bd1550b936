"""Requests that are silent get a second one beside them; pauses go by whether the store answers at all."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from bigsvm.store.remote import faults, race
from bigsvm.store.remote.faults import Believed, Fault, Passing, Patience, Silence
from bigsvm.store.remote.race import Pace, racing

FOREVER = threading.Event()
"""Waits for it end with the tests' process: what a stalled connection does."""


class Clock:
    """Ten milliseconds pass whenever it is looked at, however busy the machine is."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 0.01
        return self.now


class Server:
    """Answers that are given by number of the request, each a list of items, Faults, and events that are waited for.

    The last answer is given to every later request: a busy machine may begin any number of them. What is in `received`
    is left out of an answer: clients ask for what they lack.
    """

    def __init__(self, *answers: list) -> None:
        self.answers, self.n = answers, 0
        self.received: list[str] = []

    def begin(self) -> Iterator[str]:
        answer = self.answers[min(self.n, len(self.answers) - 1)]
        self.n += 1
        return self._items([item for item in answer if item not in self.received])

    def read(self, pace: Pace) -> str:
        """All that comes, one after the other."""
        for item in racing(self.begin, pace):
            self.received.append(item)
        return "".join(self.received)

    def _items(self, answer: list) -> Iterator[str]:
        for item in answer:
            if isinstance(item, threading.Event):
                item.wait()
            elif isinstance(item, Exception):
                raise item
            else:
                yield item


def test_a_stalled_request_costs_no_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "_UNKNOWN_S", 0.001)
    server = Server([FOREVER], [FOREVER], [Passing("HTTP 503")], [Believed("is not there", "absent")], ["a", "b"])
    assert server.read(Pace(1e6)) == "ab"
    assert server.n >= 5


def test_what_comes_in_the_midst_is_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "_UNKNOWN_S", 0.001)
    monkeypatch.setattr(race, "_LEAST_S", 0.001)
    server = Server(["a", "b", FOREVER], ["a", "b", "c", "d"])
    assert server.read(Pace(1e6)) == "abcd"
    assert server.n >= 2


def test_a_slow_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "_UNKNOWN_S", 0.001)
    come = threading.Event()
    server = Server([come, "slow"], [Passing("HTTP 503")])
    answer = server.begin

    def begin() -> Iterator[str]:
        if server.n == 4:  # three came to nothing beside it
            come.set()
        return answer()

    assert list(racing(begin, Pace(1e6))) == ["slow"]


def test_requests_beside_others_are_bounded_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "_UNKNOWN_S", 0.001)
    monkeypatch.setattr(race, "time", Clock())
    server, pace = Server([FOREVER]), Pace(0.3)
    pace.beside = threading.BoundedSemaphore(2)
    with pytest.raises(Silence):
        list(racing(server.begin, pace))
    assert server.n == 3
    with pytest.raises(Silence):
        list(racing(server.begin, pace, alone=True))
    assert server.n == 4
    with pytest.raises(Fault, match="HTTP 500"):
        list(racing(Server([Passing("HTTP 500")]).begin, Pace(1e6)))
    pace.stopping.set()
    with pytest.raises(Passing, match="stopped"):
        list(racing(server.begin, pace))


def test_a_pause_is_some_times_what_is_usual_and_no_less_than_a_tenth_of_a_second() -> None:
    pace = Pace(30.0)
    assert pace.pause_s == 1.0
    for seconds in (0.001, 0.002, 20.0):
        pace.waited(seconds)
    assert pace.pause_s == 0.1
    for _ in range(64):
        pace.waited(2.0)
    assert pace.pause_s == 8.0


def test_bad_luck_with_one_key_is_no_busy_store(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(faults.time, "monotonic", lambda: now)
    patience = Patience(1e9)
    assert patience._pause_s(7) == 6.4  # nothing ever answered
    assert patience.ask("other", lambda: 1) == 1
    assert sum(patience._pause_s(number) for number in range(9)) < 1.2
    now = 110.0
    assert patience._pause_s(7) == 5.0  # and now it has been silent for ten seconds
    now = 1000.0
    assert patience._pause_s(30) == 8.0
