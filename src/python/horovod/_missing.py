"""Modules that Horovod has and hvdrun lacks: an import of one says so, and what to do instead."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["advice_for", "install"]

_LAUNCHER = "it is a part of Horovod's own launcher: call horovod.run(), or start the job with hvdrun"
_SPARK_LAUNCHER = "it is a part of Horovod's own launcher: call horovod.spark.run() or horovod.spark.run_elastic()"
_KERAS_ESTIMATOR = "import KerasEstimator and KerasModel from horovod.spark.keras"
_TORCH_ESTIMATOR = "import TorchEstimator and TorchModel from horovod.spark.torch"
_SPARK_COMMON = (
    "stores are in horovod.spark.common.store, estimators in horovod.spark.keras, horovod.spark.torch and "
    "horovod.spark.lightning"
)
_COMPILED = "nothing is compiled for a framework: import the framework's package, as in `import horovod.torch as hvd`"
_OPTIMIZER = "backward_passes_per_step is an argument of DistributedOptimizer"

# Each stands also for the modules in it; the longest match counts.
INSTEAD = {
    "horovod._keras": "import horovod.keras, or horovod.tensorflow.keras",
    "horovod.mxnet.mpi_lib": _COMPILED,
    "horovod.ray.driver_service": _LAUNCHER,
    "horovod.ray.utils": _LAUNCHER,
    "horovod.runner.common.service": _LAUNCHER,
    "horovod.runner.common.util": _LAUNCHER,
    "horovod.runner.driver": _LAUNCHER,
    "horovod.runner.elastic": _LAUNCHER,
    "horovod.runner.gloo_run": _LAUNCHER,
    "horovod.runner.http": _LAUNCHER,
    "horovod.runner.js_run": _LAUNCHER,
    "horovod.runner.mpi_run": _LAUNCHER,
    "horovod.runner.run_task": _LAUNCHER,
    "horovod.runner.task": _LAUNCHER,
    "horovod.runner.task_fn": _LAUNCHER,
    "horovod.runner.util": _LAUNCHER,
    "horovod.spark.common": _SPARK_COMMON,
    "horovod.spark.conf": _SPARK_LAUNCHER,
    "horovod.spark.data_loaders": "the estimators read their tables by themselves; a reader of your own is a data_module",
    "horovod.spark.driver": _SPARK_LAUNCHER,
    "horovod.spark.gloo_run": _SPARK_LAUNCHER,
    "horovod.spark.keras": _KERAS_ESTIMATOR,
    "horovod.spark.lightning": "import TorchEstimator and TorchModel from horovod.spark.lightning",
    "horovod.spark.mpi_run": _SPARK_LAUNCHER,
    "horovod.spark.runner": _SPARK_LAUNCHER,
    "horovod.spark.task": _SPARK_LAUNCHER,
    "horovod.spark.torch": _TORCH_ESTIMATOR,
    "horovod.tensorflow.gradient_aggregation": _OPTIMIZER,
    "horovod.tensorflow.gradient_aggregation_eager": _OPTIMIZER,
    "horovod.tensorflow.mpi_lib": _COMPILED,
    "horovod.torch.mpi_lib": _COMPILED,
    "horovod.torch.mpi_lib_v2": _COMPILED,
}


def advice_for(name: str) -> str | None:
    """Advice: what to use in place of that module.  None: Horovod has no known module of that name."""
    while name:
        if name in INSTEAD:
            return INSTEAD[name]
        name = name.rpartition(".")[0]
    return None


class _Finder:
    """Finds modules that no other finder has found; their import raises an error with advice."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        return ModuleSpec(name, _Finder()) if name.startswith("horovod.") and advice_for(name) else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """See importlib.abc.Loader."""

    def exec_module(self, module: ModuleType) -> None:
        """Raises ImportError: `from horovod import ray` would swallow a ModuleNotFoundError's text."""
        name = module.__name__
        raise ImportError(f"{name} is not there in hvdrun: {advice_for(name)}", name=name)


def install() -> None:
    """Adds the finder to the import system."""
    sys.meta_path.append(_Finder)  # type: ignore[arg-type]
