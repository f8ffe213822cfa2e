"""--show-map on a machine with GPUs: their files in the places of driver and kernel, and an NVIDIA library
(tests/rank/fakes/nvml.cc) that reports links."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import hvdrun

BUILD = Path(os.environ.get("HVD_BUILD_DIR", Path(__file__).parents[2] / "build")).absolute()
SWITCH = "pci0000:00/0000:00:01.0/0000:01:00.0"
DEVICES = {
    "0000:03:00.0": f"{SWITCH}/0000:02:00.0",
    "0000:04:00.0": f"{SWITCH}/0000:02:01.0",
    "0000:81:00.0": "pci0000:80/0000:80:01.0",
}
LINKS = "link 0000:04:00.0 switch 0000:90:00.0\n" * 3 + "link 0000:81:00.0 switch 0000:90:00.0\n" * 2
# In a mount namespace: the content of the driver's and the kernel's folders.
AS_ON_A_GPU_HOST = """set -e
mount --make-rprivate /
mount -t tmpfs none /proc/driver
mount -t tmpfs none /sys/bus/pci
cp -r "$1/driver/." /proc/driver/
mkdir -p /sys/bus/pci/devices
for device in $(ls /proc/driver/nvidia/gpus); do
    ln -s "$1/devices/$(cat "$1/where/$device")/$device" /sys/bus/pci/devices/
done
shift
exec "$@"
"""


def in_namespace(*command: str) -> list[str]:
    return ["unshare", "-m", "sh", "-c", AS_ON_A_GPU_HOST, "sh", *command]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    for number, (pci, where) in enumerate(DEVICES.items()):
        folder = tmp_path / "driver/nvidia/gpus" / pci
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-{number}\n")
        device = tmp_path / "devices" / where / pci
        device.mkdir(parents=True)
        (device / "numa_node").write_text(f"{int(pci.startswith('0000:8'))}\n")
        (tmp_path / "where").mkdir(exist_ok=True)
        (tmp_path / "where" / pci).write_text(where)
    (tmp_path / "driver/nvidia/version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27\n")
    (tmp_path / "nvml").write_text(LINKS)
    wheel = tmp_path / "site/nvidia_nccl_cu13-2.30.7.dist-info"
    wheel.mkdir(parents=True)
    (wheel / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-nccl-cu13\nVersion: 2.30.7\n")
    tried = subprocess.run(in_namespace(str(tmp_path), "true"), capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"mounts of its own are needed, as root has them: {tried.stderr.strip()}")
    return tmp_path


def test_a_machine_with_gpus(machine: Path) -> None:
    """Text and JSON; doctor reports the same GPUs."""
    if Path("/sys/module/nvidia/version").exists():
        pytest.skip("this machine has a driver of its own")
    env = {
        "LD_LIBRARY_PATH": str(BUILD / "tests/rank"),
        "HVD_FAKE_NVML": str(machine / "nvml"),
        "PYTHONPATH": str(machine / "site"),
    }

    def run(*options: str) -> str:
        command = in_namespace(str(machine), hvdrun.program(), *options, "-np", "2", "--python", sys.executable)
        done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 or "doctor" in options, done.stderr  # doctor may find other problems here
        return done.stdout

    text = run("--show-map")
    assert text.endswith("""
  NVIDIA driver 580.65.06, NCCL 2.30.7
  between GPUs  0     1     2
             0  X     PIX   SYS
             1  PIX   X     NV2
             2  SYS   NV2   X
  NV2: NVLink, 2 links; PIX: one PCIe switch; SYS: the link between NUMA nodes
"""), text
    (host,) = json.loads(run("--show-map", "--json"))["hosts"]
    assert (host["driver"], host["nccl"]) == ("580.65.06", "2.30.7")
    assert [gpu["uuid"] for gpu in host["gpus"]] == ["GPU-0", "GPU-1", "GPU-2"]
    assert host["gpus"][1]["ways"] == [{"to": 0, "way": "PIX"}, {"to": 2, "way": "NV2"}]
    ways = "1 pair by NVLink, 2 links; 1 pair by one PCIe switch; 1 pair by the link between NUMA nodes"
    told = re.search(
        r"GPUs of localhost: NVIDIA driver 580.65.06, NCCL 2.30.7; MPI takes (no )?device memory; (.*)\n", run("doctor")
    )
    assert told, "doctor says nothing of this host's GPUs"
    assert told.group(2) == ways
    (host,) = json.loads(run("doctor", "--json"))["hosts"]
    assert (host["driver"], host["pairs_of_gpus"]) == ("580.65.06", {"NV2": 1, "PIX": 1, "SYS": 1})
