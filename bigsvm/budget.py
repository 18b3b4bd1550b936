"""One memory budget for everything that grows with the data, asked for by name.

The budget is what bigsvm may hold ON TOP of the base (interpreter, libraries, compiled kernels).
Only what grows with the data registers; the small rest is a stated reserve in the plan.
"""

from __future__ import annotations

import threading
from types import TracebackType

from bigsvm.errors import BudgetExceeded
from bigsvm.units import MIB, show_bytes


class Reservation:
    """Bytes held from a budget until released; a context manager."""

    def __init__(self, budget: MemoryBudget, what: str, nbytes: int) -> None:
        self._budget, self.what, self.nbytes = budget, what, nbytes

    def release(self) -> None:
        """Give the bytes back; harmless when done twice."""
        self._budget._forget(self)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class MemoryBudget:
    """`limit` bytes, handed out by name.

    Parameters
    ----------
    limit : int   bytes that may be reserved at one time
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held: list[Reservation] = []
        self._lock = threading.Lock()

    @property
    def free(self) -> int:
        """Bytes not reserved."""
        return self.limit - sum(held.nbytes for held in self._held)

    def try_reserve(self, what: str, nbytes: int) -> Reservation | None:
        """A reservation, or None where the bytes are not free: for those who can spill."""
        with self._lock:
            if nbytes > self.free:
                return None
            reservation = Reservation(self, what, nbytes)
            self._held.append(reservation)
            return reservation

    def reserve(self, what: str, nbytes: int) -> Reservation:
        """A reservation.

        Raises
        ------
        BudgetExceeded : names what asked, what is free and who holds the rest.
        """
        reservation = self.try_reserve(what, nbytes)
        if reservation is None:
            least = self.limit - self.free + nbytes
            held = ", ".join(f"{name} {show_bytes(size)}" for name, size in self.report()) or "nothing"
            raise BudgetExceeded(
                f"{what} needs {show_bytes(nbytes)}, {show_bytes(self.free)} free of "
                f"{show_bytes(self.limit)}; held: {held}",
                hint=f"use --memory {-(-least // MIB)}MiB or more",
                min_memory_bytes=least,
            )
        return reservation

    def report(self) -> list[tuple[str, int]]:
        """(what, bytes) of every holder, largest first."""
        return sorted(((h.what, h.nbytes) for h in self._held), key=lambda item: -item[1])

    def _forget(self, reservation: Reservation) -> None:
        with self._lock:
            if reservation in self._held:
                self._held.remove(reservation)
