"""The optimisation problem of a fit, with everything that it needs to know of the data.

Several models are trained together.  One against the rest has a model for each class; a path of C has all classes at
the first C, then all at the next.  Each model, with labels y_i in {-1, +1}, minimises

    minimise  P(w) = 1/2 ||w||^2 + sum_i C_i loss(1 - y_i f(x_i)),   f(x) = w.x + b

The losses are summed, as in LIBLINEAR and LIBSVM, not averaged.  C = 1 / (lambda n_samples) converts from the form
lambda/2 ||w||^2 + mean loss, whose objective is lambda P.  scikit-learn's SGD calls lambda `alpha`.

The bias is one of three.  `augmented`: a constant feature B is appended, so that b = B w_last and ||w||^2 includes
(b / B)^2, as with LIBLINEAR's -B.  `none`: b = 0.  `free`: the same feature, but its weight is not regularised; the
dual problem then has the constraint sum_i alpha_i y_i = 0.

With a kernel, w and x_i are vectors of its feature space.  One against one (`ovo`) has a model for each pair of
classes, trained on the rows of these two only; as in LIBSVM the first class of a pair is positive.  Crammer and
Singer's loss couples all models, which then have one P, one D and one gap; with two classes it is the hinge loss with
twice the cost.  A regression has one model and no classes; its loss is a function of the residual y_i - f(x_i).
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass, field

import numpy as np

from bigsvm.compiled.shared.losses import DualBox, DualModels, JointModels
from bigsvm.config import JOINT_RULE, FitConfig
from bigsvm.errors import DataError, Unsupported, UsageError
from bigsvm.problem.axis import ModelAxis
from bigsvm.problem.centre import Centre
from bigsvm.problem.class_weights import names_of_classes, weights_named
from bigsvm.problem.kernel import Definite, Kernel
from bigsvm.problem.loss import Loss, loss_named
from bigsvm.store.blocks import Block, BlockGroup, RowBlocks
from bigsvm.store.transforms.label_sets import LABEL_SETS, LabelSets
from bigsvm.store.transforms.relabelled import no_targets
from bigsvm.store.transforms.scaling import Scaling


@dataclass(frozen=True)
class Problem:
    """A loss, its costs and the models that are trained together.

    loss : Loss
    C : float64, shape (n_models,)
    class_weight : float64, shape (n_classes,)   by class code; multiplies C for every row of that class
    bias : 'augmented' | 'none' | 'free'
    bias_scale : float   the constant feature B
    classes : labels in ascending order; empty for regression
    positive : int32, shape (n_models,)   class code that is +1 for each model
    negative : int32, shape (n_models,)   class code that is -1 for each model (`ovo`), or -1: all other classes
    kernel : Kernel
    centre : Centre   the means, if rows count as centred but are stored as they were; else None.  Also None with a free
        bias, which makes up for the means
    axis : ModelAxis   the rows that each model is trained on, and its own class weights; None: all models have all rows
        and the weights of `class_weight`
    member : uint8, (n_labels, n_sets)   only if rows have several labels: which labels each set of labels has.  y is
        then the number of a set, not a class, and `positive` the label that a model tells from the rest
        (`store/transforms/label_sets.py`); else None
    """

    loss: Loss
    C: np.ndarray
    class_weight: np.ndarray
    bias: str
    bias_scale: float
    classes: np.ndarray
    positive: np.ndarray
    negative: np.ndarray
    kernel: Kernel = field(default_factory=Kernel)
    centre: Centre | None = None
    axis: ModelAxis | None = None
    member: np.ndarray | None = None

    @property
    def regression(self) -> bool:
        """Whether rows have targets instead of classes."""
        return self.loss.regression

    @property
    def one_class(self) -> bool:
        """Whether labels are ignored: the model says 1 for rows like those of the fit, and -1 for others."""
        return self.loss.name == "one_class"

    @property
    def pairs(self) -> bool:
        """Whether there is a model for each pair of classes."""
        return bool(np.any(self.negative >= 0))

    @property
    def joint(self) -> bool:
        """Whether one loss couples all models, which are the weight vectors of the classes."""
        return self.loss.joint

    @property
    def multi_class(self) -> str:
        """How classes are told apart, by its name in model.json; '' for a regression."""
        if self.regression:
            return ""
        return JOINT_RULE if self.joint else "ovo" if self.pairs else "ovr" if self.member is None else "labels"

    @property
    def n_models(self) -> int:
        return len(self.positive)

    @property
    def models_per_row(self) -> int:
        """The number of models that a row takes part in, for the class that takes part in most."""
        if not self.pairs:
            return self.n_models
        return int(np.bincount(np.concatenate([self.positive, self.negative])).max())

    @property
    def n_proofs(self) -> int:
        """The number of objectives and gaps: one for each model, or one for all if they are coupled."""
        return 1 if self.joint else len(self.positive)

    @property
    def sides(self) -> np.ndarray:
        """What compiled loops find the sign of a row by.

        int32, (n_models,): the class code that is +1 for each model.  For rows with several labels uint8,
        (n_models, n_sets): 1 if the set of labels is +1 for the model, else 0.
        """
        return self.positive if self.member is None else self.member[self.positive]

    def signs(self, y: np.ndarray) -> np.ndarray:
        """+1 or -1 for each row and model, float64, (n_rows, n_models); 1 for targets.  y : (n_rows,), from `y_of`"""
        if self.regression:
            return np.ones((len(y), self.n_models))
        if self.member is None:
            return np.where(y[:, None] == self.positive, 1.0, -1.0)
        return np.where(self.sides.T[y] != 0, 1.0, -1.0)

    def signs_of(self, y: np.ndarray, m: int) -> np.ndarray:
        """The column of `signs` of model m, float64, (n_rows,), without computing the others."""
        if self.regression:
            return np.ones(len(y))
        has = y == self.positive[m] if self.member is None else self.member[self.positive[m]][y] != 0
        return np.where(has, 1.0, -1.0)

    @property
    def n_costs(self) -> int:
        """The number of models of each class, which differ only in C."""
        return len(self.positive) // len(np.unique(self.positive))

    @property
    def constant_feature(self) -> float:
        """B, or 0 without a bias, so that compiled loops need no case for that.  1 if only the centre needs it."""
        if self.centre is not None:
            return self.centre.constant
        return 0.0 if self.bias == "none" else self.bias_scale

    @property
    def box(self) -> DualBox:
        """Loss and bias as the numbers that compiled dual solvers take."""
        loss = self.loss
        return DualBox(
            loss.code, loss.lower_factor, loss.upper_factor, loss.diag_factor, loss.epsilon, self.constant_feature
        )  # fmt: skip

    @property
    def dual_models(self) -> DualModels | JointModels:
        """The models for compiled loops that number rows in working order."""
        if self.joint:
            return JointModels(self.class_weight, float(self.C[0]), self.constant_feature)
        C = self.C if self.axis is None else self.axis.training_costs(self.C)
        return DualModels(self.class_weight, self.sides, C, self.box)

    def models_on(self, rows: Block | BlockGroup) -> DualModels | JointModels:
        """The models for compiled loops that see only these rows."""
        if self.axis is None:
            return self.dual_models
        if isinstance(rows, BlockGroup):
            C = self.axis.group_costs(self.C, rows)
        else:
            C = self.axis.proof_costs(self.C, rows.start, rows.stop)
        return DualModels(self.class_weight, self.sides, C, self.box)

    def of_models(self, models: slice) -> Problem:
        """The problem of some of the models."""
        axis = None if self.axis is None else self.axis.of_models(models)
        return dataclasses.replace(
            self, C=self.C[models], positive=self.positive[models], negative=self.negative[models], axis=axis
        )

    def of_rows(self, start: int, stop: int) -> Problem:
        """The problem for a task over working rows [start, stop), with no more than it needs."""
        return self if self.axis is None else dataclasses.replace(self, axis=self.axis.of_rows(start, stop))

    def of_slots(self, row: np.ndarray, which: np.ndarray) -> Problem:
        """The problem for compiled loops that number rows by slots (`ModelAxis.of_slots`)."""
        return self if self.axis is None else dataclasses.replace(self, axis=self.axis.of_slots(row, which))

    def met(self, w: np.ndarray) -> np.ndarray:
        """The weights whose scores on stored rows are those of w on centred rows; w itself if rows are not centred."""
        return w if self.centre is None else self.centre.met(w)

    def summed(self, v: np.ndarray) -> np.ndarray:
        """The sum over centred rows, from the sum v over stored rows, of the shape of w; v if rows are not centred."""
        return v if self.centre is None else self.centre.summed(v)

    def y_of(self, block: Block) -> np.ndarray:
        """Class codes, int32, or targets, float64, of a block's rows: what compiled code calls y."""
        return block.y.astype(np.float64 if self.regression else np.int32)

    def y_and_cost(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """(`y_of`, cost float64) of a block's rows; cost = class weight times sample weight."""
        y = self.y_of(block)
        cost = np.ones(block.n_rows) if self.regression else self.class_weight[y]
        if block.sample_weight is not None:
            cost = cost * block.sample_weight
        return y, cost


def zero_weights(n_features: int, n_models: int, dtype: type = np.float64) -> np.ndarray:
    """w = 0 with its bias entry: (n_features + 1,) for one model, else (n_features + 1, n_models)."""
    return np.zeros(n_features + 1 if n_models == 1 else (n_features + 1, n_models), dtype)


def make_problem(config: FitConfig, store: RowBlocks, class_counts: np.ndarray | None = None) -> Problem:
    """The problem of the options `config` on the rows of `store`.

    Parameters
    ----------
    class_counts : int, shape (n_classes,)   rows of each class, needed for class_weight='balanced'

    Raises
    ------
    DataError : the store has one class only, or targets where the loss needs classes, or the reverse.
    Unsupported : the loss does not exist.
    UsageError : a class weight names no class, or is negative.
    """
    loss = loss_named(config.loss, config.epsilon, config.nu)
    classes = store.classes
    kernel = make_kernel(config, store.n_features)
    centre = centre_of(store, config.bias, config.bias_scale, kernel)
    if kernel.name == "precomputed" and store.n_features != store.n_samples:
        shape = f"{store.n_samples:,} x {store.n_features:,}"
        raise DataError(f"a precomputed kernel has a column for each row, and the store is {shape}", store.uri)
    if loss.name == "one_class" and LABEL_SETS not in store.recipe:
        return _one_class(config, store, loss, kernel, centre)
    if loss.regression:
        return _regression(config, store, loss, kernel, centre)
    if classes is None:
        losses = "epsilon_insensitive" + (" or squared_epsilon_insensitive" if kernel.name == "linear" else "")
        raise DataError(
            f"{config.loss} needs class labels and the store holds a regression target",
            store.uri,
            f"use --loss {losses} for a regression",
        )
    if store.n_features < 1:
        raise DataError("the rows have no features", store.uri)
    if LABEL_SETS in store.recipe:
        return _of_sets(config, store, loss, centre)
    if not len(classes):
        raise DataError("there are no rows", store.uri, "is the file empty apart from its header?")
    if len(classes) < 2:
        raise DataError(
            f"the store has one class only ({', '.join(map(str, classes))}); there is nothing to separate",
            store.uri,
            "--label names the column of labels",
        )
    positive = np.array([1] if len(classes) == 2 else range(len(classes)), dtype=np.int32)
    negative = np.full(len(positive), -1, np.int32)
    if pairwise(config) and len(classes) > 2:
        pairs = np.array(list(itertools.combinations(range(len(classes)), 2)), np.int32)
        positive, negative = pairs[:, 0], pairs[:, 1]
    costs = config.costs(store.n_samples)
    if loss.joint and len(classes) == 2:
        # At the optimum the two vectors are -d/2 and d/2, and P is half of 1/2 ||d||^2 + 2 C sum hinge.
        loss, costs = loss_named("hinge"), [2.0 * C for C in costs]
    return Problem(
        loss=loss,
        C=np.repeat(costs, len(positive)),
        class_weight=_class_weight(config, classes, class_counts, store.recipe.get("labels", {}).get("positive")),
        bias=config.bias,
        bias_scale=config.bias_scale,
        classes=classes,
        positive=np.tile(positive, len(costs)),
        negative=np.tile(negative, len(costs)),
        kernel=kernel,
        centre=centre,
    )


def centre_of(store: RowBlocks, bias: str, bias_scale: float, kernel: Kernel) -> Centre | None:
    """The centre of rows that count as centred but are stored as they were: sparse rows with --scale standard.

    None for all other rows, and for a free bias, which makes up for the means.  Raises Unsupported for a kernel whose
    values change if all rows are shifted.
    """
    scaling = Scaling.of(store.recipe)
    if scaling is None or scaling.shift is None or scaling.centred:
        return None
    if kernel.name not in ("linear", "rbf"):
        what = f"--scale standard leaves the means of sparse rows in them, and the {kernel.name} kernel sees them"
        raise Unsupported(what, store.uri, "choose the kernel rbf or linear, or --scale maxabs")
    if bias == "free" or kernel.name != "linear":
        return None
    return Centre(scaling.shift, 1.0 if bias == "none" else bias_scale, bias != "none")


def make_kernel(config: FitConfig, n_features: int) -> Kernel:
    """The kernel that `config` names; gamma 'auto' is 1 / n_features.  Raises UsageError.

    gamma 'scale' is computed from the rows.  A plan does not read them, so it counts as 'auto' until the fit does
    (`run/fit/gamma.py`).
    """
    gamma = 1.0 / max(n_features, 1) if config.gamma in ("auto", "scale") else float(config.gamma)
    definite = Definite("assumed" if config.assume_psd else "undecided")
    return Kernel(config.kernel, gamma, config.degree, config.coef0, definite)


def pairwise(config: FitConfig) -> bool:
    """Whether more than two classes are told apart by a model for each pair."""
    return config.of_kernel if config.multi_class is None else config.multi_class == "ovo"


def _regression(config: FitConfig, store: RowBlocks, loss: Loss, kernel: Kernel, centre: Centre | None) -> Problem:
    """The problem of a regression: one model for each C, no classes; the class code of each row is 0."""
    if store.classes is not None:
        raise no_targets(store, f"{config.loss} needs targets and the store holds classes")
    if config.class_weight is not None:
        raise UsageError("class weights need classes", hint="weights of rows: --weight NAME")
    costs = np.array(config.costs(store.n_samples))
    zeros = np.zeros(len(costs), np.int32)
    return Problem(
        loss, costs, np.ones(1), config.bias, config.bias_scale, np.empty(0), zeros, zeros - 1, kernel, centre
    )  # fmt: skip


def _one_class(config: FitConfig, store: RowBlocks, loss: Loss, kernel: Kernel, centre: Centre | None) -> Problem:
    """The problem of a one-class model: its classes are 1 for rows like those of the fit, and -1 for others."""
    if store.n_features < 1:
        raise DataError("the rows have no features", store.uri)
    if config.class_weight is not None:
        raise UsageError("one_class has no class weights", hint="leave them out; for weights of rows use --weight NAME")
    if store.recipe.get("labels", {}).get("positive") is not None:
        what = "one_class fits all rows, whatever their labels: --positive would choose none"
        raise UsageError(what, store.uri, "give it a store of the rows of that class, or leave --positive out")
    one = np.ones(1, np.int32)
    return Problem(
        loss, np.ones(1), np.ones(2), config.bias, config.bias_scale, np.array([-1, 1]), one, one - 2, kernel, centre
    )  # fmt: skip


def _of_sets(config: FitConfig, store: RowBlocks, loss: Loss, centre: Centre | None) -> Problem:
    """The problem for rows with several labels: a model for each label against the rest."""
    sets = LabelSets.of(store.recipe, store.classes)
    assert sets is not None
    for what, asked in (
        ("a kernel", config.of_kernel or loss.nu is not None), ("pairs of classes", config.multi_class == "ovo"),
        ("a loss of all classes together", loss.joint),
        ("class weights", config.class_weight is not None), ("probabilities", config.calibrate is not None),
        ("a warm start", config.warm_start is not None), ("a path of C", config.C_path is not None),
    ):  # fmt: skip
        if asked:
            hint = "train one label at a time: --label NAME, a column of true and false"
            raise Unsupported(f"rows with several labels do not support {what}", store.uri, hint)
    n_labels, n_sets = sets.member.shape
    labels = np.arange(n_labels, dtype=np.int32)
    return Problem(
        loss, np.repeat(config.costs(store.n_samples), n_labels), np.ones(n_sets), config.bias, config.bias_scale,
        sets.names, labels, np.full(n_labels, -1, np.int32), Kernel(), centre, member=sets.member,
    )  # fmt: skip


def _class_weight(
    config: FitConfig, classes: np.ndarray, counts: np.ndarray | None, positive: str | None
) -> np.ndarray:
    """Weights by class code, float64, (n_classes,).  'balanced' is scikit-learn's n_samples / (n_classes * count).

    positive : the class named by --positive, whose rows are True, while all others are False; None without it
    """
    weights = np.ones(len(classes))
    if config.class_weight is None:
        return weights
    if config.class_weight == "balanced":
        if counts is None:
            raise UsageError("--class-weight balanced needs the class counts")
        return counts.sum() / (len(classes) * np.maximum(counts, 1).astype(np.float64))
    if isinstance(config.class_weight, str):
        raise UsageError(f"class weight must be 'balanced' or label=weight, not {config.class_weight!r}")
    weights, unknown = weights_named(config.class_weight, classes, positive)
    if unknown:
        known = ", ".join(names_of_classes(classes, positive))
        raise UsageError(f"class weight for {unknown[0]!r}, which is no class", hint=f"classes: {known}")
    return weights
