"""The Keras of this process: `from hvd._keras_package import keras`.

The package is keras, or tf_keras if tf.keras is tf_keras: TF_USE_LEGACY_KERAS=1 selects it in TensorFlow 2.16 and later.  With
KERAS_BACKEND=torch or jax it is the package keras, since tf_keras runs only on TensorFlow.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from hvd._runtime import environment as _environment

__all__ = ["keras"]

LEGACY = "TF_USE_LEGACY_KERAS"
_YES = ("1", "true", "True")  # as TensorFlow reads it


def _name() -> str:
    if _environment.whole.get(LEGACY) not in _YES or _environment.whole.get("KERAS_BACKEND", "tensorflow") != "tensorflow":
        return "keras"
    if importlib.util.find_spec("tf_keras") is None or importlib.util.find_spec("tensorflow") is None:
        return "keras"
    # Only TensorFlow knows whether it uses the variable: 2.14 was the first.
    tensorflow = importlib.import_module("tensorflow")
    return str(tensorflow.keras.Model.__module__).partition(".")[0]


keras: Any = importlib.import_module(_name())
