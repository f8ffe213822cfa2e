"""examples/kubernetes: the manifests fit the published types, and their commands run."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
from typing import Any

import pytest

from support import hvdrun
from support.hvdrun import ROOT

EXAMPLES = ROOT / "examples"
TYPES = json.loads((ROOT / "tests/docs/schemas/kubernetes.json").read_text())
PLAIN = {"string": str, "integer": int, "boolean": bool, "quantity": (str, int)}


@pytest.fixture(scope="module")
def read() -> dict[str, Any]:
    """The documents of each manifest, by the file's name, read by the YAML reader of .cache/docs."""
    python = ROOT / ".cache/docs/bin/python"
    if not python.exists():
        pytest.skip("no YAML reader: .cache/docs is not there (scripts/setup --tests)")
    program = "import json, sys, yaml; print(json.dumps({p: list(yaml.safe_load_all(open(p))) for p in sys.argv[1:]}))"
    files = sorted(str(path) for path in (EXAMPLES / "kubernetes").glob("*.yaml"))
    said = subprocess.run([str(python), "-c", program, *files], capture_output=True, text=True, check=True, timeout=60)
    return {pathlib.Path(path).stem: documents for path, documents in json.loads(said.stdout).items()}


def faults(value: Any, kind: str, where: str) -> list[str]:
    """Returns the places at which `value` does not match the type `kind` of TYPES."""
    if kind == "any":
        return []
    if kind[0] == "[":
        if not isinstance(value, list):
            return [f"{where}: no list"]
        return [fault for number, item in enumerate(value) for fault in faults(item, kind[1:-1], f"{where}[{number}]")]
    if kind in PLAIN:
        good = isinstance(value, PLAIN[kind]) and (kind == "boolean" or not isinstance(value, bool))
        return [] if good else [f"{where}: no {kind}"]
    if not isinstance(value, dict):
        return [f"{where}: no object"]
    if kind[0] == "{":
        return [fault for key, item in value.items() for fault in faults(item, kind[1:-1], f"{where}.{key}")]
    fields = {name.rstrip("!"): its for name, its in TYPES[kind].items()}
    found = [f"{where}.{name} is missing" for name in TYPES[kind] if name.endswith("!") and name[:-1] not in value]
    for key, item in value.items():
        found += faults(item, fields[key], f"{where}.{key}") if key in fields else [f"{where}.{key} is unknown"]
    return found


def pods(value: Any) -> list[dict[str, Any]]:
    """The specifications of all pods in a document."""
    if isinstance(value, list):
        return [pod for item in value for pod in pods(item)]
    if not isinstance(value, dict):
        return []
    return [value] if "containers" in value else [pod for item in value.values() for pod in pods(item)]


def test_the_manifests_fit_the_published_types(read: dict[str, Any]) -> None:
    """A wrong name, a missing field, or a number in quotes would be refused by the API server."""
    checked = {
        document["kind"]: faults(document, document["kind"], name)
        for name, documents in read.items()
        for document in documents
        if document["kind"] != "Service"
    }
    assert checked == {kind: [] for kind in ("JobSet", "MPIJob", "ClusterTrainingRuntime", "TrainJob")}
    assert faults({"spec": {"network": {"subDomain": 1}}}, "JobSet", "x") == ["x.spec.network.subDomain is unknown"]
    assert faults({"spec": {"suspend": "no"}}, "JobSet", "x") == ["x.spec.suspend: no boolean"]


def test_the_pods_without_ssh_have_what_they_need(read: dict[str, Any]) -> None:
    """Each pod mounts all its volumes and can read the token by its group only. Its grace period suffices for saving."""
    for name in ("jobset", "mpijob", "trainjob"):
        for pod in pods(read[name]):
            (container,) = pod["containers"]
            assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}, name
            (token,) = (volume["secret"] for volume in pod["volumes"] if volume["name"] == "token")
            assert token["defaultMode"] == 0o440, name
            assert pod["securityContext"]["fsGroup"] == 1000, name
            assert pod["terminationGracePeriodSeconds"] > 45, name
            assert not re.search(r"token=|[A-Za-z0-9+/]{40}", " ".join(container["command"])), name


def test_every_pod_of_a_train_job_can_run_the_same_command(read: dict[str, Any], tmp_path: pathlib.Path) -> None:
    """The runtime's own command, as the first pod of one, in a network of its own."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("a network namespace needs root")
    runtime, job = read["trainjob"]
    (pod,) = pods(runtime)
    command = pod["containers"][0]["command"]
    assert "-np" in job["spec"]["trainer"]["args"]
    (tmp_path / "token").write_text("x" * 40)
    (tmp_path / "token").chmod(0o400)
    env = hvdrun.environment(HVD_TOKEN_FILE=str(tmp_path / "token"), JOB_COMPLETION_INDEX="0", SLOTS="2", JOBSET="digits")
    env["PATH"] = f"{pathlib.Path(hvdrun.program()).parent}:{env['PATH']}"
    words = ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh", *command, "-np", "2", "--", "echo", "ran"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ran") == 2, done.stdout + done.stderr


def test_the_mpi_job_with_ssh_has_what_the_operator_reads(read: dict[str, Any]) -> None:
    """The MPIJob matches kubeflow.org/v2beta1: a launcher, workers, one image, and ssh keys that the containers' user can
    read."""
    (mpi_job,) = read["mpijob_ssh"]
    assert (mpi_job["apiVersion"], mpi_job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    spec = mpi_job["spec"]
    assert set(spec) == {"slotsPerWorker", "sshAuthMountPath", "runPolicy", "mpiReplicaSpecs"}
    assert set(spec["runPolicy"]) <= {"cleanPodPolicy", "backoffLimit", "ttlSecondsAfterFinished", "activeDeadlineSeconds"}
    assert set(spec["mpiReplicaSpecs"]) == {"Launcher", "Worker"}
    assert spec["mpiReplicaSpecs"]["Launcher"]["replicas"] == 1
    images = set()
    for role, replica in spec["mpiReplicaSpecs"].items():
        assert set(replica) == {"replicas", "restartPolicy", "template"}, role
        pod = replica["template"]["spec"]
        (container,) = pod["containers"]
        images.add(container["image"])
        mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
        assert mounted == {volume["name"] for volume in pod.get("volumes", [])}, role
        assert container["securityContext"]["runAsUser"] == 1000
        assert pod["terminationGracePeriodSeconds"] > 45  # longer than --grace of the launcher's command
    assert len(images) == 1
    dockerfile = (EXAMPLES / "Dockerfile").read_text()
    assert "useradd -m -u 1000 mpiuser" in dockerfile and spec["sshAuthMountPath"] == "/home/mpiuser/.ssh"


def test_the_mpi_jobs_command_finds_its_workers(read: dict[str, Any], tmp_path: pathlib.Path) -> None:
    """The job's own command runs in an environment like the operator's for a launcher."""
    spec = read["mpijob_ssh"][0]["spec"]
    workers, slots = spec["mpiReplicaSpecs"]["Worker"]["replicas"], spec["slotsPerWorker"]
    hosts = [f"192.0.2.{number + 1}" for number in range(workers)]  # addresses for documentation, known without a name server
    (tmp_path / "hostfile").write_text("".join(f"{host} slots={slots}\n" for host in hosts))
    command = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["command"]
    assert command[0] == "hvdrun"
    words = [word.replace("/opt/train/", f"{EXAMPLES}/") for word in command[1:]]
    env = {
        "K_MPI_JOB_ROLE": "launcher",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": str(tmp_path / "hostfile"),
    }
    done = hvdrun.run("--dry-run", *words, env=env)
    assert done.returncode == 0, done.stderr
    expected = f"{workers * slots} ranks on {workers} hosts, from Kubernetes' MPI operator ({tmp_path}/hostfile)"
    assert done.stdout.startswith(expected), done.stdout
    assert all(host in done.stdout for host in hosts)
