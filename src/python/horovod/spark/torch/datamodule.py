"""Horovod's name: horovod.spark.torch.datamodule.  Its modules are not there, and say so."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("PetastormDataModule", "NVTabularDataModule"):
        raise ImportError(
            f"{name} is not there in hvdrun: leave data_module out, and each rank reads its own rows with pyarrow; or "
            "give a subclass of horovod.spark.common.datamodule.DataModule, which reads it in your own way"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
