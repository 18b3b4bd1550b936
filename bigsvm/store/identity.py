"""What derived things were derived from: one value, made by whoever opens rows, compared whenever they are used.

A store holds several columns that may serve as labels or weights, and numbers that may be classes or targets.  So the
digest of its bytes alone does not say which rows a fit saw: the selection belongs to it.  Everything that is derived
from rows (working copies, copies of columns, checkpoints, runs, models, versions of a registry) names its identity,
and a key is made from an identity, never from attributes that a store may lack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bigsvm.errors import DataError
from bigsvm.files.sealed_json import json_digest
from bigsvm.units import counted, shortened

_LONG = 200  # characters of two lists beyond which a message names what differs in them


@dataclass(frozen=True)
class Identity:
    """Rows as one fit sees them.

    store : the store fingerprint, 32 hex digits: of the bytes that the rows are read from
    selection : what was chosen of them, as sorted (name, value) pairs; each store names all that it lets choose
    """

    store: str
    selection: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, store: str, **selection: str) -> Identity:
        """Of a store fingerprint and what was selected.

        matrix, label, weight : the full names of what is read, '' for what is not there; task; further choices of a
        store's own.  Names are resolved, so that a default and the same choice spelled out are one identity.
        """
        return cls(store, tuple(sorted(selection.items())))

    @property
    def digest(self) -> str:
        """32 hex digits."""
        return digest_of(self.document())

    def document(self) -> dict[str, Any]:
        """As JSON; `Identity.of_document` reads it back."""
        return {"store": self.store, **dict(self.selection)}

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> Identity:
        """From `document()`.  Raises KeyError, TypeError for what is none."""
        selection = {name: value for name, value in document.items() if name != "store"}
        return cls.of(document["store"], **selection)

    def check(self, found: Identity, what: str, where: str, hint: str = "") -> None:
        """Refuse something that was derived from other rows.

        what : the thing in a few words, for the message;  found : what it says it was derived from

        Raises DataError naming the first difference.
        """
        other = first_difference(found.document(), self.document())
        if other:
            raise DataError(f"{what} belongs to other rows: {other}", where, hint)


def digest_of(document: Any) -> str:
    """32 hex digits of a JSON document, whatever the order of its names."""
    return json_digest(document)


def first_difference(was: Any, now: Any, name: str = "it") -> str:
    """What differs first between two trees of dictionaries, '' where nothing does."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in [*now, *(key for key in was if key not in now)]:
            found = first_difference(was.get(key), now.get(key), str(key))
            if found:
                return found
        return ""
    if was == now:
        return ""
    if isinstance(was, list) and isinstance(now, list) and len(repr(was)) + len(repr(now)) > _LONG:
        if len(was) != len(now):
            return f"{name} had {counted(len(was), 'entry', 'entries')} and has {len(now)}"
        return next(filter(None, (first_difference(*both, name) for both in zip(was, now, strict=True))))
    return f"{name} was {shortened(repr(was))} and is {shortened(repr(now))}"
