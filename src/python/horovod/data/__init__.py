"""horovod.data: hvd.data."""

from hvd.data import AsyncDataLoaderMixin as AsyncDataLoaderMixin
from hvd.data import BaseDataLoader as BaseDataLoader

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]
