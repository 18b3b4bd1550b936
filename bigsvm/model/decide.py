"""From scores to labels and values: what linear and kernel models share.

Two classes: one model, whose positive class is the last; the label is the score's sign.  One against the rest, or a
loss of all together: the class with the largest score.  One against one: a model for each pair of classes in LIBSVM's
order; a score above 0 is a vote for the pair's first class, any other one for its second; most votes win, ties go to
the first class.  Regression: one model without classes, whose score is the value.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from bigsvm.config import JOINT_RULE
from bigsvm.csr import CSR
from bigsvm.errors import DataError, UsageError
from bigsvm.model.model_rows import in_order_of
from bigsvm.model.probability.calibration import probabilities
from bigsvm.store.blocks import Matrix
from bigsvm.store.checks import as_values, check_csr, check_finite, unmasked
from bigsvm.store.transforms.recipe import Recipe
from bigsvm.store.transforms.scaling import Scaling


class Decides:
    """Labels and values from scores; what has `scores` and the attributes inherits the rest.

    classes : labels in ascending order; empty for regression
    positive, negative : int32, (n_models,)   class codes as `Problem` has them; negative is -1 for all others
    intercept : float64, (n_models,)
    about : what model.json holds besides
    """

    classes: np.ndarray
    positive: np.ndarray
    negative: np.ndarray
    intercept: np.ndarray

    n_features: int
    about: dict[str, Any]

    def __repr__(self) -> str:
        """One line, however large the model: what it decides, on what, and how good it is."""
        gives = "values" if self.regression else f"{len(self.classes):,} classes"
        said = [gives, f"{self.n_features:,} features", *self._about_support()]
        loss, proof = self.about.get("problem", {}).get("loss"), self.about.get("certificate", {})
        if loss:
            said.append(str(loss))
        if proof.get("relative_gap"):
            said.append(f"relative gap {max(proof['relative_gap']):.3g} ({proof.get('kind')})")
        return f"{type(self).__name__}({', '.join(said)})"

    def _about_support(self) -> list[str]:
        """What a representation says of rows that the model keeps."""
        return []

    @property
    def n_models(self) -> int:
        return len(self.intercept)

    @property
    def regression(self) -> bool:
        """Whether it gives values, not labels."""
        return len(self.classes) == 0

    @property
    def one_class(self) -> bool:
        """Whether it knows one class alone: its labels are 1 for rows like those it was trained on, -1 for others."""
        return self.about.get("problem", {}).get("loss") == "one_class"

    @property
    def pairs(self) -> bool:
        """Whether there is one model for each pair of classes."""
        return bool(np.any(self.negative >= 0))

    @property
    def multi_label(self) -> bool:
        """Whether a row may have several of the classes, or none: there is a model for each."""
        return self.about.get("problem", {}).get("multi_class") == "labels"

    @property
    def joint(self) -> bool:
        """Whether its models were trained with one loss of all of them: Crammer and Singer's."""
        return bool(self.about.get("problem", {}).get("multi_class") == JOINT_RULE)

    @property
    def multi_class(self) -> str:
        """'ovr', 'ovo', 'crammer-singer', 'labels' of rows with several, or '' for regression, as model.json has it."""
        if self.joint:
            return JOINT_RULE
        return "" if self.regression else "ovo" if self.pairs else "labels" if self.multi_label else "ovr"

    @property
    def tie_order(self) -> np.ndarray | None:
        """Class codes in the order in which an imported model's own program decides ties; None: as `codes` says.

        Of two or a pair a score of 0 is the later class there, of several with equal scores or votes the first.
        """
        order = self.about.get("imported", {}).get("label_order")
        return None if order is None else np.array(order, np.int64)

    @property
    def weights(self) -> np.ndarray | None:
        """A weight for each feature, float64, (n_models, n_features); None where features have none."""
        return None

    def intercept_of_sparse(self) -> np.ndarray:
        """The intercept of a linear model for sparse rows: where dense ones lose their means, these keep them."""
        scaling, weights = Scaling.of(self.about.get("rows", {})), self.weights
        if scaling is None or not scaling.centred or scaling.shift is None or weights is None:
            return self.intercept
        return self.intercept - np.einsum("mj,j->m", weights[:, : len(scaling.shift)], scaling.shift)

    def scores(self, X: Matrix) -> np.ndarray:
        """Scores of rows, float64, shape (n_rows, n_models)."""
        raise NotImplementedError

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores as scikit-learn gives them: (n_rows,) for one model, else (n_rows, n_models): classes, or pairs.

        X : array (n_rows, n_features), SciPy sparse matrix or array, or `bigsvm.compiled.shared.rows.CSR`; a frame of
            pandas or polars, whose columns are found by their names where the model has names.
        """
        scores = self.scores(self._scaled(X))
        return scores[:, 0] if self.n_models == 1 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Labels, shape (n_rows,); of regression values, float64; of several labels a row int64 (n_rows, n_labels).

        Such an indicator matrix holds 0 and 1.
        """
        return self.labels_of(self.scores(self._scaled(X)))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes, in their order, float64, (n_rows, n_classes), each row of sum 1.

        X : as for `decision_function`.  Raises UsageError where the model was not calibrated.
        """
        return self.probabilities_of(self.scores(self._scaled(X)))

    def probabilities_of(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities of scores (n_rows, n_models).  Raises UsageError where the model was not calibrated."""
        if "calibration" not in self.about:
            raise UsageError("the model gives no probabilities", hint="fit it with --calibrate sigmoid or isotonic")
        return probabilities(self.about["calibration"], self.class_scores(scores))

    def _scaled(self, X: Any) -> Matrix:
        """Rows as the model was trained on them."""
        known = self.about.get("rows", {})
        recipe, rows = Recipe.of(known), as_matrix(in_order_of(known, X))
        if recipe.nothing:
            return rows
        check_width(rows, self.n_features)
        self.check_centred("csr" if isinstance(rows, CSR) else "dense", "X")
        return recipe.apply(rows, "X")

    def check_centred(self, layout: str, where: str) -> None:
        """Refuse sparse rows where a model takes rows apart from their means, and cannot do so without filling them up.

        Raises DataError.
        """
        scaling = Scaling.of(self.about.get("rows", {}))
        if layout == "csr" and scaling is not None and scaling.centred and self.weights is None:
            what = "the model was trained on dense rows without their means, and from sparse rows these cannot be taken"
            raise DataError(what, where, "give it dense rows, or train on sparse ones")

    def labels_of(self, scores: np.ndarray) -> np.ndarray:
        """Labels, or values, or an indicator matrix of labels, of scores (n_rows, n_models)."""
        if self.multi_label:
            return (scores > 0).astype(np.int64)
        return scores[:, 0] if self.regression else self.classes[self.codes(scores)]

    def codes(self, scores: np.ndarray) -> np.ndarray:
        """Class codes of scores (n_rows, n_models): a score of 0 is the negative class, ties the first.

        For regression 0 throughout.
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
        """One score for each class, by which rows may be ranked: (n_rows, n_classes), (n_rows, 1) for two classes.

        Of pairs scikit-learn's: votes, and between equal votes the sum s of the pairs' scores as s / (3 (|s| + 1)),
        which never outweighs a vote.  A score of exactly 0 votes as in `codes`, where scikit-learn has two rules.
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
        """Votes of the pairs, int32, (n_rows, n_classes)."""
        votes, order = np.zeros((len(scores), len(self.classes)), np.int32), self.tie_order
        earlier = np.arange(len(self.classes)) if order is None else np.argsort(order)
        for m, (first, second) in enumerate(zip(self.positive, self.negative, strict=True)):
            won = scores[:, m] > 0 if earlier[first] < earlier[second] else scores[:, m] >= 0
            votes[:, first] += won
            votes[:, second] += ~won
        return votes


def n_models_of(n_classes: int, pairs: bool, labels: bool = False) -> int:
    """How many models tell so many classes apart, or find so many `labels`; 1 for regression, which has none."""
    if n_classes <= 2 and not labels:
        return 1
    return n_classes * (n_classes - 1) // 2 if pairs else n_classes


def models_of(n_classes: int, pairs: bool, labels: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(positive, negative) class codes of each model, int32: the pairs in the order (0, 1), (0, 2), ..., (1, 2), ..."""
    if pairs and n_classes > 2:
        both = np.array(list(itertools.combinations(range(n_classes), 2)), np.int32)
        return both[:, 0].copy(), both[:, 1].copy()
    codes = range(n_classes) if labels else {0: [0], 2: [1]}.get(n_classes, range(n_classes))
    positive = np.array(codes, np.int32)
    return positive, np.full(len(positive), -1, np.int32)


def no_codes() -> np.ndarray:
    """Stands for codes that follow from the classes: one against the rest."""
    return np.empty(0, np.int32)


def check_width(X: Matrix, n_features: int) -> None:
    """Raise DataError unless dense rows are as wide as a model, or where an entry of sparse rows lies beyond it.

    Sparse rows may be narrower: what they do not name is 0.  Of dense rows nobody can tell which columns are missing.
    """
    if isinstance(X, CSR):
        top = int(X.indices.max(initial=-1))
        if top >= n_features:
            row = int(np.searchsorted(X.indptr, int(np.argmax(X.indices >= n_features)), "right")) - 1
            raise DataError(f"feature {top} is beyond the model's {n_features} features (from 0)", f"row {row}")
    elif X.shape[1] != n_features:
        raise DataError(f"the rows have {X.shape[1]} features and the model {n_features}")


def as_matrix(X: Any) -> Matrix:
    """Arrays and SciPy matrices as the kernels take them.

    Raises DataError naming the row of a value that is masked or not finite, or of a column that it has twice.
    """
    if isinstance(X, CSR) or hasattr(X, "tocsr"):
        rows = X if isinstance(X, CSR) else X.tocsr()
        rows = CSR(_floats(rows.data, rows.indptr), rows.indices, rows.indptr)
        check_csr(rows, 2**63 - 1, "X", 0)
        return rows
    X = unmasked(X, "X")
    if X.ndim != 2:
        raise DataError(f"X must have two dimensions, not {X.ndim}")
    X = _floats(X, None)
    check_finite(X, "X", 0)
    return X


def _floats(values: np.ndarray, indptr: np.ndarray | None) -> np.ndarray:
    dtype = values.dtype if values.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    return as_values(values, dtype, "X", 0, indptr)
