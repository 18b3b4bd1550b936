"""The file `calibration.json` of a model (the document is described in `calibration.py`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bigsvm.errors import DataError
from bigsvm.files.atomic import bytes_digest, file_digest, read_bytes
from bigsvm.files.paths import not_permitted
from bigsvm.model.probability.calibration import fault_of

FILE = "calibration.json"


def write_calibration(folder: Path, calibration: Mapping[str, Any]) -> str:
    """Write `calibration.json`; returns its digest."""
    text = json.dumps(calibration, indent=1, sort_keys=True, allow_nan=False)
    (folder / FILE).write_bytes(text.encode() + b"\n")
    return file_digest(folder / FILE)


def read_calibration(folder: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    """What `write_calibration` wrote; empty where a model has none.

    Raises DataError where it is damaged, MissingInput where it may not be read.

    document : model.json, with its `digests` and `classes`
    """
    digests = document.get("digests")
    if not isinstance(digests, dict) or FILE not in digests:
        return {}
    where, hint = str(folder / FILE), "restore it, or train again"
    try:
        content = read_bytes(folder / FILE)
        if bytes_digest(content) != digests[FILE]:
            raise DataError("damaged: its digest does not match model.json", where, hint)
        found = json.loads(content)
    except PermissionError as error:
        raise not_permitted(where, error) from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot be read: {error}", where, hint) from error
    classes = document.get("classes")
    fault = fault_of(found, len(classes) if isinstance(classes, list) else 0)
    if fault:
        raise DataError(f"not a valid calibration: {fault}", where, hint)
    return found
