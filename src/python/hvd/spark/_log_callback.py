"""A Keras callback that reports the training's progress to the driver, as Databricks' sparkdl does."""

from __future__ import annotations

import time
from typing import Any

from hvd._keras_package import keras
from hvd.spark._log import log_to_driver

__all__ = ["LogCallback"]

_Callback: Any = keras.callbacks.Callback


def _tell(text: str, logs: dict[str, Any] | None) -> None:
    # Plain numbers: a backend's scalars print as arrays and types.
    numbers = {name: float(value) for name, value in (logs or {}).items()}
    log_to_driver(f"{time.strftime('%H:%M:%S')} {text}, logs: {numbers}")


class LogCallback(_Callback):  # type: ignore[misc]
    """Prints a line at the driver at the begin and end of each epoch, and with per_batch_log after each batch.

    For the reporting rank, usually rank 0: `callbacks + [LogCallback()] if hvd.rank() == 0 else callbacks`.
    """

    def __init__(self, per_batch_log: bool = False) -> None:
        super().__init__()
        self.per_batch_log = per_batch_log
        self.current_epoch = 0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Prints a line."""
        self.current_epoch = epoch
        _tell(f"begin of epoch {epoch}", logs)

    def on_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Prints a line, with per_batch_log."""
        if self.per_batch_log:
            _tell(f"epoch {self.current_epoch}, batch {batch}", logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Prints a line."""
        _tell(f"end of epoch {epoch}", logs)
