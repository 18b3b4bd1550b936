"""The events of a run: frozen dataclasses, each field with its unit.

Producers pass events to an `Emit`, and never format text.  The record file, the progress bar and the plots are
consumers of the same stream.  Watching a run does not change it.
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
"""Name of the work of compiling functions, or loading compiled ones; its length is not known."""

WAITING = "waiting for "
"""Beginning of the name of work that this process waits for; the rest says which process does it."""


@dataclass(frozen=True)
class WorkStarted(Event):
    """A piece of work of known length begins (ingest, staging, a pass, prediction)."""

    what: str
    total: float
    unit: str  # "bytes", "rows" or "blocks"


@dataclass(frozen=True)
class CompileStarted(Event):
    """Functions that are in no cache begin to be compiled.  WorkAdvanced of COMPILING counts them."""

    folder: str  # of the cache that they are written to
    why: str  # why compiled code of the installation cannot be used; empty if it has none, or none of these


@dataclass(frozen=True)
class WorkAdvanced(Event):
    """`done` units, of the `total` of WorkStarted, are finished."""

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
    objective: float | None = None  # P(w), summed over the models, where the solver knows it


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
    """What moved between the processes of a cluster since the last such event: in one pass, and its proof if any."""

    passes: float  # as EpochEnd
    rounds: int  # sums over all shards
    published_bytes: int  # values that the client sent to all workers
    gathered_bytes: int  # sums that the client received
    task_bytes: int  # tasks on shards, as the client sent them
    row_bytes: int  # shares and results of tasks over blocks of rows
    workers: int  # workers that received something
    worker_bytes: int  # published values and results of others that one worker received, the largest
    worker_bytes_sum: int  # the sum over all workers
    work_s: float  # seconds of the slowest worker of each round
    sum_s: float  # the other seconds of the rounds: waits, sums and messages
    shards_made: int  # shards whose state a worker had to build: at the start, or after another worker was lost
    rounds_replayed: int  # rounds that were repeated for that


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


_ALL, _AN_OCTAVE = 128, 32  # the first 128 events of a kind are passed on, then 32 whenever their number doubles
_REPEATED = (EpochEnd, CertificateMade, TrafficCounted, CheckpointSaved)


class Thinned:
    """An Emit that passes on only some hundreds of the repeated events, however long the run is.

    Of each kind the first ones are passed on, then ever fewer, so that the curve of a run of any length is dense enough
    at its beginning.  The last event of each kind is passed on before FitEnded, or by `flush`.
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
        """Pass on the last event of each kind, if it was held back, in the order in which they came."""
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
