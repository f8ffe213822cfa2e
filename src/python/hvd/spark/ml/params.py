"""The estimators' parameters in Spark ML's form: set and get methods come from the table in defaults.py."""

from __future__ import annotations

from typing import Any

from pyspark.ml.param import Param, Params

from hvd.spark.ml.defaults import ACCEPTED, PARAMS

# Horovod's method names that cannot be derived from the parameter's name.
_METHODS = {
    "shuffle_buffer_size": "ShufflingBufferSize", "train_reader_num_workers": "TrainReaderNumWorker",
    "val_reader_num_workers": "ValReaderNumWorker", "inmemory_cache_all": "InMemoryCacheAll", "num_gpus": "NumGPUs",
}  # fmt: skip


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


class EstimatorParams(Params):  # type: ignore[misc]
    """Parameters as attributes of the class, with setBatchSize(…) and getBatchSize() for each."""

    def _take(self, given: dict[str, Any]) -> None:
        self._setDefault(**{name: default for name, (default, _) in PARAMS.items()}, **ACCEPTED)
        self.setParams(**given)

    def setParams(self, **given: Any) -> Any:
        """Sets several parameters; None leaves one unchanged.  Errors: TypeError for an unknown one."""
        unknown = [name for name in given if name not in PARAMS and name not in ACCEPTED]
        if unknown:
            raise TypeError(f"unknown parameter {', '.join(unknown)}; there are {', '.join(PARAMS)}")
        return self._set(**{name: value for name, value in given.items() if value is not None})

    def value(self, name: str) -> Any:
        """The set value, else the default."""
        return self.getOrDefault(self.getParam(name))


def _add(name: str, text: str) -> None:
    setattr(EstimatorParams, name, Param(Params._dummy(), name, text))  # type: ignore[no-untyped-call]

    def put(self: Any, value: Any) -> Any:
        return self._set(**{name: value})

    def get(self: Any) -> Any:
        return self.value(name)

    for spelling in {_camel(name), _METHODS.get(name, _camel(name))}:
        setattr(EstimatorParams, f"set{spelling}", put)
        setattr(EstimatorParams, f"get{spelling}", get)


for _name, (_default, _text) in PARAMS.items():
    _add(_name, _text)
for _name in ACCEPTED:
    _add(_name, "accepted as in Horovod; changes nothing")

__all__ = ["EstimatorParams"]
