"""Kernels in one canonical form, with converters from the conventions of papers.

| name | K(x, z) | conventions |
|---|---|---|
| linear | x.z | |
| rbf | exp(-gamma ||x - z||^2) | `rbf_of_width` (Rosen's benchmark), `rbf_of_sigma` (Wang 2016) |
| poly | (gamma x.z + coef0)^degree, as in LIBSVM | `poly_of_bracket` (WSS-WR) |
| sigmoid | tanh(gamma x.z + coef0); not positive semidefinite in general | |
| precomputed | the store's own value: row i, column j | |

Compiled code that computes rows of K is in `compiled/kernel/values/gram.py`; `Kernel.matrix` is the reference for it.
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
    """What is known of the definiteness of a kernel that is not positive semidefinite by construction.

    how : 'checked' (no eigenvalue below -tolerance), 'assumed' (the user vouches for it), 'refuted', or 'undecided'
    tolerance : float   size up to which an eigenvalue counts as 0
    why : str           what refuted it
    """

    how: How = "undecided"
    tolerance: float = 0.0
    why: str = ""

    def document(self) -> dict[str, Any]:
        """The entry of model.json."""
        found: dict[str, Any] = {"how": self.how}
        if self.how == "checked":
            found["tolerance"] = self.tolerance
        return found


@dataclass(frozen=True)
class Kernel:
    """A kernel with its parameters; parameters that it does not have are ignored.

    gamma : float > 0     for rbf, poly and sigmoid
    degree : int, 1 to 64 for poly
    coef0 : float         for poly and sigmoid
    definite : Definite   used only if the kernel is not positive semidefinite by construction

    Raises UsageError for an unknown name, or a parameter outside its range.
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
        """Whether every Gram matrix of this kernel is positive semidefinite."""
        return self.name in ("linear", "rbf") or (self.name == "poly" and self.coef0 >= 0)

    @property
    def positive_semidefinite(self) -> bool:
        """Whether K is positive semidefinite by construction, by a check, or by the word of the user.

        A duality gap is proved only then.
        """
        return self.by_construction or self.definite.how in ("checked", "assumed")

    @property
    def certificate(self) -> Literal["proved", "estimate", "none"]:
        """What a gap computed with this kernel is worth.

        A precomputed kernel that was not refuted gives an 'estimate', because it may well be positive semidefinite.
        """
        if self.positive_semidefinite:
            return "proved"
        return "estimate" if self.name == "precomputed" and self.definite.how == "undecided" else "none"

    @property
    def unproved(self) -> str:
        """Why no gap is proved, in one sentence; '' if gaps are proved."""
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
        """(code, gamma, degree, coef0) for compiled code."""
        return self.code, float(self.gamma), int(self.degree), float(self.coef0)

    def of_products(self, products: np.ndarray, x_sq: np.ndarray, z_sq: np.ndarray) -> np.ndarray:
        """K from x.z (n, m), ||x||^2 (n,) and ||z||^2 (m,), float64.  rbf is inaccurate far from the origin."""
        if self.name == "rbf":
            distance = np.maximum(x_sq[:, None] + z_sq[None, :] - 2.0 * products, 0.0)
            return np.exp(-self.gamma * distance)
        if self.name == "poly":
            return (self.gamma * products + self.coef0) ** self.degree
        if self.name == "sigmoid":
            return np.tanh(self.gamma * products + self.coef0)
        return products

    def matrix(self, X: Any, Z: Any) -> np.ndarray:
        """K between dense or SciPy sparse rows X (n, d) and Z (m, d); float64, (n, m).  Not for precomputed."""
        dense = [np.asarray(A.todense() if hasattr(A, "todense") else A, np.float64) for A in (X, Z)]
        X, Z = dense
        if self.name == "rbf":
            return np.exp(-self.gamma * np.stack([((x - Z) ** 2).sum(axis=1) for x in X]))
        return self.of_products(X @ Z.T, (X * X).sum(axis=1), (Z * Z).sum(axis=1))

    def diagonal(self, sqnorm: np.ndarray) -> np.ndarray:
        """K(x, x) from ||x||^2, float64, (n,).  Not for precomputed."""
        if self.name == "rbf":
            return np.ones(len(sqnorm))
        if self.name == "poly":
            return (self.gamma * sqnorm + self.coef0) ** self.degree
        if self.name == "sigmoid":
            return np.tanh(self.gamma * sqnorm + self.coef0)
        return sqnorm.astype(np.float64)

    def document(self) -> dict[str, Any]:
        """The entry of model.json: the name, and the parameters that this kernel has."""
        found: dict[str, Any] = {"name": self.name}
        if "gamma" in PARAMETERS[self.name]:
            found["gamma"] = float(self.gamma)
        if "degree" in PARAMETERS[self.name]:
            found["degree"] = int(self.degree)
        if "coef0" in PARAMETERS[self.name]:
            found["coef0"] = float(self.coef0)
        return found

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> Kernel:
        """The kernel of a document.  Raises UsageError, TypeError or KeyError if it describes none."""
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
