"""A model as an ONNX graph, built node by node: scaling of rows, kernel, scores and labels as in `predict`.

    input   X       float32, (n, n_features)   precomputed kernel: kernel values with each training row
    output  label   (n,), in the type of the classes: int64, double, bool or string; regression: `value`, float32, (n,)
    output  scores  float32, (n,) for one model, else (n, n_models): classes, or pairs in the order (0, 1), (0, 2), ...
    output  probabilities  float32, (n, n_classes), if the model is calibrated

All arithmetic is float64, so scores equal bigsvm's except for the last rounding to float32, and labels are decided
before that rounding.  For the rbf kernel the median of the support vectors is first subtracted from rows and support
vectors.  This leaves distances as they are, and loses no digits if all vectors are far from the origin.  For the few
support vectors far from the others, distances are computed from differences.
"""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np

from bigsvm.csr import CSR
from bigsvm.errors import UsageError
from bigsvm.model.decide import Decides
from bigsvm.model.exchange.onnx_probability import add_probabilities, check_curves
from bigsvm.model.exchange.text_model import scale_of
from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.linear_model import LinearModel
from bigsvm.model.support import gathered
from bigsvm.store.transforms.scaling import Scaling

OPSET, IR = 17, 8  # the versions that runtimes of 2022 read
_DIGITS = 1e-9  # tolerated error of the exponent of rbf, where |x - s|^2 is computed from squares and products
_MOST_FAR = 256  # limit of support vectors whose distances come from differences: each takes n_features values a row
_MOST_BYTES = 2**31 - (1 << 20)  # just below protobuf's limit of 2 GiB


class _Graph:
    """Nodes and constants, each named after its output."""

    def __init__(self, helper: Any, numpy_helper: Any) -> None:
        self._helper, self._numpy_helper = helper, numpy_helper
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, op: str, *inputs: str | np.ndarray, name: str = "", **attributes: Any) -> str:
        """Add a node, and return the name of its output.  Arrays among the inputs become constants."""
        names = [self.constant(part) if isinstance(part, np.ndarray) else part for part in inputs]
        output = name or f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(op, names, [output], **attributes))
        return output

    def constant(self, values: np.ndarray) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(self._numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name


def write(file: BinaryIO, model: Decides) -> None:
    """Write the graph.  Raises UsageError if `onnx` is not installed, or the format cannot hold the model."""
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise UsageError("export to ONNX needs onnx", hint="pip install 'bigsvm[onnx]'") from error
    scale_of(model)
    calibrated = "calibration" in model.about
    if calibrated:
        check_curves(model)
    kernel = isinstance(model, KernelModel)
    _check_size(model)
    graph = _Graph(helper, numpy_helper)
    X = _scaled(graph, Scaling.of(model.about.get("rows", {})), TensorProto)
    sums = _of_kernel(graph, model, X) if kernel else graph.add("MatMul", X, _f64(model.weights).T)
    scores = graph.add("Add", sums, _f64(model.intercept))
    one = model.n_models == 1
    flat = graph.add("Squeeze", scores, np.array([1], np.int64)) if one else scores
    rows: list[Any] = ["n"] if one else ["n", model.n_models]
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, rows)]
    if model.regression:
        outputs = [helper.make_tensor_value_info("value", TensorProto.FLOAT, ["n"])]
        graph.add("Cast", flat, name="value", to=TensorProto.FLOAT)
    else:
        graph.add("Cast", flat, name="scores", to=TensorProto.FLOAT)
        classes = model.classes.astype(object) if model.classes.dtype.kind == "U" else model.classes
        graph.add("Gather", classes, _codes(graph, model, flat, TensorProto), name="label", axis=0)
        kind = TensorProto.STRING if classes.dtype == object else helper.np_dtype_to_tensor_dtype(classes.dtype)
        outputs.insert(0, helper.make_tensor_value_info("label", kind, ["n"]))
    if calibrated:
        add_probabilities(
            graph, model.about["calibration"], _class_scores(graph, model, scores, TensorProto), TensorProto
        )
        outputs.append(helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", len(model.classes)]))
    inputs = [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["n", model.n_features])]
    made = helper.make_model(
        helper.make_graph(graph.nodes, "bigsvm", inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR, producer_name="bigsvm",
    )  # fmt: skip
    onnx.checker.check_model(made)
    file.write(made.SerializeToString(deterministic=True))


def _f64(values: Any) -> np.ndarray:
    return np.asarray(values, np.float64)


def _check_size(model: Any) -> None:
    """Raise UsageError if the model is too large for one file, in which weights and support vectors are dense."""
    wide = model.n_features if isinstance(model, LinearModel) or model.support is not None else 1
    many = model.n_models if isinstance(model, LinearModel) else model.n_support
    nbytes = 8 * many * (wide + (0 if isinstance(model, LinearModel) else model.n_models)) + 16 * model.n_features
    if nbytes > _MOST_BYTES:
        raise UsageError(
            f"the graph would take {nbytes:,} bytes, and an ONNX file holds at most {_MOST_BYTES:,}",
            hint="--format npz",
        )


def _scaled(graph: _Graph, scaling: Scaling | None, types: Any) -> str:
    """The node of scaled rows, in float64: the steps and the rounding of `Scaling.apply`."""
    if scaling is None:
        return graph.add("Cast", "X", to=types.DOUBLE)
    if scaling.centred and scaling.mean is not None and scaling.largest is not None:
        apart = graph.add("Sub", graph.add("Cast", "X", to=types.DOUBLE), scaling.mean)
        centred = graph.add("Cast", graph.add("Div", apart, scaling.largest), to=types.FLOAT)
        return graph.add("Cast", centred, to=types.DOUBLE)
    if scaling.largest is not None:
        divisors = scaling.divisors(np.dtype(np.float32))
        if divisors.dtype == np.float32:
            return graph.add("Cast", graph.add("Div", "X", divisors), to=types.DOUBLE)
        divided = graph.add("Div", graph.add("Cast", "X", to=types.DOUBLE), divisors)
        return graph.add("Cast", graph.add("Cast", divided, to=types.FLOAT), to=types.DOUBLE)
    wide = graph.add("Cast", "X", to=types.DOUBLE)
    squares = graph.add("ReduceSum", graph.add("Mul", wide, wide), np.array([1], np.int64), keepdims=1)
    norms = graph.add("Sqrt", squares)
    some = graph.add("Greater", norms, np.zeros((), np.float64))
    scaled = graph.add("Div", wide, graph.add("Where", some, norms, np.ones((), np.float64)))
    return graph.add("Cast", graph.add("Cast", scaled, to=types.FLOAT), to=types.DOUBLE)


def _of_kernel(graph: _Graph, model: Any, X: str) -> str:
    """The node of sum_s dual_coef K(s, x), (n, n_models)."""
    kernel, coef = model.kernel, _f64(model.dual_coef).T
    if model.support is None:
        return graph.add("MatMul", graph.add("Gather", X, np.asarray(model.support_rows), axis=1), coef)
    S = _dense(model.support, model.n_features)
    if kernel.name == "rbf":
        return _of_rbf(graph, kernel.gamma, S, coef, X)
    values = graph.add("MatMul", X, S.T)
    if kernel.name in ("poly", "sigmoid"):
        inner = graph.add("Add", graph.add("Mul", values, np.array(kernel.gamma)), np.array(float(kernel.coef0)))
        power = np.array(float(kernel.degree))
        values = graph.add("Pow", inner, power) if kernel.name == "poly" else graph.add("Tanh", inner)
    return graph.add("MatMul", values, coef)


def _of_rbf(graph: _Graph, gamma: float, S: np.ndarray, coef: np.ndarray, X: str) -> str:
    """The node of sum_s dual_coef exp(-gamma |x - s|^2), (n, n_models).  S : dense, (n_support, n_features)"""
    middle, S, squares = _moved(S)
    X = graph.add("Sub", X, middle)
    far = far_from_others(gamma, squares)
    x_sq = graph.add("ReduceSum", graph.add("Mul", X, X), np.array([1], np.int64), keepdims=1)
    apart = graph.add("Sub", graph.add("Add", x_sq, squares[~far][None]),
                      graph.add("Mul", graph.add("MatMul", X, S[~far].T), np.array(2.0)))  # fmt: skip
    distance = graph.add("Max", apart, np.array(0.0))
    scores = graph.add("MatMul", _exp(graph, gamma, distance), coef[~far])
    if not far.any():
        return scores
    differences = graph.add("Sub", graph.add("Unsqueeze", X, np.array([1], np.int64)), S[far][None])
    squared = graph.add("Mul", differences, differences)
    distance = graph.add("ReduceSum", squared, np.array([2], np.int64), keepdims=0)
    return graph.add("Add", scores, graph.add("MatMul", _exp(graph, gamma, distance), coef[far]))


def _moved(S: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(median of the support vectors, (n_features,); the vectors minus it; their squared norms then, (n_support,))."""
    middle = np.median(S, axis=0) if len(S) else np.zeros(S.shape[1])
    S = S - middle
    return middle, S, np.einsum("ij,ij->i", S, S)


def far_from_others(gamma: float, squares: np.ndarray) -> np.ndarray:
    """Which support vectors are so far from the median that |x|^2 + |s|^2 - 2 x.s would lose small distances.

    squares : their squared distances from the median, float64, (n_support,)
    """
    far = gamma * squares * np.finfo(np.float64).eps > _DIGITS
    if np.count_nonzero(far) > _MOST_FAR:  # keep the farthest
        far &= squares >= np.sort(squares)[-_MOST_FAR]
    return np.asarray(far)


def digits_are_lost(model: Any) -> bool:
    """Whether the scores of the graph of an rbf model may differ from bigsvm's in significant digits."""
    if not isinstance(model, KernelModel) or model.kernel.name != "rbf" or model.support is None:
        return False
    _, _, squares = _moved(_dense(model.support, model.n_features))
    near = squares[~far_from_others(model.kernel.gamma, squares)]
    return bool(np.any(model.kernel.gamma * near * np.finfo(np.float64).eps > 1e3 * _DIGITS))


def _exp(graph: _Graph, gamma: float, distance: str) -> str:
    return graph.add("Exp", graph.add("Mul", distance, np.array(-gamma)))


def _dense(support: Any, n_features: int) -> np.ndarray:
    support = gathered(support)
    if not isinstance(support, CSR):
        return _f64(support)
    out = np.zeros((len(support.indptr) - 1, n_features))
    out[np.repeat(np.arange(len(out)), np.diff(support.indptr)), support.indices] = support.data
    return out


def _codes(graph: _Graph, model: Decides, scores: str, types: Any) -> str:
    """The node of class codes (n,), int64, as in `Decides.codes`: 0 is the negative class, the first wins ties."""
    order, zero = model.tie_order, np.array(0.0)
    if model.n_models == 1:
        compare = "Greater" if order is None else "GreaterOrEqual"
        return graph.add("Cast", graph.add(compare, scores, zero), to=types.INT64)
    order = np.arange(len(model.classes)) if order is None else order
    scores = _votes(graph, model, scores, types) if model.pairs else scores
    best = graph.add("ArgMax", graph.add("Gather", scores, order, axis=1), axis=1, keepdims=0)
    return graph.add("Gather", order, best, axis=0)


def _votes(graph: _Graph, model: Decides, scores: str, types: Any) -> str:
    """The node of votes of the classes, float64, (n, n_classes); for one against one."""
    order, n_classes = model.tie_order, len(model.classes)
    first, second = np.eye(n_classes)[model.positive], np.eye(n_classes)[model.negative]
    earlier = np.arange(n_classes) if order is None else np.argsort(order)
    at_zero = (earlier[model.positive] > earlier[model.negative])[None]
    zero = np.array(0.0)
    level = graph.add("And", graph.add("Equal", scores, zero), at_zero)
    won = graph.add("Cast", graph.add("Or", graph.add("Greater", scores, zero), level), to=types.DOUBLE)
    return graph.add("Add", graph.add("MatMul", won, first - second), second.sum(axis=0))


def _class_scores(graph: _Graph, model: Decides, scores: str, types: Any) -> str:
    """The node of `Decides.class_scores`, float64: the input of a calibration."""
    if not model.pairs:
        return scores
    n_classes = len(model.classes)
    sides = np.eye(n_classes)[model.positive] - np.eye(n_classes)[model.negative]
    sums = graph.add("MatMul", scores, sides)
    size = graph.add("Mul", graph.add("Add", graph.add("Abs", sums), np.array(1.0)), np.array(3.0))
    return graph.add("Add", _votes(graph, model, scores, types), graph.add("Div", sums, size))
