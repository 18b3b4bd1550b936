"""Parts are compiled for their callers alone: not optimised by themselves, and never made into machine code.

A part is a function that only compiled functions call.  They take in its code in LLVM's intermediate form, and it is
optimised with theirs.  numba does both for each part as well, which took a sixth of the CPU time of compiling
(docs/measurements.md 11.2).
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numba
from numba import _dynfunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult

WITH_CALLERS = numba.__version__.startswith("0.68.")
"""Whether parts are compiled as this module says: it uses what numba may change.  Other versions compile as they do."""
_BITCODE = "bitcode of a part"
_Result: Any = CompileResult


class PartLibrary(JITCodeLibrary):
    """The code of one part, with that of the parts that it calls."""

    def _optimize_final_module(self) -> None:
        """Nothing to do: its callers are optimised."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def serialize_using_object_code(self) -> tuple[str, str, bytes]:
        return self.name, _BITCODE, self._get_module_for_linking().as_bitcode()


class PartCompiler(Compiler):
    """numba's compiler, for a part."""

    def define_pipelines(self) -> Any:
        self.state.library = PartLibrary(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        self.state.targetctx.get_executable = _not_executable  # of a copy of the context, for this part
        return super().define_pipelines()


def rebuilt(target_context: Any, reduced: tuple[Any, ...]) -> Any:
    """A part as it was compiled.  reduced : what `CompileResult._reduce` returned"""
    (name, kind, code), fndesc, environment, signature, objectmode, lifted, annotation, again, environments = reduced
    if kind != _BITCODE:
        raise ValueError(f"{name} is {kind}")
    for initialise in again:
        initialise()
    library = PartLibrary(target_context.codegen(), name)
    library._final_module = llvm.parse_bitcode(code)
    library._finalize_final_module()
    return _Result(
        target_context=target_context,
        typing_context=target_context.typing_context,
        library=library,
        environment=environment,
        entry_point=_not_executable(library, fndesc, environment),
        fndesc=fndesc,
        type_annotation=annotation,
        signature=signature,
        objectmode=objectmode,
        lifted=lifted,
        typing_error=None,
        call_helper=None,
        metadata=None,
        reload_init=again,
        referenced_envs=environments,
    )


def set_environments(result: Any) -> None:
    """Give a function that was compiled the environments of its parts, which numba sets where it emits them."""
    if not WITH_CALLERS:
        return
    for environment in result._find_referenced_environments():
        result.library.codegen.set_env(environment.env_name, environment)


def _not_executable(library: Any, fndesc: Any, environment: Any) -> Any:
    """What stands for the part in numba's tables, by which nobody calls it."""
    name = fndesc.qualname.split(".")[-1]
    return _dynfunc.make_function(fndesc.lookup_module(), name, "a part", 0, environment, (library,))
