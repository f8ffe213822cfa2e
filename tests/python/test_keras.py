"""horovod.keras on two ranks, on each backend of Keras 3."""

from python.harness import checks_of, tensorflow

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}


def _on(backend: str, module: str):
    needs = ("keras", module)
    return checks_of("keras_training.py", needs=needs, interpreter=tensorflow(), KERAS_BACKEND=backend, **QUIET)


test_on_tensorflow = _on("tensorflow", "tensorflow")
test_on_torch = _on("torch", "torch")
test_on_jax = _on("jax", "jax")
