"""From scores to labels, values and probabilities: the code that linear and kernel models share.

How the label of a row follows from its scores, by the kind of model:

* Two classes: one model, whose positive class is the last one.  The sign of the score decides.
* One against the rest, or one loss for all classes: the class with the largest score.
* One against one: a model for each pair of classes, in LIBSVM's order.  A score above 0 is a vote for the first class
    of the pair, any other score a vote for the second.  The class with most votes wins; among equals, the first.
* Regression: one model without classes, whose score is the value.
"""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import numpy as np

from bigsvm.config import JOINT_RULE
from bigsvm.csr import CSR
from bigsvm.errors import DataError, UsageError, told_outside
from bigsvm.model.model_rows import in_order_of
from bigsvm.model.probability.calibration import probabilities
from bigsvm.store.blocks import Matrix
from bigsvm.store.checks import as_values, check_csr, check_finite, value_dtype
from bigsvm.store.frames.values import plain_rows
from bigsvm.store.transforms.recipe import Recipe
from bigsvm.store.transforms.scaling import Scaling
from bigsvm.units import counted


class Decides:
    """Base class of both kinds of models: labels, values and probabilities.  A subclass adds `scores` and the fields.

    classes : labels in ascending order; empty for regression
    positive, negative : int32, (n_models,)   class codes as in `Problem`; negative is -1 for "all other classes"
    intercept : float64, (n_models,)
    about : the other contents of model.json (problem, certificate, plan, fingerprints)
    """

    classes: np.ndarray
    positive: np.ndarray
    negative: np.ndarray
    intercept: np.ndarray

    n_features: int
    about: dict[str, Any]
    fingerprint: ClassVar[str] = ""
    """Digest of the model.json that a model was read from, for whoever records it; empty if it was not read."""

    def __post_init__(self) -> None:
        """One class against the rest, if codes were left out."""
        if len(self.positive) == 0:
            positive, negative = models_of(len(self.classes), False)
            object.__setattr__(self, "positive", positive)
            object.__setattr__(self, "negative", negative)

    def __repr__(self) -> str:
        """One line, however large the model is: its classes, its features and its certificate."""
        gives = "values" if self.regression else counted(len(self.classes), "class", "classes", commas=True)
        said = [gives, counted(self.n_features, "feature", commas=True), *self._about_support()]
        loss, proof = self.about.get("problem", {}).get("loss"), self.about.get("certificate", {})
        if loss:
            said.append(str(loss))
        if proof.get("relative_gap"):
            said.append(f"relative gap {max(proof['relative_gap']):.3g} ({proof.get('kind')})")
        return f"{type(self).__name__}({', '.join(said)})"

    def _about_support(self) -> list[str]:
        """The words of `repr` for the support vectors; empty for a linear model."""
        return []

    @property
    def n_models(self) -> int:
        return len(self.intercept)

    @property
    def regression(self) -> bool:
        """Whether the model predicts values instead of labels."""
        return len(self.classes) == 0

    @property
    def one_class(self) -> bool:
        """Whether this is a one-class model: label 1 for rows like the training rows, -1 for all others."""
        return self.about.get("problem", {}).get("loss") == "one_class"

    @property
    def pairs(self) -> bool:
        """Whether there is one model for each pair of classes (one against one)."""
        return bool(np.any(self.negative >= 0))

    @property
    def multi_label(self) -> bool:
        """Whether a row may have several labels, or none; there is one model for each label."""
        return self.about.get("problem", {}).get("multi_class") == "labels"

    @property
    def joint(self) -> bool:
        """Whether all models were trained with one loss, that of Crammer and Singer."""
        return bool(self.about.get("problem", {}).get("multi_class") == JOINT_RULE)

    @property
    def multi_class(self) -> str:
        """The value in model.json: 'ovr', 'ovo', 'crammer-singer', 'labels' (several for a row); '' for regression."""
        if self.joint:
            return JOINT_RULE
        return "" if self.regression else "ovo" if self.pairs else "labels" if self.multi_label else "ovr"

    @property
    def tie_order(self) -> np.ndarray | None:
        """Class codes in the order by which the program that an imported model comes from breaks ties; else None.

        There a score of 0 (two classes, or a pair) means the later class, and among equal scores or votes the first
        wins.
        """
        order = self.about.get("imported", {}).get("label_order")
        return None if order is None else np.array(order, np.int64)

    @property
    def weights(self) -> np.ndarray | None:
        """The weight of each feature, float64, (n_models, n_features); None for a model without such weights."""
        return None

    def intercept_of_sparse(self) -> np.ndarray:
        """The intercept of a linear model for sparse rows, from which means of features have not been subtracted."""
        scaling, weights = Scaling.of(self.about.get("rows", {})), self.weights
        if scaling is None or not scaling.centred or scaling.shift is None or weights is None:
            return self.intercept
        return self.intercept - np.einsum("mj,j->m", weights[:, : len(scaling.shift)], scaling.shift)

    def scores(self, X: Matrix) -> np.ndarray:
        """Scores of rows, float64, shape (n_rows, n_models)."""
        raise NotImplementedError

    @told_outside
    def decision_function(self, X: Any) -> np.ndarray:
        """Scores in scikit-learn's shape: (n_rows,) for one model, else (n_rows, n_models).

        X : array (n_rows, n_features), SciPy sparse matrix or array, `bigsvm.compiled.shared.rows.CSR`, or a pandas or
            polars frame; its columns are matched by name if the model has the names of its features.
        """
        scores = self.scores(self._scaled(X))
        return scores[:, 0] if self.n_models == 1 else scores

    @told_outside
    def predict(self, X: Any) -> np.ndarray:
        """Labels, (n_rows,); for regression values, float64, (n_rows,).

        A model with several labels for a row gives an indicator matrix of 0 and 1, int64, (n_rows, n_labels).
        """
        return self.labels_of(self.scores(self._scaled(X)))

    @told_outside
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes, in the order of `classes`, float64, (n_rows, n_classes); each row sums to 1.

        X : as for `decision_function`.  Raises UsageError if the model was not calibrated.
        """
        return self.probabilities_of(self.scores(self._scaled(X)))

    def probabilities_of(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities from scores (n_rows, n_models).  Raises UsageError if the model was not calibrated."""
        if "calibration" not in self.about:
            raise UsageError(
                "the model gives no probabilities: it was not calibrated",
                hint="fit it with --calibrate sigmoid or isotonic",
            )
        return probabilities(self.about["calibration"], self.class_scores(scores))

    def _scaled(self, X: Any) -> Matrix:
        """Convert rows as the training rows were: columns in the model's order, entries scaled."""
        known = self.about.get("rows", {})
        recipe, rows = Recipe.of(known), as_matrix(in_order_of(known, X))
        if recipe.nothing:
            return rows
        check_width(rows, self.n_features)
        self.check_centred("csr" if isinstance(rows, CSR) else "dense", "X")
        return recipe.apply(rows, "X")

    def check_centred(self, layout: str, where: str) -> None:
        """Raise DataError for sparse rows if the model is a kernel model that subtracts the means of features.

        Subtracting means would make every entry of sparse rows non-zero.  (A linear model moves them into its
        intercept instead.)
        """
        scaling = Scaling.of(self.about.get("rows", {}))
        if layout == "csr" and scaling is not None and scaling.centred and self.weights is None:
            what = "the model subtracts the means of features, which cannot be done with sparse rows"
            raise DataError(what, where, "pass dense rows, or train on sparse rows")

    def labels_of(self, scores: np.ndarray) -> np.ndarray:
        """Labels, values or the indicator matrix, as `predict` returns them, from scores (n_rows, n_models)."""
        if self.multi_label:
            return (scores > 0).astype(np.int64)
        return scores[:, 0] if self.regression else self.classes[self.codes(scores)]

    def codes(self, scores: np.ndarray) -> np.ndarray:
        """Class codes from scores (n_rows, n_models).  A score of 0 is the negative class; the first class wins ties.

        All 0 for regression.
        """
        if self.regression:
            return np.zeros(len(scores), np.int64)
        order = self.tie_order
        if self.n_models == 1:
            of_second = scores[:, 0] > 0 if order is None else scores[:, 0] >= 0
            return of_second.astype(np.int64)
        rank = self._votes(scores) if self.pairs else scores
        return np.argmax(rank, axis=1) if order is None else order[np.argmax(rank[:, order], axis=1)]

    def class_scores(self, scores: np.ndarray) -> np.ndarray:
        """One score for each class, to rank rows by: (n_rows, n_classes), or (n_rows, 1) for two classes.

        One against one: as in scikit-learn, the number of votes, and among equal votes the sum s of the scores of the
        pairs, as s / (3 (|s| + 1)), which never outweighs a vote.  A score of exactly 0 votes as in `codes`;
        scikit-learn has two different rules for it.
        """
        if not self.pairs:
            return scores
        sums = np.zeros((len(scores), len(self.classes)))
        for m, (first, second) in enumerate(zip(self.positive, self.negative, strict=True)):
            sums[:, first] += scores[:, m]
            sums[:, second] -= scores[:, m]
        with np.errstate(invalid="ignore"):
            return self._votes(scores) + sums / (3.0 * (np.abs(sums) + 1.0))

    def _votes(self, scores: np.ndarray) -> np.ndarray:
        """The number of votes of each class, int32, (n_rows, n_classes); for one against one."""
        votes, order = np.zeros((len(scores), len(self.classes)), np.int32), self.tie_order
        earlier = np.arange(len(self.classes)) if order is None else np.argsort(order)
        for m, (first, second) in enumerate(zip(self.positive, self.negative, strict=True)):
            won = scores[:, m] > 0 if earlier[first] < earlier[second] else scores[:, m] >= 0
            votes[:, first] += won
            votes[:, second] += ~won
        return votes


def n_models_of(n_classes: int, pairs: bool, labels: bool = False) -> int:
    """The number of models for `n_classes` classes, or for as many labels; 1 for regression, which has no classes."""
    if n_classes <= 2 and not labels:
        return 1
    return n_classes * (n_classes - 1) // 2 if pairs else n_classes


def models_of(n_classes: int, pairs: bool, labels: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(positive, negative) class codes of each model, int32; pairs are ordered (0, 1), (0, 2), ..., (1, 2), ..."""
    if pairs and n_classes > 2:
        both = np.array(list(itertools.combinations(range(n_classes), 2)), np.int32)
        return both[:, 0].copy(), both[:, 1].copy()
    codes = range(n_classes) if labels else {0: [0], 2: [1]}.get(n_classes, range(n_classes))
    positive = np.array(codes, np.int32)
    return positive, np.full(len(positive), -1, np.int32)


def no_codes() -> np.ndarray:
    """The default of `positive` and `negative`: the codes follow from the classes (one against the rest)."""
    return np.empty(0, np.int32)


def check_width(X: Matrix, n_features: int) -> None:
    """Raise DataError unless rows fit the number of features of a model.

    Dense rows must have exactly as many, because nobody could tell which columns are missing.  Sparse rows may be
    narrower (a feature without an entry is 0), but must have no entry beyond the features of the model.
    """
    if isinstance(X, CSR):
        top = int(X.indices.max(initial=-1))
        if top >= n_features:
            row = int(np.searchsorted(X.indptr, int(np.argmax(X.indices >= n_features)), "right")) - 1
            raise DataError(
                f"feature {top} is beyond the model's {counted(n_features, 'feature')} (from 0)", f"row {row}"
            )
    elif X.shape[1] != n_features:
        raise DataError(f"the rows have {counted(X.shape[1], 'feature')} and the model {n_features}")


def as_matrix(X: Any) -> Matrix:
    """Convert arrays and SciPy matrices to the types of the compiled code.

    Raises DataError naming the row that has a masked value, a value that is not finite, or a column twice.
    """
    if isinstance(X, CSR) or hasattr(X, "tocsr"):
        rows = X if isinstance(X, CSR) else X.tocsr()
        rows = CSR(_floats(rows.data, rows.indptr), rows.indices, rows.indptr)
        check_csr(rows, 2**63 - 1, "X", 0)
        return rows
    X = plain_rows(X, "X")
    if X.ndim != 2:
        raise DataError(f"X must have two dimensions, not {X.ndim}")
    X = _floats(X, None)
    check_finite(X, "X", 0)
    return X


def _floats(values: np.ndarray, indptr: np.ndarray | None) -> np.ndarray:
    if values.dtype.kind not in "biuf":  # NumPy would drop imaginary parts, and read text as numbers
        raise DataError(f"values of type {values.dtype} cannot be used", "X", "give numbers, best float32")
    # As blocks of a store would have them, since steps such as scaling are computed in the type of the values.
    wide = values.itemsize > 8 or value_dtype(values.dtype, "X") == np.float64
    return as_values(values, np.dtype(np.float64 if wide else np.float32), "X", 0, indptr)
