"""Checkpoints of a run: written aside, swapped in, the last two kept.

    RUN/checkpoint/00000012/    state.json and arrays (`store/state/state_files.py`), the newest whole one counts

A checkpoint records its store, plan and problem.  A run with others refuses it.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any

from bigsvm.errors import DataError
from bigsvm.files.atomic import new_directory, remove_dead
from bigsvm.store.identity import first_difference
from bigsvm.store.state.state_files import read_tree, tree_bytes, write_tree

KEPT = 2
_SPACING = 20.0  # seconds between checkpoints are at least this many times the seconds that one takes
_AFTER_PROOF_S = 1.0  # seconds after which a newly proved point is saved, whatever `every_s` is
_NUMBERED = re.compile("[0-9]{8,}")  # not \d, which matches the digits of every script


class Checkpoints:
    """The checkpoints of one run, in `folder`.

    identity : what must be the same when the run is resumed: fingerprints and all options that change the result
    every_s : seconds between two checkpoints
    goes_on : how to resume the run, in words; the hint of an interrupted run
    """

    def __init__(
        self, folder: Path, identity: dict[str, Any], every_s: float, goes_on: str = "the same command goes on"
    ) -> None:
        self.folder, self.identity, self.every_s, self.goes_on = folder, identity, every_s, goes_on
        self._last = time.monotonic()
        self._proved = False
        self.seconds = 0.0
        self.written = 0
        self.damaged: list[str] = []

    def due(self) -> bool:
        """Whether a checkpoint is due.  Nothing that the run computes depends on this.

        One is due after `every_s`, or a second after a new proof; but never so soon that checkpoints take more than 5 %
        of the run.
        """
        wait = min(self.every_s, _AFTER_PROOF_S) if self._proved else self.every_s
        return time.monotonic() - self._last >= max(wait, _SPACING * self.seconds / max(self.written, 1))

    def proved(self) -> None:
        """Note that there is a new certificate, so that its point is saved soon."""
        self._proved = True

    def save(self, tree: dict[str, Any]) -> None:
        """Write a checkpoint, then delete the oldest.  Raises OutputError; the earlier checkpoints then stay."""
        began = time.monotonic()
        found = self._numbers()
        number = found[-1] + 1 if found else 1
        remove_dead(self.folder)
        final, nbytes = self.folder / f"{number:08d}", tree_bytes(tree)
        with new_directory(final, marks=("state.json",), kind="checkpoint", nbytes=nbytes) as folder:
            write_tree(folder, {"identity": self.identity, "state": tree})
        for old in found[: 1 - KEPT]:
            shutil.rmtree(self.folder / f"{old:08d}", ignore_errors=True)
        self._last = time.monotonic()
        self._proved = False
        self.seconds += self._last - began
        self.written += 1

    def newest(self) -> dict[str, Any] | None:
        """The state in the newest intact checkpoint; None if there is none.  Damaged ones are listed in `damaged`.

        Raises DataError if another run wrote it; the message names what differs.
        """
        for number in reversed(self._numbers()):
            try:
                found = read_tree(self.folder / f"{number:08d}")
                identity, state = found["identity"], found["state"]
            except (DataError, KeyError, TypeError) as error:
                self.damaged.append(str(error))
                continue
            other = first_difference(identity, self.identity)
            if other:
                hint = "start again: bigsvm fit ... --overwrite"
                raise DataError(f"the checkpoint is of another run: {other}", str(self.folder), hint)
            return state
        return None

    def rows(self) -> dict[str, Any] | None:
        """The identity of the rows in the newest intact checkpoint, as JSON; reads no arrays.  None without one."""
        found = self._newest_identity()
        return None if found is None else found["data"]

    def solver_of_auto(self, versions: dict[str, str]) -> str | None:
        """The solver that 'auto' chose when the fit of the newest intact checkpoint began; None if it chose none.

        Also None if the programs that computed had other versions, because such a fit is not continued.
        """
        found = self._newest_identity()
        try:
            if found is None or found["options"]["solver"] != "auto" or found["versions"] != versions:
                return None
            return str(found["plan"]["solver"])
        except (KeyError, TypeError):
            return None

    def clear(self) -> None:
        """Delete all checkpoints, since the run is over."""
        for _ in range(2):  # a file that could not be deleted may go at the second try
            shutil.rmtree(self.folder, ignore_errors=True)

    def _newest_identity(self) -> dict[str, Any] | None:
        """The identity in the newest intact checkpoint; reads no arrays.  None without one."""
        for number in reversed(self._numbers()):
            try:
                found: dict[str, Any] = read_tree(self.folder / f"{number:08d}", ["identity"])["identity"]
                found["data"]
            except (DataError, KeyError, TypeError):
                continue
            return found
        return None

    def _numbers(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        return sorted(int(path.name) for path in self.folder.iterdir() if _NUMBERED.fullmatch(path.name))
