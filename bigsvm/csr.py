"""Compressed sparse rows, as everything here hands them on; light, for who only predicts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class CSR(NamedTuple):
    """Compressed sparse rows: row i is `indices[indptr[i]:indptr[i+1]]` with the same slice of `data`.

    data : float32, float64, int8 or uint8, shape (nnz,)
    indices : int32 or int64, shape (nnz,)   feature numbers from 0
    indptr : int64 or int32, shape (n_rows + 1,)   starts at 0
    """

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
