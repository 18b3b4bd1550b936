"""A program's beginning: what has been compiled or loaded so far, for tests that compare it before and after."""

from __future__ import annotations

SIGNATURES = """
import importlib, json, pkgutil, sys
from numba.core.dispatcher import Dispatcher
import bigsvm.compiled

folder = pkgutil.walk_packages(bigsvm.compiled.__path__, "bigsvm.compiled.")
modules = [importlib.import_module(found.name) for found in folder]

def signatures():
    return {
        (name, str(signature)) for module in modules for name, found in vars(module).items()
        if isinstance(found, Dispatcher) for signature in found.overloads
    }
"""
