"""Store: the place for an estimator's tables, checkpoints and logs, by path or URL.

Local paths need no package.  Any other URL is a file system of fsspec (s3, gs, abfs, hdfs, memory, …). Its package must be
installed on driver and executors.  A DBFS path is a local path under /dbfs.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

__all__ = ["DBFSLocalStore", "FilesystemStore", "HDFSStore", "LocalStore", "Store"]

_FILE = r"^file:(//)?/"
_DBFS = r"^(dbfs:/+|(file:(//)?)?/dbfs/)"


class Store:
    """Paths of one prefix, and whole files below it.  A Store can be pickled, and opens no connection before its first use.

    save_runs=False keeps no checkpoints.  storage_options, and further keywords: fsspec's.
    """

    def __init__(
        self,
        prefix_path: str,
        train_path: str | None = None,
        val_path: str | None = None,
        test_path: str | None = None,
        runs_path: str | None = None,
        save_runs: bool = True,
        storage_options: dict[str, Any] | None = None,
        checkpoint_filename: str | None = None,
        **options: Any,
    ) -> None:
        self.prefix_path = prefix_path.rstrip("/") or "/"
        self._train, self._val, self._test, self._runs = train_path, val_path, test_path, runs_path
        self.save_runs = save_runs
        self.checkpoint_filename = checkpoint_filename or "checkpoint"
        self.options = {**(storage_options or {}), **options}

    @staticmethod
    def create(prefix_path: str | os.PathLike[str], **options: Any) -> Store:
        """The store for a path or URL: "/data/runs", "dbfs:/runs", "hdfs://…", "s3://bucket/runs".

        options: storage options of fsspec.  Errors: ValueError for an empty path; ImportError, when the store is used,
        that names the missing package.
        """
        path = os.fspath(prefix_path)
        if not path:
            raise ValueError("a store needs a path or URL, not an empty text")
        if DBFSLocalStore.matches_dbfs(path):
            return DBFSLocalStore(path, **options)
        if HDFSStore.matches(path):
            return HDFSStore(path, **options)
        if re.match(_FILE, path) or not re.match(r"^[a-zA-Z][\w+.-]*://", path):
            return LocalStore(path, **options)
        return FilesystemStore(path, **options)

    # ---- paths ----

    def get_train_data_path(self, idx: object = None) -> str:
        """The path of the training table."""
        return self._data(self._train, "train", idx)

    def get_val_data_path(self, idx: object = None) -> str:
        """The path of the validation table."""
        return self._data(self._val, "val", idx)

    def get_test_data_path(self, idx: object = None) -> str:
        """The path of a table for tests; the estimators write none."""
        return self._data(self._test, "test", idx)

    def _data(self, given: str | None, kind: str, idx: object) -> str:
        return (given or f"{self.prefix_path}/intermediate_{kind}_data") + ("" if idx is None else f".{idx}")

    def get_runs_path(self) -> str:
        """The path of all runs."""
        return self._runs or f"{self.prefix_path}/runs"

    def get_run_path(self, run_id: str) -> str:
        """The path of one run."""
        return f"{self.get_runs_path()}/{run_id}"

    def get_checkpoint_path(self, run_id: str) -> str:
        """The path of the run's newest checkpoint, a file."""
        return f"{self.get_run_path(run_id)}/{self.get_checkpoint_filename()}"

    def get_checkpoint_filename(self) -> str:
        """The last part of the checkpoint's path."""
        return self.checkpoint_filename

    def saving_runs(self) -> bool:
        """Returns whether runs keep checkpoints."""
        return self.save_runs

    def get_logs_path(self, run_id: str) -> str:
        """The path of the run's logs, a folder."""
        return f"{self.get_run_path(run_id)}/{self.get_logs_subdir()}"

    def get_logs_subdir(self) -> str:
        """The last part of the logs' path."""
        return "logs"

    # ---- files ----

    def filesystem(self) -> Any:
        """pyarrow's file system."""
        raise NotImplementedError

    def inner(self, path: str) -> str:
        """The path in filesystem()'s form."""
        return path

    @property
    def fs(self) -> Any:
        """filesystem(), under Horovod's name."""
        return self.filesystem()

    def get_full_path(self, path: str) -> str:
        """url(), under Horovod's name."""
        return self.url(path)

    def get_full_path_fn(self) -> Callable[[str], str]:
        """get_full_path, for another process."""
        return self.get_full_path

    def get_checkpoints(self, run_id: str, suffix: str = ".ckpt") -> list[str]:
        """The files of a run's checkpoint whose names end with suffix, sorted, as filesystem() takes them."""
        return [path for path in self.list(self.get_checkpoint_path(run_id)) if path.endswith(suffix)]

    def url(self, path: str) -> str:
        """The path as a URL, for other programs."""
        return path if "://" in path else Path(self.inner(path)).absolute().as_uri()

    def exists(self, path: str) -> bool:
        """True for a file or a folder."""
        from pyarrow import fs

        return bool(self.filesystem().get_file_info(self.inner(path)).type != fs.FileType.NotFound)

    def read(self, path: str) -> bytes:
        """The whole file.  Errors: FileNotFoundError, OSError."""
        with self.filesystem().open_input_stream(self.inner(path)) as file:
            return bytes(file.read())

    def write(self, path: str, data: bytes) -> None:
        """Writes the whole file, and makes its folders.  Readers see the old file or the new one."""
        filesystem, target = self.filesystem(), self.inner(path)
        filesystem.create_dir(target.rsplit("/", 1)[0], recursive=True)
        fresh = f"{target}.{uuid.uuid4().hex[:8]}"
        with filesystem.open_output_stream(fresh) as file:
            file.write(data)
        filesystem.move(fresh, target)

    def write_text(self, path: str, text: str) -> None:
        """write() for a text."""
        self.write(path, text.encode())

    def get_parquet_dataset(self, path: str) -> Any:
        """The table at a path, as pyarrow.parquet.ParquetDataset."""
        from pyarrow import parquet

        return parquet.ParquetDataset(self.list(path), filesystem=self.filesystem())

    def is_parquet_dataset(self, path: str) -> bool:
        """Returns whether the path has a readable table."""
        try:
            return bool(self.list(path)) and self.get_parquet_dataset(path) is not None
        except (OSError, ValueError):
            return False

    def list(self, path: str) -> list[str]:
        """The files below a folder, sorted, without hidden ones (. and _ in front); for a file, the file itself."""
        from pyarrow import fs

        filesystem, inner = self.filesystem(), self.inner(path)
        if filesystem.get_file_info(inner).type == fs.FileType.File:
            return [inner]
        found = filesystem.get_file_info(fs.FileSelector(inner, recursive=True, allow_not_found=True))
        return sorted(i.path for i in found if i.type == fs.FileType.File and not i.base_name.startswith(("_", ".")))

    def delete(self, path: str) -> None:
        """Removes a folder with its content; does nothing if it does not exist."""
        from pyarrow import fs

        if self.filesystem().get_file_info(self.inner(path)).type == fs.FileType.Directory:
            self.filesystem().delete_dir(self.inner(path))


class FilesystemStore(Store):
    """Any URL that fsspec knows."""

    @classmethod
    def matches(cls, path: str) -> bool:
        """Returns whether Store.create() makes a store of this class for the path."""
        return isinstance(Store.create(path), cls)

    def get_filesystem(self) -> Any:
        """filesystem(), under Horovod's name."""
        return self.filesystem()

    def copy(self, lpath: str, rpath: str, recursive: bool = False, callback: Any = None, **_: Any) -> None:
        """Copies a file, or with recursive a folder, of the local file system to a path of the store."""
        from pyarrow import fs

        filesystem, target = self.filesystem(), self.inner(rpath)
        filesystem.create_dir(target.rsplit("/", 1)[0], recursive=True)
        fs.copy_files(os.fspath(lpath), target, fs.LocalFileSystem(), filesystem)

    def filesystem(self) -> Any:
        try:
            import fsspec
        except ImportError as error:
            raise ImportError(f"{self.prefix_path} needs the package fsspec: pip install fsspec") from error
        from pyarrow import fs

        made = fsspec.filesystem(self.prefix_path.split("://", 1)[0], **self.options)
        made.invalidate_cache()  # fsspec caches one for all, with listings from before other processes wrote
        return fs.PyFileSystem(fs.FSSpecHandler(made))

    def inner(self, path: str) -> str:
        return path.split("://", 1)[1] if "://" in path else path


class LocalStore(FilesystemStore):
    """A path that driver and executors share: one machine, or a shared file system."""

    def __init__(self, prefix_path: str, *args: Any, **options: Any) -> None:
        super().__init__(str(Path(re.sub(_FILE, "/", prefix_path)).absolute()), *args, **options)

    def filesystem(self) -> Any:
        from pyarrow import fs

        return fs.LocalFileSystem()

    def inner(self, path: str) -> str:
        return re.sub(_FILE, "/", path)

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
    """Databricks' file system, through its mount at /dbfs.  dbfs:/x, file:/dbfs/x, file:///dbfs/x and /dbfs/x are the same."""

    def __init__(self, prefix_path: str, *args: Any, **options: Any) -> None:
        super().__init__(self.normalize_path(prefix_path), *args, **options)

    @staticmethod
    def matches_dbfs(path: str) -> bool:
        """Returns whether the path belongs to Databricks' file system."""
        return re.match(_DBFS, path) is not None

    @staticmethod
    def normalize_path(path: str) -> str:
        """The path below /dbfs.  ValueError for any other path."""
        if not DBFSLocalStore.matches_dbfs(path):
            raise ValueError(f"{path} is not a path of DBFS: write dbfs:/… or /dbfs/…")
        return re.sub(_DBFS, "/dbfs/", path)

    def inner(self, path: str) -> str:
        return re.sub(_DBFS, "/dbfs/", super().inner(path))


class HDFSStore(FilesystemStore):
    """hdfs://host:port/path, hdfs:///path or /path, through pyarrow's client, which needs libhdfs and Java on all hosts.

    Without a host, Hadoop's own configuration gives it.  Errors, on use: OSError that names the missing part.
    """

    def __init__(
        self,
        prefix_path: str,
        host: str | None = None,
        port: int | None = None,
        user: str | None = None,
        kerb_ticket: str | None = None,
        driver: str = "libhdfs",
        extra_conf: dict[str, str] | None = None,
        *args: Any,
        **options: Any,
    ) -> None:
        if "://" in prefix_path and not self.matches(prefix_path):
            raise ValueError(f"{prefix_path} is not an hdfs:// URL: Store.create() finds the store for it")
        whole = prefix_path if self.matches(prefix_path) else f"hdfs:///{prefix_path.lstrip('/')}"
        super().__init__(whole, *args, **options)
        name, _, number = urlsplit(whole).netloc.partition(":")
        self._server = {
            "host": host or name or "default",
            "port": port or int(number or 0),
            "user": user,
            "kerb_ticket": kerb_ticket,
            "extra_conf": extra_conf,
        }

    @staticmethod
    def matches(path: str) -> bool:
        """Returns whether the path is an hdfs:// URL."""
        return path.startswith("hdfs://")

    def filesystem(self) -> Any:
        from pyarrow import fs

        try:
            return fs.HadoopFileSystem(**self._server)
        except OSError as error:
            text = str(error).splitlines()[0]
            if "libhdfs" not in text and "libjvm" not in text:
                raise
            raise OSError(
                f"{self.prefix_path} needs Hadoop's client on the driver and on every executor, which is not there ({text}): "
                "install Java and Hadoop; set JAVA_HOME, HADOOP_HOME, and CLASSPATH to what `hadoop classpath --glob` prints"
            ) from error

    def inner(self, path: str) -> str:
        return re.sub(r"^hdfs://[^/]*", "", path)
