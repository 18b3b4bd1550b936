"""Errors of the Python functions: their classes, their words, and the paths that they name."""

from __future__ import annotations

import inspect
import itertools
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import bigsvm
from bigsvm import errors, predictor
from bigsvm.config import OPTIONS, FitConfig
from bigsvm.errors import BigSVMError, DataError, MissingInput, PlanRefused, UsageError
from bigsvm.python_api import spelling
from bigsvm.python_api.spelling import OF_ESTIMATORS, in_python
from bigsvm.python_api.told import _BUILTIN, for_python, told_in_python
from tests.cli.conftest import Bigsvm
from tests.cli.conftest import bigsvm as command

__all__ = ["command"]

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, BigSVMError)]
CAUSES: list[OSError | None] = [None, FileNotFoundError(2, "no"), PermissionError(13, "no"), OSError(28, "full")]
X = np.random.default_rng(0).standard_normal((60, 3))
Y = (X[:, 0] > 0).astype(int)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: type(cause).__name__)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_is_of_both_classes_and_survives_a_pickle(kind: Any, cause: Any) -> None:
    plain = kind("what fails", "where it lies", "use --memory 5MiB")
    plain.__cause__ = cause
    told = for_python(plain)
    builtin = next((builtin for ours, builtin in _BUILTIN.items() if issubclass(kind, ours)), Exception)
    if builtin is FileNotFoundError and isinstance(cause, PermissionError):
        builtin = PermissionError
    for error in (told, for_python(told), pickle.loads(pickle.dumps(told)), pickle.loads(pickle.dumps(plain))):
        assert isinstance(error, kind)
        assert error.code == kind.code
        assert (error.what, error.where) == ("what fails", "where it lies")
        assert type(error).__name__ == kind.__name__
    for error in (told, for_python(told), pickle.loads(pickle.dumps(told))):
        assert isinstance(error, builtin)
        assert str(error) == 'where it lies: what fails (use memory="5MiB")'
        if isinstance(error, OSError):
            assert error.filename == "where it lies"
    assert str(plain) == "where it lies: what fails (use --memory 5MiB)"  # the command line says it so
    assert not isinstance(plain, OSError | MemoryError | ValueError)


CALLS: dict[str, tuple[Callable[[Path], Any], type[Exception], type[BigSVMError]]] = {
    "fit a missing store": (lambda at: bigsvm.fit(at / "no.zarr"), FileNotFoundError, MissingInput),
    "open a missing store": (lambda at: bigsvm.open_store(at / "no.zarr"), FileNotFoundError, MissingInput),
    "ingest missing text": (lambda at: bigsvm.ingest(at / "no.svm", at / "o.zarr"), FileNotFoundError, MissingInput),
    "tune a missing store": (lambda at: bigsvm.tune(at / "no.zarr"), FileNotFoundError, MissingInput),
    "load a missing model": (lambda at: bigsvm.load_model(at / "no.model"), FileNotFoundError, MissingInput),
    "predict by a missing model": (lambda at: predictor.load(at / "no.model"), FileNotFoundError, MissingInput),
    "certify a missing model": (lambda at: bigsvm.certify(at / "no.model", (X, Y)), FileNotFoundError, MissingInput),
    "export a missing model": (lambda at: bigsvm.export_model(at / "no", at / "o.npz"), OSError, MissingInput),
    "import a missing model": (lambda at: bigsvm.import_model(at / "no.npz"), FileNotFoundError, MissingInput),
    "fit in no memory": (lambda at: bigsvm.fit((X, Y), memory=1), MemoryError, PlanRefused),
    "fit a path in no memory": (lambda at: bigsvm.fit_path((X, Y), [1.0], memory=1), MemoryError, PlanRefused),
    "fit one class": (lambda at: bigsvm.fit((X, Y * 0)), ValueError, DataError),
    "fit an unknown loss": (lambda at: bigsvm.fit((X, Y), loss="no"), ValueError, UsageError),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_functions_raise_what_a_python_user_catches(name: str, tmp_path: Path) -> None:
    call, builtin, ours = CALLS[name]
    for kind in (builtin, ours):
        with pytest.raises(kind) as raised:
            call(tmp_path)
        assert "--" not in str(raised.value)
        assert not str(raised.value).startswith("memory")


ESTIMATORS = ["LinearSVC", "LinearSVR", "SVC", "SVR", "NuSVC", "NuSVR", "OneClassSVM"]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_raise_them_too(name: str, tmp_path: Path) -> None:
    kind = getattr(pytest.importorskip("bigsvm.sklearn"), name)
    with pytest.raises(FileNotFoundError, match="no such store"):
        kind().fit(tmp_path / "no.zarr")
    with pytest.raises(MemoryError, match=r'memory cannot hold this fit; .* \(use memory="\d+MiB"\)'):
        kind(memory=1).fit(X, Y)
    assert {theirs for theirs in OF_ESTIMATORS.values() if hasattr(kind(), theirs)} >= {"memory", "threads", "tol"}


BAD: dict[str, Any] = {
    "narrow": np.ones((2, 1)), "wide": np.ones((2, 5)), "one row": np.ones(3), "text": np.array([["a", "b", "c"]]),
    "not finite": np.full((1, 3), np.nan), "sparse and wide": csr_array(np.eye(7)), "nothing": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A result, and models from all places from which a user has one."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    folder = tmp_path_factory.mktemp("models")
    found: dict[str, Any] = {}
    for kernel in ("linear", "rbf"):
        result = bigsvm.fit((X, X[:, 0] > 0), kernel=kernel)
        result.save_model(folder / kernel)
        found |= {f"result {kernel}": result, f"model {kernel}": result.model}
        found[f"loaded {kernel}"] = bigsvm.load_model(folder / kernel)
        found[f"predictor {kernel}"] = predictor.load(folder / kernel)
        found[f"unpickled {kernel}"] = pickle.loads(pickle.dumps(result.model))
    return found


@pytest.mark.parametrize("method", ["decision_function", "predict", "predict_proba"])
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("origin", ["model", "loaded", "predictor", "unpickled"])
def test_methods_of_models_raise_what_functions_raise(
    origin: str, kernel: str, bad: str, method: str, models: dict[str, Any]
) -> None:
    with pytest.raises(ValueError) as caught:
        getattr(models[f"{origin} {kernel}"], method)(BAD[bad])
    assert isinstance(caught.value, DataError)
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), ValueError)


@pytest.mark.parametrize("origin", ["result", "model", "loaded", "unpickled"])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize(
    ("where", "kind"),
    [("taken", OSError), ("file/in", NotADirectoryError), ("s3://a/m", OSError), ("m" * 300, OSError)],
)
def test_a_model_that_cannot_be_written_is_an_os_error(
    origin: str, kernel: str, where: str, kind: type[OSError], models: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").write_text("")
    found = models[f"{origin} {kernel}"]
    with pytest.raises(kind) as caught:
        (found.save_model if origin == "result" else found.save)(where if "://" in where else tmp_path / where)
    assert isinstance(caught.value, errors.OutputError)
    assert "--overwrite" not in str(caught.value)
    assert ("overwrite=True" in str(caught.value)) == (where == "taken")


def test_probabilities_of_a_model_that_has_none_are_a_value_error(models: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"calibrate=.sigmoid") as caught:
        models["model linear"].predict_proba(np.ones((1, 3)))
    assert isinstance(caught.value, UsageError)


def test_callers_in_the_package_get_errors_as_they_are_raised(models: dict[str, Any], tmp_path: Path) -> None:
    """Commands name flags, and `except OSError` must not take what is no failure of the system."""
    inside: dict[str, Any] = {"__name__": "bigsvm.somewhere"}
    exec("def call(method, *args): return method(*args)", inside)
    (tmp_path / "taken").mkdir()
    for method, argument in (("save", tmp_path / "taken"), ("predict", np.ones((1, 1)))):
        with pytest.raises(BigSVMError) as caught:
            inside["call"](getattr(models["model linear"], method), argument)
        assert not isinstance(caught.value, OSError | ValueError)


def test_public_functions_are_found_by_a_pickle_and_show_their_arguments() -> None:
    for name in ("fit", "fit_path", "tune", "ingest", "open_store", "load_model", "certify"):
        function = getattr(bigsvm, name)
        assert pickle.loads(pickle.dumps(function)) is function
        assert len(inspect.signature(function).parameters) >= 1
        assert function.__doc__


def test_every_option_has_a_parameter() -> None:
    functions = [bigsvm.fit, bigsvm.ingest, bigsvm.tune, bigsvm.open_store, bigsvm.export_model, bigsvm.fit_path]
    known = {name for function in functions for name in inspect.signature(function).parameters}
    known |= {name for name in OPTIONS if hasattr(FitConfig(), name)} | {"refit"}  # an option of `tune`
    assert {option.name for option in spelling._options().values()} <= known


SAID = {
    "use --memory 128MiB, or a coarser grid": 'use memory="128MiB", or a coarser grid',
    "leave out --label and --weight": "leave out label and weight",
    "--format onnx or npz keeps any label": 'format="onnx" or "npz" keeps any label',
    "leave --assume-psd out": "leave assume_psd out",
    "; --assume-psd vouches for it": "; assume_psd=True vouches for it",
    "(--no-dual)": "(no_dual=True)",
    "--no-shrinking": "shrinking=False",
    "-s smo --loss hinge, whose bias": 'solver="smo" loss="hinge", whose bias',
    "(--set max_features=7 lifts it)": '(solver_options={"max_features": 7} lifts it)',
    "--storage-option etag=opaque": 'storage_options={"etag": "opaque"}',
    "use --labels A,B for rows": 'use labels="A,B" for rows',
    "--rows '`x` is not null' leaves": "rows='`x` is not null' leaves",
    "--c 1 or --lambda 0.5": "C=1 or lam=0.5",
    "with --max-passes N a fit": "with max_passes=N a fit",
    "use --scratch DIR, a folder": "use scratch=DIR, a folder",
    "start again: bigsvm fit ... --overwrite": "start again: bigsvm fit ... --overwrite",
    "bigsvm ingest --split 0.9 records one; or name it: --split 0.9": (
        "bigsvm ingest --split 0.9 records one; or name it: split=0.9"
    ),
    "dask worker --scheduler-file FILE": "dask worker --scheduler-file FILE",
    "the file /a/run--memory 5 of -inf": "the file /a/run--memory 5 of -inf",
    "no option of Python: --top 5": "no option of Python: --top 5",
}


@pytest.mark.parametrize("text", SAID)
def test_options_are_spelled_as_arguments(text: str) -> None:
    assert in_python(text) == SAID[text]
    assert in_python(SAID[text]) == SAID[text]


def test_estimators_name_their_own_parameters() -> None:
    assert in_python("more --max-passes or --memory 5MiB", True) == 'more max_iter or memory="5MiB"'
    assert in_python("(fit --scale maxabs does)", True) == '(MaxAbsScaler or open_store(..., scale="maxabs") does)'


def _messages() -> list[str]:
    """All texts of the package, apart from the command line and from what is documentation, that name a flag."""
    import ast

    found = []
    for path in Path(bigsvm.__file__).parent.rglob("*.py"):
        if "cli" in path.parts or path.name in ("fit_options.py", "option.py", "spelling.py"):
            continue
        tree = ast.parse(path.read_text())
        said = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in said:
                found.append(node.value)
    return [text for text in found if re.search(r"(?<![\w-])--[a-z]", text) and "<" not in text]


def test_no_message_keeps_the_flag_of_an_option() -> None:
    known = {flag for option in OPTIONS.values() for flag in option.flags.split() if flag.startswith("--")}
    messages = _messages()
    assert len(messages) > 100
    for text in messages:
        left = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", spelling._SHELL.sub("", in_python(text))))
        assert not left & known, text


_OF_PYTHON = re.compile(r"open_store\(|bigsvm\.\w+\(|\b[a-z_]+='[a-z]+'|\bmodel\.about\b")


def test_no_message_of_a_command_speaks_python() -> None:
    """A text that names a call says that it is one of Python, or is the `hint_in_python` of an error."""
    import ast

    wrong = []
    for path in Path(bigsvm.__file__).parent.rglob("*.py"):
        if {"sklearn", "python_api", "testing"} & set(path.parts):
            continue
        tree = ast.parse(path.read_text())
        said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            name = node.targets[0] if isinstance(node, ast.Assign) else None
            if isinstance(name, ast.Name) and name.id == "python":
                said |= {id(part) for part in ast.walk(node)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in said:
                continue
            if _OF_PYTHON.search(node.value) and "in Python" not in node.value:
                wrong.append(f"{path.name}: {node.value}")
    assert not wrong, "\n".join(wrong)


FLIPPED: dict[str, Callable[[str, str], Any]] = {
    "fit": lambda store, model: bigsvm.fit(store),
    "open": lambda store, model: bigsvm.open_store(store).classes,
    "load": lambda store, model: bigsvm.load_model(model),
    "certify": lambda store, model: bigsvm.certify(model, store),
    "ingest": lambda store, model: bigsvm.ingest(store, "again.zarr", overwrite=True),
    "predictor": lambda store, model: predictor.load(model),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and a model."""
    folder = tmp_path_factory.mktemp("sound")
    bigsvm.ingest((X, Y), folder / "rows.zarr")
    bigsvm.fit(folder / "rows.zarr").save_model(folder / "m.model")
    return folder


@pytest.mark.parametrize("way", FLIPPED)
@pytest.mark.parametrize("given", ["relative", "absolute", "upwards", "link"])
def test_a_flipped_byte_is_told_by_the_path_that_was_given(
    given: str, way: str, sound: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sound)
    (sound / "below").mkdir(exist_ok=True)
    if not (sound / "linked").is_symlink():
        (sound / "linked").symlink_to(sound)
    begin = {"relative": "", "absolute": f"{sound}/", "upwards": "../", "link": "linked/"}[given]
    if given == "upwards":
        monkeypatch.chdir(sound / "below")
    told: list[tuple[str, str]] = []
    for file in [path for path in sound.rglob("*") if path.is_file() and not {"linked", "again.zarr"} & {*path.parts}]:
        content = file.read_bytes()
        file.write_bytes(bytes([content[0] ^ 16, *content[1:]]))
        try:
            FLIPPED[way](f"{begin}rows.zarr", f"{begin}m.model")
        except (BigSVMError, ValueError) as error:
            told.append((f"{begin}{file.relative_to(sound).parts[0]}", str(error)))
        finally:
            file.write_bytes(content)
    assert len(told) >= (2 if way in ("load", "predictor") else 5)
    for begins, said in told:
        assert said.startswith(begins)
        assert given == "absolute" or os.fspath(sound) not in said


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=" ".join)
@pytest.mark.parametrize("verb", ["fit", "predict", "certify", "evaluate", "inspect"])
def test_commands_name_it_so_too(
    verb: str, flags: list[str], sound: Path, command: Bigsvm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sound)
    where = {"fit": "rows.zarr/X/c/0/0", "inspect": "m.model/coef.npy"}
    damaged = sound / where.get(verb, "m.model/coef.npy")
    arguments = {
        "fit": ["rows.zarr", "-o", "n.model"],
        "predict": ["m.model", "rows.zarr", "-o", "p.jsonl"],
        "certify": ["m.model", "rows.zarr"],
        "evaluate": ["m.model", "rows.zarr"],
        "inspect": ["m.model"],
    }
    content = damaged.read_bytes()
    damaged.write_bytes(bytes([*content[:-1], content[-1] ^ 16]))
    try:
        done = command(verb, *arguments[verb], *flags)
    finally:
        damaged.write_bytes(content)
    assert done.code == 65, done.err
    assert str(damaged.relative_to(sound)) in done.err
    assert os.fspath(sound) not in done.err


def test_names_that_are_part_of_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bigsvm.files import paths as places

    monkeypatch.setattr(places, "_copies", {})
    monkeypatch.chdir(tmp_path)
    for name in ("a", "a b", "parts/*.csv", "*.csv", str(tmp_path / "whole")):
        places.given_as(name)
    for text, wanted in {
        f"{tmp_path}/a: what": "a: what",
        f"{tmp_path}/a/X/c/0": "a/X/c/0",
        f"{tmp_path}/ab/X": f"{tmp_path}/ab/X",
        f"/mnt{tmp_path}/a": f"/mnt{tmp_path}/a",
        f"'{tmp_path}/a b'": "'a b'",
        f"{tmp_path}/parts/1.csv": "parts/1.csv",
        f"{tmp_path}/whole": f"{tmp_path}/whole",
    }.items():
        assert places.rename(DataError(text)).what == wanted
    for _, again in itertools.product(range(2), (str(tmp_path / "a"),)):
        places.given_as(again)
    assert places.rename(DataError(f"{tmp_path}/a/X")).what == f"{tmp_path}/a/X"


def test_warnings_of_all_that_is_returned_name_arguments() -> None:
    def warned(**more: Any) -> SimpleNamespace:
        return SimpleNamespace(warnings=["use --memory 5MiB"], **more)

    said = ['use memory="5MiB"']
    assert told_in_python(warned)().warnings == said
    assert told_in_python(lambda: [warned(), warned()])()[1].warnings == said
    assert told_in_python(lambda: {"warnings": ["use --memory 5MiB"]})() == {"warnings": said}
    search = told_in_python(lambda: warned(refit=warned()))()
    assert search.warnings == search.refit.warnings == said


def test_names_that_an_error_does_not_have_cost_it_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern was made of every name that the process ever knew, which took its time after some thousand."""
    from bigsvm.files import paths as places

    compiled: list[str] = []

    def counted(pattern: str) -> re.Pattern[str]:
        compiled.append(pattern)
        return re.compile(pattern)

    monkeypatch.setattr(places, "_copies", {f"/tmp/{n}/rows.zarr": f"rows{n}.zarr" for n in range(50)})
    monkeypatch.setattr(places, "re", SimpleNamespace(compile=counted, escape=re.escape))
    assert places.rename(DataError("damaged", "/tmp/7/rows.zarr")).where == "rows7.zarr"
    assert len(compiled) == 1
