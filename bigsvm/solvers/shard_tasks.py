"""Tasks on a shard: its rounds, its saves, and rebuilding its state if that was lost.

The state of a shard after round r is a pure function of its rows, and of the messages and weights of rounds 0 to r.  A
process keeps it between two calls only as a cache (`_HELD`).  A process without it (because the worker that had it is
gone) loads the last save, and replays the rounds since then from the log of the calling process.

    HOME/00003-00000042/     the state of shard 3 after 42 rounds (`store/state/state_files.py`)
    HOME/round-00000042/     the message to all shards in round 42, and the weights
"""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from bigsvm.errors import DataError, ReadFailed
from bigsvm.files.atomic import remove_dead, temporary_name
from bigsvm.files.space import cannot_write
from bigsvm.store.state.state_files import read_tree, tree_bytes, write_tree
from bigsvm.tasks import PassLeft, ShardSum, note

_HELD: dict[tuple[str, int], ShardState] = {}
_TAKING = threading.Lock()
_KEPT = 2  # saves of each shard that stay: the last may be damaged
_HOME = "shards"


class Told(Protocol):
    """The message that all shards receive in a round.  number : of the round since the fit began"""

    @property
    def number(self) -> int: ...

    def tree(self) -> dict[str, Any]:
        """The message as the log saves it."""


class ShardState(Protocol):
    """The state of a shard between two rounds.  Only rounds change it.

    rounds : number of rounds so far
    """

    rounds: int

    def work(self, rows: Any, told: Any, w: np.ndarray) -> ShardSum:
        """One round.  told : its message;  w : the weights that it starts at"""

    def answer(self, rows: Any, question: Any, w: Any) -> ShardSum:
        """Answer a question about the rows (such as a proof) without changing the state."""

    def settle(self, ending: Any) -> None:
        """Apply what the caller decided after the last round (such as a step length); called before a save."""

    def whole(self) -> dict[str, Any]:
        """Everything that must be saved, `rounds` included."""

    def restore(self, rows: Any, tree: dict[str, Any]) -> None:
        """Take over what `whole` gave."""


class ShardRows(Protocol):
    """The rows of a shard, and how to work on them: a small value, the same in every round."""

    @property
    def number(self) -> int: ...

    def new_state(self) -> Any:
        """The state before the first round, in arrays of its own."""

    def told(self, tree: dict[str, Any]) -> Told:
        """The message that `Told.tree` saved."""


class Shard(NamedTuple):
    """A shard as an argument of a task.

    rows : ShardRows
    state : the caller's state, if tasks run in its process; else None
    home : folder that all processes see, with saved states and the log of rounds; '' if tasks run in this process
    """

    rows: ShardRows
    state: ShardState | None
    home: str


def new_home(workdir: Path) -> str:
    """Make a folder for the shards of a fit, after deleting those of callers that were killed.

    The name of a folder identifies its process, so folders of living callers, and of other machines, are not deleted.

    Raises OutputError if `workdir` cannot be written.
    """
    remove_dead(workdir, _HOME)
    home = temporary_name(workdir / _HOME)
    try:
        home.mkdir(parents=True)
    except OSError as error:
        raise cannot_write(workdir, error) from error
    return str(home)


def round_task(shard: Shard, told: tuple[Told, np.ndarray]) -> ShardSum:
    """Task: one round of a shard.

    Raises PassLeft if the caller has left the round, which must be one that gives the same result when it is repeated.
    """
    this, W = told
    return _answer_of(shard, this.number, lambda state: state.work(shard.rows, this, W))


def ask_task(shard: Shard, told: tuple[int, Any, Any]) -> ShardSum:
    """Task: the answer of a shard to a question, after so many rounds.  told : (rounds, question, w)

    Raises PassLeft if the caller has left the question.
    """
    rounds, question, w = told
    return _answer_of(shard, rounds, lambda state: state.answer(shard.rows, question, w))


def save_task(shard: Shard, told: tuple[int, Any]) -> ShardSum:
    """Task: settle the last of so many rounds, and save the shard.  told : (rounds, ending).  Returns its number.

    Raises OutputError if the scratch folder cannot hold the save.
    """
    rounds, ending = told
    state = _taken(shard, rounds)
    state.settle(ending)
    write_home(shard.home, shard.rows.number, state.whole())
    _give_back(shard, state)
    return ShardSum((shard.rows.number,))


def save_left_task(shard: Shard, rounds: int) -> ShardSum:
    """Task: save a shard after so many rounds, where the next round was left.  Returns its number.

    Some shards have done that round, and others have not or in part.  It is repeated to the same result from either
    state, so no shard has to be made anew.

    Raises OutputError if the scratch folder cannot hold the save.
    """
    state = _taken(shard, rounds, left=True)
    write_home(shard.home, shard.rows.number, {**state.whole(), "rounds": rounds})
    _give_back(shard, state)
    return ShardSum((shard.rows.number,))


def forget_task(shard: Shard, told: None) -> ShardSum:
    """Task: drop the cached states of a fit that is over, and of all fits whose folders are gone."""
    with _TAKING:
        for home, number in list(_HELD):
            if home == shard.home or not Path(home).is_dir():
                del _HELD[home, number]
    return ShardSum((0,))


def saved_tree(home: str, number: int, rounds: int, names: Collection[str] = ()) -> Any:
    """The state of shard `number` that `save_task` saved, or only the parts with these names; arrays are maps.

    Raises DataError if the save is damaged.
    """
    return read_tree(_saved(home, number, rounds), names)


def write_home(home: str, number: int, tree: Any) -> None:
    """Save the state of a shard, whole or not at all, and delete all but its last `_KEPT` saves."""
    target = _saved(home, number, int(tree["rounds"]))
    _write_whole(target, tree)
    for old in _numbers(home, number)[:-_KEPT]:
        shutil.rmtree(_saved(home, number, old), ignore_errors=True)


def log_round(home: str, this: Told, W: np.ndarray) -> None:
    """Log the message and weights of a round, for shards that must be rebuilt."""
    _write_whole(_logged(home, this.number), {"round": this.tree(), "w": W})


def drop_log(home: str, before: int) -> None:
    """Delete the log of rounds before `before`, which every shard has saved."""
    for path in Path(home).glob("round-*"):
        if int(path.name.removeprefix("round-")) < before:
            shutil.rmtree(path, ignore_errors=True)


def _answer_of(shard: Shard, rounds: int, work: Callable[[ShardState], ShardSum]) -> ShardSum:
    """What `work` gives with the state after so many rounds, which is kept if the work is done or was left."""
    state = _taken(shard, rounds)
    try:
        found = work(state)
    except PassLeft:
        _give_back(shard, state)
        raise
    _give_back(shard, state)
    return found


def _taken(shard: Shard, rounds: int, left: bool = False) -> ShardState:
    """Take the state after `rounds` rounds out of the cache, or rebuild it; `_give_back` returns it.

    left : the next round was left, and a state after that round will do
    """
    if shard.state is not None:
        return shard.state
    with _TAKING:
        held = _HELD.pop((shard.home, shard.rows.number), None)
    if held is not None and held.rounds in (rounds, rounds + left):
        return held
    return _made_anew(shard, rounds)


def _give_back(shard: Shard, state: ShardState) -> None:
    if shard.state is None:
        with _TAKING:
            _HELD[shard.home, shard.rows.number] = state


def _made_anew(shard: Shard, rounds: int) -> ShardState:
    """The state after `rounds` rounds, from the last save and the log of the rounds since.

    Raises ReadFailed if that save is damaged: the rounds before it are not in the log any more.
    """
    rows, home = shard.rows, shard.home
    note("made_anew")
    state: ShardState = rows.new_state()
    damaged = ""
    for saved in reversed([number for number in _numbers(home, rows.number) if number <= rounds]):
        try:
            tree = saved_tree(home, rows.number, saved)
        except DataError as error:  # the save before will do, if the rounds since then are still in the log
            damaged = damaged or f": {error}"
            continue
        state.restore(rows, tree)
        break
    while state.rounds < rounds:
        if not _logged(home, state.rounds).is_dir():
            what = f"the state of shard {rows.number} after round {rounds} is lost, and cannot be rebuilt{damaged}"
            hint = "`bigsvm resume RUN` goes on from the newest checkpoint; check the disk of the scratch folder"
            raise ReadFailed(what, home, hint)
        logged = read_tree(_logged(home, state.rounds))
        state.work(rows, rows.told(logged["round"]), np.array(logged["w"]))
        note("replayed")
    return state


def _saved(home: str, number: int, rounds: int) -> Path:
    return Path(home) / f"{number:05d}-{rounds:08d}"


def _logged(home: str, number: int) -> Path:
    return Path(home) / f"round-{number:08d}"


def _numbers(home: str, number: int) -> list[int]:
    """The rounds after which shard `number` was saved, ascending."""
    return sorted(
        int(path.name.split("-")[1]) for path in Path(home).glob(f"{number:05d}-*") if path.name[-8:].isdigit()
    )


def _write_whole(target: Path, tree: Any) -> None:
    """Write a tree into a new folder, whole or not at all.

    Two processes may write the same folder at one time: the first to finish wins, and both write the same content.

    Raises OutputError, naming the scratch folder: that of the shards in it is known to no user.
    """
    if target.exists():
        return
    aside = target.with_name(f".{target.name}-{uuid.uuid4().hex[:8]}")
    try:
        aside.mkdir(parents=True)
        write_tree(aside, tree)
        os.rename(aside, target)
    except OSError as error:
        refused = cannot_write(target.parent.parent, error, tree_bytes(tree))  # the space that was free for it
        shutil.rmtree(aside, ignore_errors=True)
        if not target.exists():
            raise refused from error
