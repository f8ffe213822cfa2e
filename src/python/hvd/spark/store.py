"""Store: where an estimator keeps its tables, checkpoints and logs, by path or URL.

Local paths need nothing; any other URL is a file system of fsspec (s3, gs, abfs, hdfs, memory, …), whose package must be
there on driver and executors.  A DBFS path is a local path under /dbfs.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Any

__all__ = ["DBFSLocalStore", "FilesystemStore", "HDFSStore", "LocalStore", "Store"]


class Store:
    """Paths of one prefix, and whole files below it.  Pickled with what needs it; opens nothing before it is used."""

    def __init__(self, prefix_path: str, train_path: str | None = None, val_path: str | None = None,
                 runs_path: str | None = None, checkpoint_filename: str = "checkpoint", **options: Any) -> None:  # fmt: skip
        self.prefix_path = prefix_path.rstrip("/") or "/"
        self._train, self._val, self._runs = train_path, val_path, runs_path
        self.checkpoint_filename = checkpoint_filename
        self.options = options

    @staticmethod
    def create(prefix_path: str | os.PathLike[str], **options: Any) -> Store:
        """The store for a path or URL: "/data/runs", "dbfs:/runs", "hdfs://…", "s3://bucket/runs".

        options: storage options of fsspec.  Errors: ValueError for an empty path; ImportError, when the store is used,
        that names the missing package.
        """
        path = os.fspath(prefix_path)
        if not path:
            raise ValueError("a store needs a path or URL, not an empty text")
        if path.startswith(("dbfs:", "/dbfs/")):
            return DBFSLocalStore(path, **options)
        if path.startswith("hdfs://"):
            return HDFSStore(path, **options)
        if path.startswith("file://") or not re.match(r"^[a-zA-Z][\w+.-]*://", path):
            return LocalStore(path, **options)
        return FilesystemStore(path, **options)

    # ---- paths ----

    def get_train_data_path(self, idx: object = None) -> str:
        """Of the training table."""
        return self._train or self._data("train", idx)

    def get_val_data_path(self, idx: object = None) -> str:
        """Of the validation table."""
        return self._val or self._data("val", idx)

    def _data(self, kind: str, idx: object) -> str:
        name = f"intermediate_{kind}_data"
        return f"{self.prefix_path}/{name}" + ("" if idx is None else f".{idx}")

    def get_runs_path(self) -> str:
        """Of all runs."""
        return self._runs or f"{self.prefix_path}/runs"

    def get_run_path(self, run_id: str) -> str:
        """Of one run."""
        return f"{self.get_runs_path()}/{run_id}"

    def get_checkpoint_path(self, run_id: str) -> str:
        """Of the run's newest checkpoint, a file."""
        return f"{self.get_run_path(run_id)}/{self.checkpoint_filename}"

    def get_logs_path(self, run_id: str) -> str:
        """Of the run's logs, a folder."""
        return f"{self.get_run_path(run_id)}/logs"

    # ---- files ----

    def filesystem(self) -> Any:
        """pyarrow's file system."""
        raise NotImplementedError

    def inner(self, path: str) -> str:
        """The path as filesystem() takes it."""
        return path

    def exists(self, path: str) -> bool:
        """True for a file or a folder."""
        from pyarrow import fs

        return bool(self.filesystem().get_file_info(self.inner(path)).type != fs.FileType.NotFound)

    def read(self, path: str) -> bytes:
        """The whole file.  Errors: FileNotFoundError, OSError."""
        with self.filesystem().open_input_stream(self.inner(path)) as file:
            return bytes(file.read())

    def write(self, path: str, data: bytes) -> None:
        """The whole file, its folders made: readers see the old one or the new one."""
        filesystem, target = self.filesystem(), self.inner(path)
        filesystem.create_dir(target.rsplit("/", 1)[0], recursive=True)
        fresh = f"{target}.{uuid.uuid4().hex[:8]}"
        with filesystem.open_output_stream(fresh) as file:
            file.write(data)
        filesystem.move(fresh, target)

    def list(self, path: str) -> list[str]:
        """The files below a folder, sorted, without those that Spark and others hide (. and _ in front); of a file, itself."""
        from pyarrow import fs

        filesystem, inner = self.filesystem(), self.inner(path)
        if filesystem.get_file_info(inner).type == fs.FileType.File:
            return [inner]
        found = filesystem.get_file_info(fs.FileSelector(inner, recursive=True, allow_not_found=True))
        return sorted(i.path for i in found if i.type == fs.FileType.File and not i.base_name.startswith(("_", ".")))

    def delete(self, path: str) -> None:
        """A folder and all in it; nothing where there is none."""
        from pyarrow import fs

        if self.filesystem().get_file_info(self.inner(path)).type == fs.FileType.Directory:
            self.filesystem().delete_dir(self.inner(path))


class LocalStore(Store):
    """A path that driver and executors all have: one machine, or a shared file system."""

    def __init__(self, prefix_path: str, **options: Any) -> None:
        path = prefix_path.removeprefix("file://")
        super().__init__(str(Path(path).absolute()), **options)

    def filesystem(self) -> Any:
        from pyarrow import fs

        return fs.LocalFileSystem()

    def inner(self, path: str) -> str:
        return path.removeprefix("file://")

    def write(self, path: str, data: bytes) -> None:
        target = Path(self.inner(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f"{target.name}.", delete=False) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, target)

    def delete(self, path: str) -> None:
        shutil.rmtree(self.inner(path), ignore_errors=True)


class DBFSLocalStore(LocalStore):
    """Databricks' file system, through its mount at /dbfs.  "dbfs:/x" and "/dbfs/x" are the same."""

    def __init__(self, prefix_path: str, **options: Any) -> None:
        path = re.sub(r"^dbfs:/*", "/dbfs/", prefix_path)
        super().__init__(path, **options)

    def inner(self, path: str) -> str:
        return re.sub(r"^dbfs:/*", "/dbfs/", super().inner(path))


class FilesystemStore(Store):
    """Any URL that fsspec knows."""

    def filesystem(self) -> Any:
        try:
            import fsspec
        except ImportError as error:
            raise ImportError(f"{self.prefix_path} needs the package fsspec: pip install fsspec") from error
        from pyarrow import fs

        made = fsspec.filesystem(self.prefix_path.split("://", 1)[0], **self.options)
        made.invalidate_cache()  # fsspec keeps one for all, with what it listed before other processes wrote
        return fs.PyFileSystem(fs.FSSpecHandler(made))

    def inner(self, path: str) -> str:
        return path.split("://", 1)[1] if "://" in path else path


class HDFSStore(FilesystemStore):
    """hdfs://host:port/path, through pyarrow's own client (libhdfs and HADOOP_HOME must be there)."""

    def filesystem(self) -> Any:
        from pyarrow import fs

        return fs.HadoopFileSystem.from_uri(self.prefix_path)

    def inner(self, path: str) -> str:
        return re.sub(r"^hdfs://[^/]*", "", path)
