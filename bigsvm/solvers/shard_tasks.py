"""What runs where a shard is: its rounds, its saves, and making its state anew where that was lost.

The state of a shard after round r is a pure function of its rows, of what it was told and of the weights of all rounds
up to r.  A process keeps it between two calls (`_HELD`), as a cache and no more.  A process that does not have it,
because the one that did is gone, reads what was saved last, and replays the rounds since then from the caller's log.

    HOME/00003-00000042/     shard 3 as it was after 42 rounds (`store/state/state_files.py`)
    HOME/round-00000042/     what all shards were told in round 42, and the weights
"""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from bigsvm.errors import DataError, ReadFailed
from bigsvm.files.atomic import remove_dead, temporary_name
from bigsvm.store.state.state_files import read_tree, write_tree
from bigsvm.tasks import ShardSum, note

_HELD: dict[tuple[str, int], ShardState] = {}
_TAKING = threading.Lock()
_KEPT = 2
_HOME = "shards"


class Told(Protocol):
    """What all shards are told in a round: it is `number` since the fit began."""

    @property
    def number(self) -> int: ...

    def tree(self) -> dict[str, Any]:
        """As the log keeps it."""


class ShardState(Protocol):
    """What a shard knows between two rounds.  It changes in rounds alone.

    rounds : so many were taken part in
    """

    rounds: int

    def work(self, rows: Any, told: Any, w: np.ndarray) -> ShardSum:
        """One round."""

    def answer(self, rows: Any, question: Any, w: Any) -> ShardSum:
        """What a question finds that changes nothing."""

    def settle(self, ending: Any) -> None:
        """What the caller has found since the last round: told to those that are to be saved."""

    def whole(self) -> dict[str, Any]:
        """All that must be saved, with `rounds`."""

    def restore(self, rows: Any, tree: dict[str, Any]) -> None:
        """Take over what `whole` gave."""


class ShardRows(Protocol):
    """Which rows a shard has, and how they are worked on: small, and the same in every round."""

    @property
    def number(self) -> int: ...

    def new_state(self) -> Any:
        """Before the first round, where no caller's arrays are."""

    def told(self, tree: dict[str, Any]) -> Told:
        """What `Told.tree` gave."""


class Shard(NamedTuple):
    """One shard, as a task is given it.

    rows : ShardRows
    state : the caller's own, where tasks run in its process; else None
    home : folder that all processes see, where states are saved and rounds are logged; '' where tasks run here
    """

    rows: ShardRows
    state: ShardState | None
    home: str


def new_home(workdir: Path) -> str:
    """Make a folder for the shards of a fit; those of callers that were killed go first.

    Its name says whose it is, so that one of a caller that lives, or lives elsewhere, stays.
    """
    remove_dead(workdir, _HOME)
    home = temporary_name(workdir / _HOME)
    home.mkdir(parents=True)
    return str(home)


def round_task(shard: Shard, told: tuple[Told, np.ndarray]) -> ShardSum:
    """Task: one round of a shard."""
    this, W = told
    state = _taken(shard, this.number)
    found = state.work(shard.rows, this, W)
    _give_back(shard, state)
    return found


def ask_task(shard: Shard, told: tuple[int, Any, Any]) -> ShardSum:
    """Task: what a shard finds after so many rounds, without a change of its state; told of a question, and of w."""
    rounds, question, w = told
    state = _taken(shard, rounds)
    found = state.answer(shard.rows, question, w)
    _give_back(shard, state)
    return found


def save_task(shard: Shard, told: tuple[int, Any]) -> ShardSum:
    """Task: bring a shard to the end of so many rounds, and save it.  Gives its number."""
    rounds, ending = told
    state = _taken(shard, rounds)
    state.settle(ending)
    write_home(shard.home, shard.rows.number, state.whole())
    _give_back(shard, state)
    return ShardSum((shard.rows.number,))


def forget_task(shard: Shard, told: None) -> ShardSum:
    """Task: drop what this process knows of a fit that is over, and of all whose folders are gone."""
    with _TAKING:
        for home, number in list(_HELD):
            if home == shard.home or not Path(home).is_dir():
                del _HELD[home, number]
    return ShardSum((0,))


def saved_tree(home: str, number: int, rounds: int, names: Collection[str] = ()) -> Any:
    """What `save_task` saved of shard `number`, or what of it has these names; arrays are maps.

    Raises DataError where it is not whole.
    """
    return read_tree(_saved(home, number, rounds), names)


def write_home(home: str, number: int, tree: Any) -> None:
    """Save a shard's tree, whole or not at all; the last ones of this shard stay, older ones go."""
    target = _saved(home, number, int(tree["rounds"]))
    _write_whole(target, tree)
    for old in _numbers(home, number)[:-_KEPT]:
        shutil.rmtree(_saved(home, number, old), ignore_errors=True)


def log_round(home: str, this: Told, W: np.ndarray) -> None:
    """Keep what a round told, for shards that must be made anew."""
    _write_whole(_logged(home, this.number), {"round": this.tree(), "w": W})


def drop_log(home: str, before: int) -> None:
    """Rounds before `before` are saved by every shard."""
    for path in Path(home).glob("round-*"):
        if int(path.name.removeprefix("round-")) < before:
            shutil.rmtree(path, ignore_errors=True)


def _taken(shard: Shard, rounds: int) -> ShardState:
    """The state after `rounds` rounds, which belongs to the caller until it is given back."""
    if shard.state is not None:
        return shard.state
    with _TAKING:
        held = _HELD.pop((shard.home, shard.rows.number), None)
    if held is not None and held.rounds == rounds:
        return held
    return _made_anew(shard, rounds)


def _give_back(shard: Shard, state: ShardState) -> None:
    if shard.state is None:
        with _TAKING:
            _HELD[shard.home, shard.rows.number] = state


def _made_anew(shard: Shard, rounds: int) -> ShardState:
    """From what was saved last, and the log of the rounds since.

    Raises ReadFailed where that save is damaged: the rounds before it are not kept.
    """
    rows, home = shard.rows, shard.home
    note("made_anew")
    state: ShardState = rows.new_state()
    damaged = ""
    for saved in reversed([number for number in _numbers(home, rows.number) if number <= rounds]):
        try:
            tree = saved_tree(home, rows.number, saved)
        except DataError as error:  # its writer was lost; the one before will do, where the rounds since are kept
            damaged = damaged or f": {error}"
            continue
        state.restore(rows, tree)
        break
    while state.rounds < rounds:
        if not _logged(home, state.rounds).is_dir():
            what = (
                f"what shard {rows.number} knew after round {rounds} is lost, and cannot be worked out again{damaged}"
            )
            raise ReadFailed(what, home, "`bigsvm resume RUN` goes on from the newest checkpoint; look at that disk")
        logged = read_tree(_logged(home, state.rounds))
        state.work(rows, rows.told(logged["round"]), np.array(logged["w"]))
        note("replayed")
    return state


def _saved(home: str, number: int, rounds: int) -> Path:
    return Path(home) / f"{number:05d}-{rounds:08d}"


def _logged(home: str, number: int) -> Path:
    return Path(home) / f"round-{number:08d}"


def _numbers(home: str, number: int) -> list[int]:
    """Rounds after which a shard was saved, in order."""
    return sorted(
        int(path.name.split("-")[1]) for path in Path(home).glob(f"{number:05d}-*") if path.name[-8:].isdigit()
    )


def _write_whole(target: Path, tree: Any) -> None:
    """A tree in a folder that is there whole or not at all: two that write it at one time write the same."""
    if target.exists():
        return
    aside = target.with_name(f".{target.name}-{uuid.uuid4().hex[:8]}")
    aside.mkdir(parents=True)
    try:
        write_tree(aside, tree)
        os.rename(aside, target)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        if not target.exists():
            raise
