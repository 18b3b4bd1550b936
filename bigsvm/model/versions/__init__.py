"""A registry: numbered versions of a model on disk, one of which is current.

    REGISTRY/versions/000001/   a copied model directory, never changed again
    REGISTRY/current            relative symlink to one of them, swapped by one rename
    REGISTRY/history.jsonl      one line for each change: who, when, what, from which version
    REGISTRY/.pending.json      the history line of a change that is in progress
    REGISTRY/.lock              held (flock) by the process that changes the registry

The link decides which version is current.  A reader calls `current(registry)` once and loads the folder that it names.
Versions are never moved or changed, so the reader sees one complete model, whatever happens meanwhile.  After a crash
the link names either the old or the new version; the next change removes leftovers, and adds a missing line to the
history.
"""

from bigsvm.model.versions.changes import CurrentMoved, promote, prune, rollback, settle
from bigsvm.model.versions.history_file import history
from bigsvm.model.versions.layout import CURRENT, LOCK, VERSIONS, is_there
from bigsvm.model.versions.reading import current, current_version

__all__ = [
    "CURRENT",
    "LOCK",
    "VERSIONS",
    "CurrentMoved",
    "current",
    "current_version",
    "history",
    "is_there",
    "promote",
    "prune",
    "rollback",
    "settle",
]
