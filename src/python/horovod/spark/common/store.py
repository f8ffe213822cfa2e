"""Horovod's name: horovod.spark.common.store."""

from __future__ import annotations

from hvd.spark.store import DBFSLocalStore, FilesystemStore, HDFSStore, LocalStore, Store

__all__ = ["DBFSLocalStore", "FilesystemStore", "HDFSStore", "LocalStore", "Store"]
