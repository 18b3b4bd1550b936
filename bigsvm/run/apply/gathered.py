"""Predictions collected into pieces, for file formats that are written in tables."""

from __future__ import annotations

import numpy as np

_GATHER_BYTES = 1 << 20
_PIECE_COPIES = 4  # copies of a piece: as collected, as an Arrow table or array, and encoded


def gathered_bytes(n_models: int) -> int:
    """Bytes that a writer holds for rows with this number of scores, in addition to the block that it gets."""
    return _PIECE_COPIES * max(_GATHER_BYTES, _row_bytes(n_models, True, True))


def _row_bytes(n_models: int, with_scores: bool, several: bool) -> int:
    """Bytes of a row in a piece: its scores (a regression always has one), and its label, or an indicator of labels."""
    return 8 * (n_models if with_scores else 1) + 8 * (n_models if several else 1)


class Gathered:
    """Collects small blocks into pieces of exactly `piece_rows` rows, so that the output is not fragmented.

    Each block is copied into the piece at once, because blocks with thousands of scores for each row are large.
    """

    def __init__(self, n_models: int, with_scores: bool, several: bool = False) -> None:
        self.piece_rows = max(1, _GATHER_BYTES // _row_bytes(n_models, with_scores, several))
        self._n_scores = n_models if with_scores else 1
        self._codes = self._scores = np.empty(0)
        self._held = 0

    def append(self, start: int, codes: np.ndarray, scores: np.ndarray) -> None:
        scores, taken = scores[:, : self._n_scores], 0
        while taken < len(codes):
            if not self._held:
                self._make_room(codes, scores)
            n = min(self.piece_rows - self._held, len(codes) - taken)
            self._codes[self._held : self._held + n] = codes[taken : taken + n]
            self._scores[self._held : self._held + n] = scores[taken : taken + n]
            self._held, taken = self._held + n, taken + n
            if self._held == self.piece_rows:
                self._emit()

    def _make_room(self, codes: np.ndarray, scores: np.ndarray) -> None:
        """Allocate the arrays of a piece for rows like these, if there are none."""
        if not len(self._scores):
            self._codes = np.empty((self.piece_rows, *codes.shape[1:]), codes.dtype)
            self._scores = np.empty((self.piece_rows, *scores.shape[1:]), scores.dtype)

    def _emit(self) -> None:
        self.write(self._codes[: self._held], self._scores[: self._held])
        self._held = 0

    def write(self, codes: np.ndarray, scores: np.ndarray) -> None:
        raise NotImplementedError

    def close(self) -> None:
        if self._held:
            self._emit()
