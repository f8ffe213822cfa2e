"""What importing does: a message where Horovod itself is in the same folder, and nothing loaded that is not needed yet."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from python.harness import environment, has, python


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
    assert alone.stdout == f"{tmp_path}/horovod/__init__.py hvd._run\n" and "RuntimeWarning" not in alone.stderr
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
    later = {"hvd._run", "hvd.torch.sharded", "hvd.torch.elastic", "hvd.torch.ddp", "hvd.torch.loader"}
    assert not later & set(found.stdout.split())


def test_hvd_alone_loads_no_framework():
    code = "import sys, hvd, horovod, hvd.exceptions, hvd._collectives; print(*sys.modules)"
    found = subprocess.run([python(), "-c", code], env=environment(), timeout=60, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    frameworks = {"numpy", "torch", "tensorflow", "keras", "jax", "jaxlib", "mxnet", "pyspark", "pandas"}
    assert not frameworks & {name.partition(".")[0] for name in found.stdout.split()}


@pytest.mark.parametrize("module", ["horovod.ray", "horovod.spark.lightning"])
def test_what_is_not_there_says_what_to_do(module):
    code = f"""
try:
    import {module}
except ImportError as error:
    assert error.name == "{module}" and "is not there in hvdrun: " in str(error), error
else:
    raise SystemExit("imported")
"""
    found = subprocess.run([python(), "-c", code], env=environment(), timeout=60, capture_output=True, text=True)
    # horovod.spark itself needs pyspark only when it is used.
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("package", ["hvd", "horovod"])
def test_a_name_of_a_framework_s_package_is_pointed_there(package):
    code = f"import {package}\nassert not hasattr({package}, '__wrapped__')\n{package}.init()"
    found = subprocess.run([python(), "-c", code], env=environment(), timeout=60, capture_output=True, text=True)
    said = f"AttributeError: module '{package}' has no attribute 'init': "
    assert found.stderr.endswith(f"{said}use one framework's package, as in `import {package}.torch as hvd`\n"), found.stderr
