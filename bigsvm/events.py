"""What a run says while it goes on: frozen dataclasses, each field with its unit.

Producers pass events to an `Emit` and never format text; the record file, the progress bar and the plots
are consumers of the same stream.  Watching a run does not change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from bigsvm.errors import in_words


@dataclass(frozen=True)
class Event:
    """Base of all events."""


@dataclass(frozen=True)
class FitStarted(Event):
    """The first event of a run: all that is needed to repeat it."""

    plan: dict[str, Any]
    config: dict[str, Any]
    store_fingerprint: str
    versions: dict[str, str]


COMPILING = "compiling"
"""Work of unknown length: functions are compiled, or loaded where they were compiled before."""

WAITING = "waiting for "
"""Work that another process does, and this one waits for, has a name that begins so and says which process it is."""


@dataclass(frozen=True)
class WorkStarted(Event):
    """A piece of work of known length begins (ingest, staging, a pass, prediction)."""

    what: str
    total: float
    unit: str  # "bytes", "rows" or "blocks"


@dataclass(frozen=True)
class CompileStarted(Event):
    """Functions that no cache has are compiled, once; the work is COMPILING, and advances by functions."""

    folder: str  # where they are kept
    why: str  # why those that came with the installation are of no use; empty where it has none, or not these


@dataclass(frozen=True)
class WorkAdvanced(Event):
    """The work named has come `done` units far, of its `total`."""

    what: str
    done: float


@dataclass(frozen=True)
class WorkEnded(Event):
    """The work named is done."""

    what: str
    seconds: float


@dataclass(frozen=True)
class EpochEnd(Event):
    """A solver's step has ended."""

    epochs: float  # row visits / n_samples since the start
    passes: float  # bytes read / data bytes since the start
    active_rows: int
    gap_estimate: float  # relative, from stale margins; never a proof
    wall_s: float


@dataclass(frozen=True)
class CertificateMade(Event):
    """The duality gap was computed, apart from the solver."""

    epochs: float
    passes: float
    objective: float  # P(w), summed over the models
    dual_objective: float
    relative_gap: float  # the largest over the models
    wall_s: float


@dataclass(frozen=True)
class TrafficCounted(Event):
    """What moved between the processes of a cluster since the last of these: a pass, with its proof if it had one."""

    passes: float  # as EpochEnd
    rounds: int  # sums over all shards
    published_bytes: int  # that the client sent to all workers
    gathered_bytes: int  # sums that came to the client
    task_bytes: int  # tasks on shards, as they were sent
    row_bytes: int  # shares and results of tasks over blocks of rows
    workers: int  # that had a part
    worker_bytes: int  # published values and sums of others that came to one worker, the largest
    worker_bytes_sum: int  # to all workers
    work_s: float  # of the slowest worker of each round
    sum_s: float  # of the rounds beside it: waits, sums and messages
    shards_made: int  # shards whose state a worker had to make: at the start, and where another was lost
    rounds_replayed: int  # that it repeated for that


@dataclass(frozen=True)
class CheckpointSaved(Event):
    """The state of the run is on disk."""

    folder: str
    seconds: float  # spent on all checkpoints so far


@dataclass(frozen=True)
class BudgetReport(Event):
    """Who holds how many bytes of the memory budget."""

    limit_bytes: int
    holders: list[tuple[str, int]]


@dataclass(frozen=True)
class Warned(Event):
    """Something the user should know; also listed in the result."""

    message: str


@dataclass(frozen=True)
class FitEnded(Event):
    """The last event of a run."""

    status: str
    result: dict[str, Any] = field(default_factory=dict)


Emit = Callable[[Event], None]


def silent(event: Event) -> None:
    """An Emit that does nothing."""


_ALL, _AN_OCTAVE = 128, 32  # the first events of a kind; of those that follow, each time their number doubles
_REPEATED = (EpochEnd, CertificateMade, TrafficCounted, CheckpointSaved)


class Thinned:
    """An Emit that passes on some hundreds of the events that come again and again, however many there are.

    Of each such kind the first ones are passed on, then ever fewer by their number, so that what is left is as dense at
    the beginning as a run of any length needs.  The last one of each kind is passed on before FitEnded, or by `flush`.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._seen: dict[type[Event], int] = {}
        self._held: dict[type[Event], Event] = {}

    def __call__(self, event: Event) -> None:
        kind = type(event)
        if kind in _REPEATED:
            self._held.pop(kind, None)
            self._seen[kind] = number = self._seen.get(kind, 0) + 1
            octave = (number // _ALL).bit_length()
            if octave and number % ((_ALL << (octave - 1)) // _AN_OCTAVE):
                self._held[kind] = event
                return
        elif isinstance(event, FitEnded):
            self.flush()
        self._emit(event)

    def flush(self) -> None:
        """Pass on the last events that were held back, in the order in which they came."""
        held, self._held = self._held, {}
        for event in held.values():
            self._emit(event)


def fan_out(consumers: Iterable[Emit]) -> Emit:
    """One Emit that passes each event on to all `consumers`, in order.

    A consumer that raises is dropped after a Warned event to the others: watching never ends a fit.
    """
    alive = list(consumers)

    def emit(event: Event) -> None:
        for consumer in tuple(alive):
            try:
                consumer(event)
            except Exception as error:  # a full disk under the record file, a closed terminal
                alive.remove(consumer)
                emit(Warned(f"an observer failed and was dropped: {in_words(error, kind=True)}"))

    return emit
