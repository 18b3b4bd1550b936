"""Labels under other names (`--label-map`), and one of them against all others (`--positive`).  Nothing of bigsvm.

The map goes by the labels' texts; what it does not name keeps its own.  Labels are whole numbers where all that come
out are, else text.  Of a positive class the labels are False and True.
"""

from __future__ import annotations

import numpy as np


def renamed(labels: np.ndarray, names: dict[str, str] | None, positive: str | None) -> np.ndarray:
    """The labels that take part, shape (n,)."""
    if names:
        texts = [names.get(_text(label), _text(label)) for label in labels.tolist()]
        whole = all(text.lstrip("-").isdigit() for text in texts)
        labels = np.array([int(text) for text in texts]) if whole else np.array(texts)
    if positive is None:
        return labels
    return np.array([_text(label) == positive for label in labels.tolist()])


def draw_names(labels: np.ndarray, rng: np.random.Generator) -> tuple[dict[str, str] | None, str | None]:
    """(label_map, positive), one of them or both; (None, None) for labels that no flag can name."""
    texts = sorted({_text(label) for label in labels.tolist() if "," not in _text(label)})
    if labels.dtype.kind not in "iubU" or len(texts) < 2 or max(len(text) for text in texts) > 15:
        return None, None
    names: dict[str, str] | None = None
    kind = str(rng.choice(["map", "positive", "both"]))
    if kind != "positive":
        some = [text for text in texts if rng.random() < 0.6] or texts[:1]
        to = [*texts, "7", "9", "fir", "oak tree"]
        names = {text: str(rng.choice(to)) for text in some}
    if kind == "map":
        return names, None
    left = sorted({_text(label) for label in renamed(labels, names, None).tolist()})
    return names, str(rng.choice([text for text in left if "," not in text]))


def _text(label: object) -> str:
    return str(label).lower() if isinstance(label, bool) else str(label)
