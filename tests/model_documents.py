"""Models changed by somebody who knows the format: other words or arrays, with every digest made again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bigsvm.files.atomic import file_digest
from bigsvm.model.model_files import document_text


def rewrite(folder: Path, **values: Any) -> None:
    """Change entries of model.json."""
    write(folder, {**read(folder), **values})


def renew(folder: Path, name: str) -> None:
    """Make the digest of a file what it should be."""
    document = read(folder)
    document["digests"][name] = file_digest(folder / name)
    write(folder, document)


def read(folder: Path) -> dict[str, Any]:
    """model.json as it stands."""
    return json.loads((folder / "model.json").read_text())


def write(folder: Path, document: dict[str, Any]) -> None:
    """A model.json that says so, and the digest of that."""
    (folder / "model.json").write_text(document_text(document))
