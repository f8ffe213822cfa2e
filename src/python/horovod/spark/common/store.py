"""Horovod's name: horovod.spark.common.store."""

from __future__ import annotations

from hvd.spark.store import DBFSLocalStore, FilesystemStore, HDFSStore, LocalStore, Store

AbstractFilesystemStore = FilesystemStore

__all__ = ["AbstractFilesystemStore", "DBFSLocalStore", "FilesystemStore", "HDFSStore", "LocalStore", "Store"]
