"""Horovod's name: horovod.spark.common.datamodule."""

from __future__ import annotations

from typing import Any, Callable

from hvd.spark.ml.datamodule import DataModule

__all__ = ["DataModule"]


def _absent_modules(module: str) -> Callable[[str], Any]:
    """A __getattr__ for Horovod's modules of data modules, which raises an error: hvdrun has none of them."""

    def absent(name: str) -> Any:
        if name in ("PetastormDataModule", "NVTabularDataModule"):
            raise ImportError(
                f"{name} is not there in hvdrun: leave data_module out, and each rank reads its own rows with pyarrow; or "
                "give a subclass of horovod.spark.common.datamodule.DataModule, which reads it in your own way"
            )
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return absent
