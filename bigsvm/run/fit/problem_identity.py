"""What checkpoints, the record of a run and the versions of a registry belong to: rows, and what was asked of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bigsvm.config import MODEL_OPTIONS, RESULT_OPTIONS, FitConfig
from bigsvm.run.start.earlier import model_digest
from bigsvm.store.identity import Identity, digest_of


@dataclass(frozen=True)
class ProblemIdentity:
    """Rows and every option that changes what a model of them says, with what followed from both.

    data : whose rows, and what was selected
    content : the content fingerprint of exactly those rows, 32 hex digits
    options : value of each of RESULT_OPTIONS
    plan : the values that the plan resolved and that decide the mathematics
    versions : of the programs that computed
    """

    data: Identity
    content: str
    options: dict[str, Any]
    plan: dict[str, Any]
    versions: dict[str, str]

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "data": self.data.document(),
            "options": self.options,
            "content": self.content,
            "plan": self.plan,
            "versions": self.versions,
        }


def result_options(config: FitConfig) -> dict[str, Any]:
    """The value of each option that changes what a model says."""
    return _values(config, RESULT_OPTIONS)


def asked_digest(data: Identity, config: FitConfig) -> str:
    """32 hex digits of rows and options, before anything is read: the same where the same model would come out."""
    return digest_of({"data": data.document(), "options": _values(config, MODEL_OPTIONS)})


def _values(config: FitConfig, names: tuple[str, ...]) -> dict[str, Any]:
    """Options by name; the model that a fit starts from counts by what it is, not by where it lies."""
    values = {name: getattr(config, name) for name in names}
    if config.warm_start is not None:
        values["warm_start"] = model_digest(config.warm_start)
    return values
