"""How much memory a search took: that of its parts, which run one after another in a process that goes on growing.

The base of a search is interpreter, libraries and compiled code, as that of a fit.  But a later part may load code that
the earlier ones did not need, and that code is not memory of the search: it counts as part of the base, as if it had
been there from the beginning.  Models of earlier parts stay, and do count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Part(NamedTuple):
    """The memory of one fit, or of scoring.

    memory : as in a result
    loaded_bytes : of libraries and compiled code that were loaded for it, before its base was measured
    here : it ran in this process, and not in one whose search this one continues
    """

    memory: dict[str, int]
    loaded_bytes: int
    here: bool

    @classmethod
    def of(cls, memory: Mapping[str, Any], here: bool) -> Part:
        """From the memory of a fit that was kept, which by an earlier version has no `loaded_bytes`."""
        own = dict(memory)
        loaded = own.pop("loaded_bytes", 0)
        return cls(own, loaded, here)


def together(parts: Sequence[Part]) -> dict[str, int]:
    """The `memory` of a result for all parts of a search, in the order in which they ran."""
    here = [part for part in parts if part.here]
    base = here[0].memory["base_bytes"] if here else min(part.memory["base_bytes"] for part in parts)
    to_come = sum(part.loaded_bytes for part in here[1:])
    base += to_come
    peaks = [base + part.memory["peak_anon_bytes"] - part.memory["base_bytes"] for part in parts if not part.here]
    for place, part in enumerate(here):
        to_come -= part.loaded_bytes if place else 0
        peaks.append(part.memory["peak_anon_bytes"] + to_come)
    return {
        # Fits have the budget less what is kept beside them.
        "budget_bytes": max(part.memory["budget_bytes"] for part in parts),
        "base_bytes": base,
        "peak_anon_bytes": max(peaks),
        "peak_rss_bytes": max(part.memory["peak_rss_bytes"] for part in parts),
    }
