"""One writer at a time: adding rows, sealing and replacing a store exclude each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bigsvm.files.atomic import check_replaceable, new_directory, remove_dead
from bigsvm.files.locks import alone
from bigsvm.files.paths import no_such_store
from bigsvm.files.space import cannot_write
from bigsvm.files.undisturbed import it_is_done
from bigsvm.store.sealing.former import finish_pending

LOCK = "bigsvm-append.lock"
_WHAT = "the store"


@contextmanager
def changing(root: Path) -> Iterator[None]:
    """Alone with a store, whose last writer's work is done.  Raises MissingInput, OutputError naming who has it."""
    if not root.is_dir():
        raise no_such_store(str(root))
    with alone(root / LOCK, _WHAT):
        try:
            finish_pending(root)
        except OSError as error:
            raise cannot_write(root, error) from error
        final = root.resolve()
        remove_dead(final.parent, final.name)
        yield


@contextmanager
def new_store(root: Path, overwrite: bool, marks: Sequence[str]) -> Iterator[Path]:
    """A temporary folder that becomes the store at `root`, as `new_directory` has it.

    The store that it replaces is held from the beginning to the end: who added rows to it meanwhile would lose them.
    One that came to lie there only meanwhile is held from then on.

    Raises OutputError : as `new_directory`; or somebody else writes into the store that is there.
    """
    check_replaceable(root, overwrite, marks, "store")

    def is_store() -> bool:
        return overwrite and any((root / mark).exists() for mark in marks)

    with ExitStack() as held:
        was_there = is_store()
        if was_there:
            held.enter_context(alone(root / LOCK, _WHAT))
        with new_directory(root, overwrite, marks, "store") as made:
            yield made
            if is_store() and not was_there:
                held.enter_context(alone(root / LOCK, _WHAT))
    it_is_done(root)
