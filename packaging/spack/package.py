# Installs the wheel with Spack: put this file and the wheel into packages/hvdrun of a Spack repository.
# The wheel has its own libraries; scripts that use MPI load an Open MPI from the environment.
import os

# ruff: noqa: F403, F405, RUF012
from spack.package import *

try:  # Spack 1.0 and later
    from spack_repo.builtin.build_systems.python import PythonPackage
except ImportError:
    pass


class Hvdrun(PythonPackage):
    """Starts one training script on many processes; Horovod's names, and a backend of torch.distributed."""

    homepage = "@HOMEPAGE@"

    license("Apache-2.0")

    version(
        "@VERSION@",
        sha256="@SHA256@",
        url="file://" + os.path.join(os.path.dirname(os.path.abspath(__file__)), "@WHEEL@"),
        expand=False,
    )

    depends_on("python@3.9:", type=("build", "run"))
    depends_on("py-pip", type="build")
    depends_on("py-cloudpickle", type=("build", "run"))

    requires("platform=linux")
    requires("target=x86_64:")
    conflicts("^py-horovod", msg="both have the Python package horovod")

    import_modules = ["hvd", "horovod"]
