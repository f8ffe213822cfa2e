"""hvd.jax on two ranks: the operations, and what trains with them."""

from python.harness import checks_of, jax_interpreter

QUIET = {"JAX_PLATFORMS": "cpu"}

test_operations = checks_of("jax_operations.py", needs=("jax",), interpreter=jax_interpreter(), **QUIET)
test_training = checks_of("jax_training.py", needs=("jax",), interpreter=jax_interpreter(), **QUIET)
test_examples = checks_of("jax_examples.py", needs=("jax", "optax", "sklearn"), interpreter=jax_interpreter(), **QUIET)
