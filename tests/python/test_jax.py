"""hvd.jax on two ranks: the operations, and training.

The newest jax that can be installed is tested in every run; the oldest working ones at night: 0.4.30, which has no FFI for
us, so that only uncompiled code works, and 0.5.0.
"""

from __future__ import annotations

import pytest

from python.harness import HERE, checks_of, has, jax_interpreter, run_ranks
from support import environments

QUIET = {"JAX_PLATFORMS": "cpu"}

FILES = ("jax_operations.py", "jax_training.py", "snippets_jax.py")
test_two_ranks = checks_of(*FILES, needs=("jax",), interpreter=jax_interpreter(), **QUIET)
test_examples = pytest.mark.ci(
    checks_of("jax_examples.py", needs=("jax", "optax", "sklearn"), interpreter=jax_interpreter(), **QUIET)
)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", ["0.4.30", "0.5.0", "0.6.2"])
def test_older_versions(version: str) -> None:
    python = environments.python_for_old_torch()  # this jax is made for the same Pythons as that torch
    if python is None:
        pytest.skip("no Python from 3.9 to 3.11 here")
    wanted = [f"jax=={version}", f"jaxlib=={version}", "optax"]
    program = str(environments.with_packages(f"jax-{version}", python, wanted) / "bin/python")
    for file in FILES:
        done = run_ranks(HERE / "in_ranks.py", str(HERE / "ranks" / file), interpreter=program, timeout=300, **QUIET)
        assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.parametrize("how", ["late", "raises"])
def test_the_end_of_a_rank_under_way(how: str) -> None:
    if not has("jax", interpreter=jax_interpreter()):
        pytest.skip(f"{jax_interpreter()} has no jax")
    done = run_ranks(HERE / "ranks/jax_exits.py", how, interpreter=jax_interpreter(), timeout=100, **QUIET)
    assert (done.returncode == 0) == (how != "raises"), done.stdout
    assert ("as it should" in done.stdout) == (how == "raises") and "not finished" not in done.stdout
