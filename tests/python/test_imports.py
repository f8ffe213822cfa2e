"""Effects of imports: a message if Horovod itself is in the same folder, and no early loading."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from python.harness import environment, has, python, tensorflow


def import_in(folder: Path) -> subprocess.CompletedProcess[str]:
    code = "import horovod; print(horovod.__file__, horovod.run.__module__)"
    return subprocess.run([python(), "-c", code], env=environment(), cwd=folder, timeout=60, capture_output=True, text=True)


def test_a_message_where_horovod_itself_is_installed(tmp_path):
    found = subprocess.run(
        [python(), "-c", "import horovod; print(horovod.__path__[0])"],
        env=environment(),
        timeout=60,
        capture_output=True,
        text=True,
    )
    shutil.copytree(found.stdout.strip(), tmp_path / "horovod")
    alone = import_in(tmp_path)
    assert alone.stdout == f"{tmp_path}/horovod/__init__.py hvd._job.run\n" and "RuntimeWarning" not in alone.stderr
    (tmp_path / "horovod" / "metadata.json").write_text("{}")
    mixed = import_in(tmp_path)
    assert mixed.stdout == alone.stdout
    assert "pip uninstall horovod" in mixed.stderr and str(tmp_path / "horovod") in mixed.stderr


@pytest.mark.parametrize("package", ["hvd.torch", "horovod.torch"])
def test_nothing_of_others_is_loaded_with_the_package(package):
    if not has("torch"):
        pytest.skip(f"{python()} has no torch")
    code = f"import sys, torch; before = set(sys.modules); import {package}; print(*sorted(set(sys.modules) - before))"
    found = subprocess.run([python(), "-c", code], env=environment(), timeout=60, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    others = {name for name in found.stdout.split() if name.partition(".")[0] not in ("hvd", "horovod")}
    assert others <= set(sys.stdlib_module_names), others
    later = {"hvd._job.run", "hvd.torch.sharded", "hvd.torch.elastic", "hvd.torch.ddp", "hvd.torch.loader"}
    assert not later & set(found.stdout.split())


def test_hvd_alone_loads_no_framework():
    code = "import sys, hvd, horovod, hvd.exceptions, hvd._runtime.collectives; print(*sys.modules)"
    found = subprocess.run([python(), "-c", code], env=environment(), timeout=60, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    frameworks = {"numpy", "torch", "tensorflow", "keras", "jax", "jaxlib", "mxnet", "pyspark", "pandas"}
    assert not frameworks & {name.partition(".")[0] for name in found.stdout.split()}


# Modules of Horovod 0.28 without a counterpart: the first module of each package, and a module inside it.
MISSING = (
    "horovod._keras.callbacks horovod.ray.driver_service horovod.ray.utils horovod.runner.common.service.driver_service "
    "horovod.runner.common.service.task_service horovod.runner.common.util.network horovod.runner.driver.driver_service "
    "horovod.runner.elastic.discovery horovod.runner.gloo_run horovod.runner.http.http_server horovod.runner.js_run "
    "horovod.runner.mpi_run horovod.runner.run_task horovod.runner.task_fn horovod.runner.task.task_service "
    "horovod.runner.util.streams horovod.spark.common.cache horovod.spark.conf horovod.spark.data_loaders "
    "horovod.spark.driver.rsh horovod.spark.gloo_run horovod.spark.keras.remote "
    "horovod.spark.lightning.estimator horovod.spark.mpi_run horovod.spark.runner horovod.spark.task.task_info "
    "horovod.spark.torch.remote"
)
OF_TENSORFLOW = "horovod.tensorflow.gradient_aggregation horovod.tensorflow.mpi_lib"


def say_what_to_do(names: str, interpreter: str) -> None:
    code = f"""
import importlib
import importlib.util
for name in {names!r}.split():
    try:
        importlib.import_module(name)
    except ImportError as error:
        assert name.startswith(error.name) and str(error).startswith(error.name + " is not there in hvdrun: "), error
    else:
        raise SystemExit(name + " was imported")
assert importlib.util.find_spec("horovod.torch.nothing") is None
"""
    found = subprocess.run([interpreter, "-c", code], env=environment(), timeout=60, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


def test_what_is_not_there_says_what_to_do():
    # horovod.spark itself needs pyspark only when it is used.
    names = (
        MISSING
        if has("pyspark")
        else MISSING.replace("horovod.spark.keras.remote ", "")
        .replace("horovod.spark.lightning.estimator ", "")
        .replace(" horovod.spark.torch.remote", "")
    )
    say_what_to_do(names, python())


@pytest.mark.ci
def test_what_is_not_there_of_tensorflow_says_what_to_do():
    if not has("tensorflow", interpreter=tensorflow()):
        pytest.skip(f"{tensorflow()} has no TensorFlow")
    say_what_to_do(OF_TENSORFLOW, tensorflow())


@pytest.mark.parametrize("package", ["hvd", "horovod"])
def test_a_name_of_a_framework_s_package_is_pointed_there(package):
    code = f"import {package}\nassert not hasattr({package}, '__wrapped__')\n{package}.init()"
    found = subprocess.run([python(), "-c", code], env=environment(), timeout=60, capture_output=True, text=True)
    said = f"AttributeError: module '{package}' has no attribute 'init': "
    assert found.stderr.endswith(f"{said}use one framework's package, as in `import {package}.torch as hvd`\n"), found.stderr
