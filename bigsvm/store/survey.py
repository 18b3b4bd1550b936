"""What the first reading of all rows teaches: content fingerprint, entries, class counts.

Surveys of different blocks add up in any order, so a survey rides on whatever reads everything first:
staging, loading into memory, or a pass of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bigsvm.compiled.shared.rows import CSR
from bigsvm.store.blocks import Block, RowBlocks
from bigsvm.store.content import ContentHash
from bigsvm.store.labels import label_bits


@dataclass
class Survey:
    """Sums over the rows seen so far.

    content : int        sum mod 2^128 of the rows' hashes (`compiled/shared/fingerprint.py`)
    nnz : int            stored entries
    data_bytes : int     decoded bytes of X, y and weights
    counts : dict        rows of each class code that take part (weight > 0); of targets, which have no classes, under 0
    """

    content: int = 0
    nnz: int = 0
    data_bytes: int = 0
    counts: dict[int, int] = field(default_factory=dict)

    def add(self, block: Block, classes: np.ndarray | None) -> None:
        """Add a block whose rows are in store order."""
        bits = label_bits(block.y) if classes is None else label_bits(classes)[block.y]
        digest = ContentHash()
        digest.add_bits(block.X, bits, block.sample_weight, block.start)
        self.content = (self.content + digest.total) % (1 << 128)
        self.nnz += len(block.X.data) if isinstance(block.X, CSR) else block.X.size
        self.data_bytes += block.nbytes
        codes = np.zeros(block.n_rows, np.int8) if classes is None else block.y
        taking_part = codes if block.sample_weight is None else codes[block.sample_weight > 0]
        for code, count in enumerate(np.bincount(taking_part, minlength=1 if classes is None else len(classes))):
            self.counts[code] = self.counts.get(code, 0) + int(count)

    def merge(self, other: Survey) -> None:
        """Add another survey's rows."""
        self.content = (self.content + other.content) % (1 << 128)
        self.nnz += other.nnz
        self.data_bytes += other.data_bytes
        for code, count in other.counts.items():
            self.counts[code] = self.counts.get(code, 0) + count

    def class_counts(self, store: RowBlocks) -> np.ndarray:
        """Rows of each class, int64."""
        n_classes = 0 if store.classes is None else len(store.classes)
        return np.array([self.counts.get(code, 0) for code in range(n_classes)], np.int64)

    @property
    def content_fingerprint(self) -> str:
        return f"{self.content:032x}"

    def document(self) -> dict[str, Any]:
        """As JSON; `Survey.of` reads it back."""
        return {
            "content": self.content_fingerprint,
            "nnz": self.nnz,
            "data_bytes": self.data_bytes,
            "counts": {str(code): count for code, count in sorted(self.counts.items())},
        }

    @classmethod
    def of(cls, document: dict[str, Any]) -> Survey:
        """A survey from `document()`."""
        return cls(
            int(document["content"], 16),
            int(document["nnz"]),
            int(document["data_bytes"]),
            {int(code): int(count) for code, count in document["counts"].items()},
        )
