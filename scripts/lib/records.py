"""Records the versions and the date of each part of the test suite: for the table of tested versions (scripts/status).

scripts/test writes .cache/tests/status/PART.FORM.json at the end of each part. The file has the commit, the date and the
machine. For each subject below it has the versions, and the numbers of tests that passed, failed and were skipped.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import os
import pathlib
import platform
import re
import subprocess
from typing import Any

from context import LOGS, Form
from tally import Tally

FOLDER = LOGS / "status"


@dataclasses.dataclass(frozen=True)
class Subject:
    """A row of the table.

    tests: matches the ids of its tests. A group `version` in it is a version that a passed test ran with.
    version: the other version, as "ENVIRONMENT/DISTRIBUTION" or as "$ COMMAND".
    gpus, page: the row's other columns. Without a page the row is not in README's table.
    """

    name: str
    tests: str
    version: str = ""
    gpus: str = ""
    page: str = ""


SUBJECTS = (
    Subject(
        "PyTorch",
        r"/test_torch\w*\.py|test_wheel\.py::test_(current_torch|torch_(?P<version>\d_\d)$)",
        ".venv/torch",
        "through NCCL",
        "[hvd-torch(7)](man/hvd-torch.7)",
    ),
    Subject(
        "TensorFlow",
        r"/test_(tensorflow|tf_)\w*\.py",
        ".cache/tensorflow/tensorflow*",
        "untried: `HVD_TENSORFLOW_GPU=1`",
        "[hvd-tensorflow(7)](man/hvd-tensorflow.7)",
    ),
    Subject(
        "Keras 3", r"/test_keras\.py.*on_(torch|jax)", ".cache/tensorflow/keras", "untried", "[hvd-keras(7)](man/hvd-keras.7)"
    ),
    Subject(
        "Keras 2 (tf_keras)",
        r"/test_keras\.py.*on_legacy",
        ".cache/tensorflow/tf_keras",
        "untried",
        "[hvd-keras(7)](man/hvd-keras.7)",
    ),
    Subject(
        "JAX",
        r"/test_jax\w*\.py|\[jax\]",
        ".cache/tensorflow/jax",
        "inside jit; outside through host memory",
        "[hvd-jax(7)](man/hvd-jax.7)",
    ),
    Subject("MXNet", r"/test_mxnet\.py", ".cache/classic/mxnet", "no", "[hvd-mxnet(7)](man/hvd-mxnet.7)"),
    Subject("NumPy, DLPack", r"/test_numpy\w*\.py|tests/property/", ".venv/numpy", "no", "[hvd-numpy(7)](man/hvd-numpy.7)"),
    Subject("Spark", r"tests/spark/", ".cache/spark/pyspark", "untried: the tasks' GPUs", "[docs/spark.md](docs/spark.md)"),
    Subject("Ray", r"tests/ray_cluster/", ".cache/ray/ray", "untried: the actors' GPUs", "[docs/ray.md](docs/ray.md)"),
    Subject("Lightning, transformers, accelerate", r"/test_(lightning|torch_users)\.py", ".cache/spark/lightning"),
    Subject("CPython", r"every_python\[(?P<version>[\d.]+)\]"),
    Subject("Open MPI 4", r"openmpi4|/test_daemons\.py.*(?<!openmpi5)\]", "$ mpirun --version"),
    Subject("Open MPI 5", r"openmpi5", ".cache/openmpi5/openmpi"),
    Subject("Slurm, on three hosts made of network namespaces", r"/test_slurm\w*\.py", "$ slurmd -V"),
    Subject("several hosts, made of network namespaces", r"tests/netns/"),
    Subject("Kubernetes: manifests and joining hosts, no cluster", r"/test_(kubernetes|join)\.py"),
    Subject("GPUs: a driver and an NCCL written for the tests", r"tests/gpu/(?!test_on_gpu)|/test_\w+_gpu\.py"),
    Subject("a real GPU", r"/test_on_gpu\.py"),
    Subject("aarch64, under qemu", r"/test_emulated\.py"),
    Subject("glibc 2.27", r"/test_old_system\.py"),
    Subject("CPython 3.13 without a GIL", r"/test_free_threaded\.py"),
)


def write(part: str, form: Form, tally: Tally, wall: float, processor: float) -> None:
    """The record of a part that has just run.  wall, processor: seconds."""
    record: dict[str, Any] = {
        "part": part,
        "form": form.name,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        **where(),
        "seconds": [round(wall), round(processor)],
        "counts": [tally.passed, len(tally.failed), len(tally.skipped)],
        "subjects": subjects_of(tally),
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{part}.{form.name}.json").write_text(json.dumps(record) + "\n")


def subjects_of(tally: Tally) -> dict[str, dict[str, Any]]:
    """{name: {"counts": [passed, failed, skipped], "versions": [...]}} of the subjects with a test here."""
    failed, skipped = {failure.name for failure in tally.failed}, {name for name, _ in tally.skipped}
    found = {}
    for subject in SUBJECTS:
        counts, versions = [0, 0, 0], set[str]()
        for cost in tally.costs:
            match = re.search(subject.tests, cost.name)
            if match is None:
                continue
            outcome = 1 if cost.name in failed else 2 if cost.name in skipped else 0
            counts[outcome] += 1
            if outcome == 0:
                versions.add((match.groupdict().get("version") or version_of(subject.version)).replace("_", "."))
        if any(counts):
            found[subject.name] = {"counts": counts, "versions": sorted(versions - {""}, key=as_numbers)}
    return found


@functools.cache
def version_of(where_from: str) -> str:
    """The version that a subject names; "" if it is not there."""
    if where_from.startswith("$ "):
        try:
            done = subprocess.run(where_from[2:].split(), capture_output=True, text=True, timeout=20, check=False)
        except OSError:
            return ""
        text = done.stdout
    else:
        environment, _, name = where_from.rpartition("/")
        installed = pathlib.Path(environment).glob(f"lib/python*/site-packages/{name}-*-info")
        text = " ".join(re.sub(r"^.*?-(.*)\.(dist|egg)-info$", r"\1", path.name) for path in sorted(installed))
    found = re.search(r"\d+\.\d+(\.\d+)?", text)
    return found[0] if found else ""


def as_numbers(version: str) -> list[int]:
    """The sort key of a version."""
    return [int(number) for number in re.findall(r"\d+", version)]


@functools.cache
def where() -> dict[str, str]:
    """The commit, with "+" if the tree has changes, and the machine."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=60, check=False).stdout.strip()

    changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
    release = pathlib.Path("/etc/os-release")
    name = re.search(r'^PRETTY_NAME="([^"(]+)', release.read_text(), re.MULTILINE) if release.exists() else None
    system = f"{name[1].strip() if name else platform.system()}, Linux {platform.release().split('-')[0]}, {platform.machine()}"
    return {
        "commit": (git("rev-parse", "--short=8", "HEAD") or "unknown") + changed,
        "machine": f"{system}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}",
    }
