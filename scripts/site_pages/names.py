"""docs/reference/python.md: public names, their signatures and their docstrings, read from the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import bigsvm

ROOT = Path(bigsvm.__file__).parent
_WIDTH = 100
_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
_HEAD = """\
# Python

This page is written by `scripts/reference.py` from signatures and docstrings, and a test holds it to that.
`import bigsvm` is light: what a name needs is loaded when the name is first used.
"""
_GROUPS = {
    "bigsvm": ("", {name: module for name, module in bigsvm._PUBLIC.items() if name != "BigSVMError"}),
    "bigsvm.predictor": (
        "Predictions with NumPy alone; [A model elsewhere](../export.md) has examples.",
        dict.fromkeys(("load", "LinearPredictor", "KernelPredictor"), "bigsvm.predictor"),
    ),
    "bigsvm.sklearn": (
        "Estimators; [Estimators for scikit-learn](../scikit-learn.md) has examples, and what differs.",
        {"LinearSVC": "bigsvm.sklearn.linear.linear_svc", "LinearSVR": "bigsvm.sklearn.linear.linear_svr",
         "SVC": "bigsvm.sklearn.svm.svc", "SVR": "bigsvm.sklearn.svm.svr",
         **dict.fromkeys(("NuSVC", "NuSVR", "OneClassSVM"), "bigsvm.sklearn.nu_svm"),
         **dict.fromkeys(("search", "Search"), "bigsvm.sklearn.search")},
    ),
    "Results": (
        "What a fit and a search return.",
        {"FitResult": "bigsvm.run.fit.outcome", "Certificate": "bigsvm.problem.certificate",
         "LinearModel": "bigsvm.model.linear_model", "KernelModel": "bigsvm.model.kernel_model",
         "TuneResult": "bigsvm.run.tune.result", "Row": "bigsvm.run.tune.result"},
    ),
}  # fmt: skip
_BASES = {"Decides": "bigsvm.model.decide"}
"""Base class -> its module.  Of its methods the pages show those that users call, which are `told_outside`."""


def page() -> str:
    """The whole page."""
    lines = [_HEAD]
    for title, (said, members) in _GROUPS.items():
        lines += [f"## {title}", "", *([said, ""] if said else [])]
        for name, module in members.items():
            lines += [*_described(name, module), ""]
    lines += ["## Errors", "", *_errors()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _tree(module: str) -> ast.Module:
    path = ROOT.parent.joinpath(*module.split("."))
    file = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
    return ast.parse(file.read_text(encoding="utf-8"))


def _described(name: str, module: str) -> Iterator[str]:
    (node,) = (
        one for one in _tree(module).body if isinstance(one, ast.FunctionDef | ast.ClassDef) and one.name == name
    )
    yield from (f"### {name}", "", "```python")
    if isinstance(node, ast.FunctionDef):
        yield from _signature(node, name)
    else:
        yield from _of_class(node)
    yield from ("```", "")
    yield from _prose(ast.get_docstring(node) or "")
    if isinstance(node, ast.ClassDef):
        for method in (*_inherited(node), *_methods(node)):
            (said, *_) = (ast.get_docstring(method) or "").split("\n\n")
            yield from ("", f"**`.{method.name}{_short(method)}`** {' '.join(said.split())}".rstrip())


def _of_class(node: ast.ClassDef) -> Iterator[str]:
    made = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
    if made:
        yield from _signature(made[0], node.name)
        return
    yield f"class {node.name}"
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and not one.target.id.startswith("_"):
            yield f"    {one.target.id}: {ast.unparse(one.annotation)}"


def _methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Public ones that say what they do."""
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and not one.name.startswith("_") and ast.get_docstring(one):
            yield one


def _inherited(node: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Methods for users that a class has from one of `_BASES`."""
    for base in (one.id for one in node.bases if isinstance(one, ast.Name) and one.id in _BASES):
        (found,) = (one for one in _tree(_BASES[base]).body if isinstance(one, ast.ClassDef) and one.name == base)
        for method in _methods(found):
            if any(isinstance(one, ast.Name) and one.id == "told_outside" for one in method.decorator_list):
                yield method


def _short(node: ast.FunctionDef) -> str:
    if any(isinstance(one, ast.Name) and "property" in one.id for one in node.decorator_list):
        return ""
    names = [one.arg for one in (*node.args.posonlyargs, *node.args.args) if one.arg not in ("self", "cls")]
    names += [f"{one.arg}=..." for one in node.args.kwonlyargs]
    return f"({', '.join(names)})"


def _signature(node: ast.FunctionDef, name: str) -> Iterator[str]:
    parts = [part for part in _arguments(node.args) if part not in ("self", "cls")]
    back = f" -> {ast.unparse(node.returns)}" if node.returns is not None and node.name != "__init__" else ""
    whole = f"{name}({', '.join(parts)}){back}"
    if len(whole) <= _WIDTH:
        yield whole
        return
    yield from (f"{name}(", *(f"    {part}," for part in parts), f"){back}")


def _arguments(args: ast.arguments) -> Iterator[str]:
    ordinary = [*args.posonlyargs, *args.args]
    defaults: list[ast.expr | None] = [None] * (len(ordinary) - len(args.defaults)) + list(args.defaults)
    for one, default in zip(ordinary, defaults, strict=True):
        yield _argument(one, default)
    if args.vararg is not None:
        yield f"*{_argument(args.vararg, None)}"
    elif args.kwonlyargs:
        yield "*"
    for one, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield _argument(one, default)
    if args.kwarg is not None:
        yield f"**{_argument(args.kwarg, None)}"


def _argument(one: ast.arg, default: ast.expr | None) -> str:
    text = one.arg if one.annotation is None else f"{one.arg}: {ast.unparse(one.annotation)}"
    return text if default is None else f"{text} = {ast.unparse(default)}"


def _prose(text: str) -> Iterator[str]:
    """A docstring: paragraphs as such, tables of parameters and what is indented as they stand."""
    parts = _SECTION.split(text)
    yield from _paragraphs(parts[0])
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        yield from (f"*{title}*", "", "```text", *body.strip("\n").splitlines(), "```", "")


def _paragraphs(text: str) -> Iterator[str]:
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = block.splitlines()
        if any(line.startswith("  ") or " : " in line for line in lines):
            yield from ("```text", *lines, "```", "")
        elif lines:
            yield from (" ".join(line.strip() for line in lines), "")


def _errors() -> Iterator[str]:
    """The classes of bigsvm.errors, each with its exit code."""
    yield from (
        "All are in `bigsvm.errors`, and `bigsvm.BigSVMError` is the base of all.",
        "Each has `what`, `where`, `hint` and `code`.",
        "[Errors](../errors.md) has messages, causes and remedies.",
        "",
        "| class | exit code | meaning |",
        "|---|---|---|",
    )
    import bigsvm.errors

    for node in _tree("bigsvm.errors").body:
        if isinstance(node, ast.ClassDef):
            (said, *_) = (ast.get_docstring(node) or "").split("\n\n")
            yield f"| `{node.name}` | {getattr(bigsvm.errors, node.name).code} | {' '.join(said.split())} |"
