"""Programs of scripts/ as modules."""

from __future__ import annotations

import importlib.machinery
import pathlib
import types

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"


def load(name: str) -> types.ModuleType:
    """A program of scripts/ as a module."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(SCRIPTS / name))
    module = types.ModuleType(loader.name)
    module.__file__ = loader.path
    loader.exec_module(module)
    return module
