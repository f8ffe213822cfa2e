"""Saving and loading of estimators and models like Spark ML's own stages: a metadata file, and one Parquet row.

The row is a cloudpickle of the stage's state.  Loading it runs code from its author, so load only files that you trust, as
with any pickled model.
"""

from __future__ import annotations

from typing import Any

from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter


def _place(session: Any) -> Any:
    """The object that reads and writes metadata: before Spark 4 the context, since then the session."""
    return session.sparkContext if int(session.version.split(".")[0]) < 4 else session


class _Writer(MLWriter):  # type: ignore[misc]
    def __init__(self, stage: Any) -> None:
        super().__init__()
        self.stage = stage

    def saveImpl(self, path: str) -> None:
        import cloudpickle

        session = self.sparkSession
        bare = _Bare(self.stage)
        DefaultParamsWriter.saveMetadata(bare, path, _place(session))  # type: ignore[arg-type]
        row = [(bytearray(cloudpickle.dumps(self.stage.state())),)]
        session.createDataFrame(row, "state binary").coalesce(1).write.parquet(f"{path}/data")


class _Bare:
    """A stage without parameters for saveMetadata: the state has them, because JSON cannot hold their values."""

    def __init__(self, stage: Any) -> None:
        self.uid = stage.uid
        self.__class__ = type(type(stage).__name__, (_Bare,), {"__module__": type(stage).__module__})
        self._paramMap: dict[Any, Any] = {}
        self._defaultParamMap: dict[Any, Any] = {}


class _Reader(MLReader[Any]):  # type: ignore[misc]
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind

    def load(self, path: str) -> Any:
        import pickle

        session = self.sparkSession
        metadata = DefaultParamsReader.loadMetadata(path, _place(session))
        state = session.read.parquet(f"{path}/data").first()
        if state is None:
            raise ValueError(f"{path} holds no saved {self.kind.__name__}")
        stage = self.kind.from_state(pickle.loads(bytes(state[0])))
        stage._resetUid(metadata["uid"])
        return stage


class Persistent(MLWritable, MLReadable[Any]):  # type: ignore[misc]
    """write(), save(), read(), load() for a stage with state() and from_state()."""

    def write(self) -> MLWriter:
        return _Writer(self)

    @classmethod
    def read(cls) -> MLReader[Any]:
        return _Reader(cls)
