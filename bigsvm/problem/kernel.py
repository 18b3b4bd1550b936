"""Kernels in one canonical form, and the papers' conventions as converters to it.

| name | K(x, z) | conventions |
|---|---|---|
| linear | x.z | |
| rbf | exp(-gamma ||x - z||^2) | `rbf_of_width` (Rosen's benchmark), `rbf_of_sigma` (Wang 2016) |
| poly | (gamma x.z + coef0)^degree, as in LIBSVM | `poly_of_bracket` (WSS-WR) |
| sigmoid | tanh(gamma x.z + coef0); not positive semidefinite in general | |
| precomputed | the store's own value: row i, column j | |

The compiled rows are in `compiled/kernel/values/gram.py`; `Kernel.matrix` here is the readable truth beside them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from bigsvm.errors import UsageError

KernelName = Literal["linear", "rbf", "poly", "sigmoid", "precomputed"]
How = Literal["checked", "assumed", "refuted", "undecided"]
KERNELS: tuple[str, ...] = get_args(KernelName)
PARAMETERS: dict[str, tuple[str, ...]] = {
    "linear": (), "rbf": ("gamma",), "poly": ("gamma", "degree", "coef0"), "sigmoid": ("gamma", "coef0"),
    "precomputed": (),
}  # fmt: skip
"""Parameters that each kernel takes notice of."""
CODES = {name: code for code, name in enumerate(KERNELS)}
"""Numbers by which compiled kernels branch (`compiled/kernel/values/gram.py`)."""


@dataclass(frozen=True)
class Definite:
    """What is known of a kernel that is not positive semidefinite by construction.

    how : 'checked' (no eigenvalue lies below -tolerance), 'assumed' (the user vouches for it), 'refuted', or
        'undecided'
    tolerance : float   what is not told from an eigenvalue of 0;  why : what refuted it
    """

    how: How = "undecided"
    tolerance: float = 0.0
    why: str = ""

    def document(self) -> dict[str, Any]:
        """As model.json holds it."""
        found: dict[str, Any] = {"how": self.how}
        if self.how == "checked":
            found["tolerance"] = self.tolerance
        return found


@dataclass(frozen=True)
class Kernel:
    """A kernel with its parameters; those that it does not have are ignored.

    gamma : float > 0, of rbf, poly, sigmoid;  degree : int >= 1, of poly;  coef0 : float, of poly and sigmoid
    definite : Definite   read where a kernel is not positive semidefinite by construction
    """

    name: str = "linear"
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0
    definite: Definite = field(default=Definite(), compare=False)

    def __post_init__(self) -> None:
        if self.name not in KERNELS:
            raise UsageError(f"unknown kernel {self.name!r}", hint=f"one of {', '.join(KERNELS)}")
        if not 0 < self.gamma < np.inf:
            raise UsageError(f"gamma must be a positive number, not {self.gamma!r}")
        if not 1 <= self.degree <= 64:
            raise UsageError(f"degree must be between 1 and 64, not {self.degree!r}")
        if not np.isfinite(self.coef0):
            raise UsageError(f"coef0 must be a number, not {self.coef0!r}")

    @property
    def code(self) -> int:
        return CODES[self.name]

    @property
    def by_construction(self) -> bool:
        """Every Gram matrix is positive semidefinite, whatever the rows."""
        return self.name in ("linear", "rbf") or (self.name == "poly" and self.coef0 >= 0)

    @property
    def positive_semidefinite(self) -> bool:
        """Whether that is so, was checked, or is vouched for: what the proof of a duality gap needs."""
        return self.by_construction or self.definite.how in ("checked", "assumed")

    @property
    def certificate(self) -> Literal["proved", "estimate", "none"]:
        """What a gap computed with this kernel is; values given as data may well be of one, if nothing refutes it."""
        if self.positive_semidefinite:
            return "proved"
        return "estimate" if self.name == "precomputed" and self.definite.how == "undecided" else "none"

    @property
    def unproved(self) -> str:
        """Why no gap is proved, in one sentence; empty where it is."""
        if self.positive_semidefinite:
            return ""
        kernel = f"the {self.name} kernel"
        if self.definite.how == "refuted":
            return f"{kernel} is not positive semidefinite, so that no gap can be proved: {self.definite.why}"
        if self.name == "precomputed":
            return (
                f"{kernel} was not shown to be positive semidefinite, so that the gap is an estimate: "
                "more --memory lets it be checked, --assume-psd vouches for it"
            )
        return (
            f"{kernel} is not positive semidefinite in general, so that no gap is proved: "
            "--assume-psd vouches for it on these rows"
        )

    def refuted_by(self, why: str) -> Kernel:
        """The same kernel, known not to be positive semidefinite."""
        return replace(self, definite=replace(self.definite, how="refuted", why=why))

    @property
    def parameters(self) -> tuple[int, float, int, float]:
        """(code, gamma, degree, coef0), as compiled kernels take them."""
        return self.code, float(self.gamma), int(self.degree), float(self.coef0)

    def of_products(self, products: np.ndarray, x_sq: np.ndarray, z_sq: np.ndarray) -> np.ndarray:
        """K from x.z (n, m), ||x||^2 (n,) and ||z||^2 (m,), float64; rbf far from the origin loses its digits so."""
        if self.name == "rbf":
            distance = np.maximum(x_sq[:, None] + z_sq[None, :] - 2.0 * products, 0.0)
            return np.exp(-self.gamma * distance)
        if self.name == "poly":
            return (self.gamma * products + self.coef0) ** self.degree
        if self.name == "sigmoid":
            return np.tanh(self.gamma * products + self.coef0)
        return products

    def matrix(self, X: Any, Z: Any) -> np.ndarray:
        """K of dense or SciPy sparse rows X (n, d) and Z (m, d), float64 (n, m); not for precomputed."""
        dense = [np.asarray(A.todense() if hasattr(A, "todense") else A, np.float64) for A in (X, Z)]
        X, Z = dense
        if self.name == "rbf":
            return np.exp(-self.gamma * np.stack([((x - Z) ** 2).sum(axis=1) for x in X]))
        return self.of_products(X @ Z.T, (X * X).sum(axis=1), (Z * Z).sum(axis=1))

    def diagonal(self, sqnorm: np.ndarray) -> np.ndarray:
        """K(x, x) exactly, from ||x||^2; not for precomputed."""
        if self.name == "rbf":
            return np.ones(len(sqnorm))
        if self.name == "poly":
            return (self.gamma * sqnorm + self.coef0) ** self.degree
        if self.name == "sigmoid":
            return np.tanh(self.gamma * sqnorm + self.coef0)
        return sqnorm.astype(np.float64)

    def document(self) -> dict[str, Any]:
        """Name and the parameters that the kernel has, as model.json holds them."""
        found: dict[str, Any] = {"name": self.name}
        if self.name in ("rbf", "poly", "sigmoid"):
            found["gamma"] = float(self.gamma)
        if self.name == "poly":
            found["degree"] = int(self.degree)
        if self.name in ("poly", "sigmoid"):
            found["coef0"] = float(self.coef0)
        return found

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> Kernel:
        """The kernel that `document` gave.  Raises UsageError, TypeError, KeyError for what is none."""
        return cls(**document)


def rbf_of_width(sigma: float) -> Kernel:
    """exp(-||x - z||^2 / sigma): the form of Rosen's benchmark, where sigma is not squared."""
    return Kernel("rbf", 1.0 / sigma)


def rbf_of_sigma(sigma: float) -> Kernel:
    """exp(-||x - z||^2 / (2 sigma^2)): the form of Wang 2016."""
    return Kernel("rbf", 1.0 / (2.0 * sigma * sigma))


def poly_of_bracket(gamma: float, degree: int) -> Kernel:
    """(gamma (x.z + 1))^degree: the form of WSS-WR, where gamma multiplies the whole bracket."""
    return Kernel("poly", gamma, degree, gamma)
