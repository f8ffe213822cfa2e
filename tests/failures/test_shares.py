"""GlobalBatches: losses and weights are bitwise those of a run without killed ranks, in each framework."""

from __future__ import annotations

import json
import pathlib
import sys
from functools import cache
from typing import Any

import pytest

from failures.test_elastic import environment as of_the_job
from failures.test_global_batch import result
from python.harness import environment, has, jax_interpreter, tensorflow
from support import hvdrun

SCRIPT = pathlib.Path(__file__).with_name("elastic_shares.py")
FRAMEWORKS = ["numpy", "jax", "tensorflow", "keras"]
STEPS = 2 * 7
# Step 6 is an epoch's last, with 5 samples for four shares.
KILLS = {
    "rank 0": [[3, [0]]],
    "4 to 3 to 1": [[2, [1]], [5, [0, 2]]],
    "in the last batch": [[6, [3]]],
}


def trained(folder: pathlib.Path, framework: str, ranks: int, *options: str, **env: str) -> dict[str, Any]:
    """The program's output.  Skips if the framework is missing."""
    python = {"numpy": sys.executable, "jax": jax_interpreter()}.get(framework) or tensorflow()
    if not has(framework, interpreter=python):
        pytest.skip(f"{python} has no {framework}")
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu", "KERAS_BACKEND": "tensorflow"}
    alike = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OPENBLAS_NUM_THREADS": "1", "SHARES_FRAMEWORK": framework}
    hvd = environment(**quiet, **alike)
    ours = of_the_job(folder, **env)
    ours["PYTHONPATH"] = ":".join([ours["PYTHONPATH"], *filter(None, [hvd.get("PYTHONPATH")])])
    done = hvdrun.run("-np", str(ranks), *options, "--python", python, str(SCRIPT), env={**hvd, **ours}, timeout=240)
    return result(done, STEPS)


@cache
def undisturbed(folder: pathlib.Path, framework: str) -> dict[str, Any]:
    """Four fixed ranks."""
    return trained(folder, framework, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("undisturbed")


def cases() -> list[Any]:
    """All of NumPy's; one of JAX in CI; the rest at night, since TensorFlow's take a minute each."""
    rows = []
    for framework in FRAMEWORKS:
        for name, kills in KILLS.items():
            in_ci = name == "4 to 3 to 1" and framework == "jax"
            marks = [] if framework == "numpy" else [pytest.mark.ci if in_ci else pytest.mark.nightly]
            rows.append(pytest.param(framework, kills, id=f"{framework}, {name}", marks=marks))
    return rows


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("framework", "kills"), cases())
def test_as_if_nobody_had_been_killed(tmp_path: pathlib.Path, folder: pathlib.Path, framework: str, kills: list[Any]) -> None:
    expected = undisturbed(folder, framework)
    found = trained(tmp_path, framework, 4, "--min-np", "1", ELASTIC_KILL=json.dumps(kills))
    assert found["losses"] == expected["losses"] and found["weights"] == expected["weights"]
    assert len(list(tmp_path.glob("killed.*"))) == sum(len(ranks) for _, ranks in kills)


@pytest.mark.timeout(600)
def test_shrinks_and_grows_back(tmp_path: pathlib.Path, folder: pathlib.Path) -> None:
    expected = undisturbed(folder, "numpy")
    found = trained(tmp_path, "numpy", 4, "--min-np", "1", ELASTIC_KILL="[[2, [0, 1]]]", ELASTIC_WANTED="4")
    assert found["losses"] == expected["losses"] and found["weights"] == expected["weights"]
    assert found["sizes"][-1] == 4 and min(found["sizes"]) <= 3
