"""--dry-run and --show-map: the map and the exact command, for both Open MPIs.  Installations are made of empty files."""

from __future__ import annotations

import json
import pathlib
import re
from collections import Counter
from typing import Any

import pytest

from support import hvdrun

GOLDEN = pathlib.Path(__file__).parent / "golden"


def fake_mpirun(folder: pathlib.Path, version: int) -> str:
    """An imitation of an installation: 4.1's mpirun is a link to orterun, 5's has prterun beside it."""
    bin_folder = folder / f"openmpi{version}/bin"
    bin_folder.mkdir(parents=True)
    real = bin_folder / ("orterun" if version == 4 else "mpirun")
    for path in (real, bin_folder / "prterun") if version == 5 else (real,):
        path.write_text("#!/bin/sh\nexit 1\n")
        path.chmod(0o755)
    if version == 4:
        (bin_folder / "mpirun").symlink_to("orterun")
    return str(bin_folder / "mpirun")


@pytest.mark.parametrize("version", [4, 5])
def test_text(tmp_path: pathlib.Path, version: int) -> None:
    """Matches the golden file, apart from this machine's paths and cores."""
    (tmp_path / "train.py").write_text("")
    args = [
        "-np",
        "2",
        "--python",
        "/bin/sh",
        "--mpirun",
        fake_mpirun(tmp_path, version),
        *["--launcher", "mpirun"],
        "--dry-run",
        "train.py",
        "--lr",
        "a b",
    ]
    done = hvdrun.run(*args, cwd=tmp_path, env={"HVD_RANK_PROGRAM": "/opt/hvdrank"})
    assert done.returncode == 0, done.stderr
    text = done.stdout.replace(str(tmp_path), "/tmp").replace(" --allow-run-as-root", "")
    text = re.sub(r"(localhost +\d/2 +0/1  ).*", r"\1CORES", text)
    assert text == (GOLDEN / f"dry_run_openmpi{version}.txt").read_text()


def test_json_and_variables(tmp_path: pathlib.Path) -> None:
    """The form for programs; flags appear as the ranks' variables."""
    flags = ["--fusion-threshold-mb", "1", "--no-stall-check"]
    done = hvdrun.run(
        *["-H", "localhost:3", *flags, "--mpirun", fake_mpirun(tmp_path, 5), "--dry-run", "--json", "--", "echo", "x"],
        env={"HVD_RANK_PROGRAM": "/opt/hvdrank"},
    )
    document = json.loads(done.stdout)
    assert document["np"] == 3
    assert [r["local_rank"] for r in document["ranks"]] == [0, 1, 2]
    assert document["payload"] == {"kind": "command", "name": "echo", "args": ["x"], "python": ""}
    assert document["mpirun"] == {"open_mpi": 5, "command": []}
    assert document["launcher"] == {
        "name": "hvdrun",
        "why": "the default",
        "command": ["/opt/hvdrank", "--daemon", "0,1,2"],
    }
    assert document["rank_variables"] == {"HOROVOD_FUSION_THRESHOLD": "1048576", "HOROVOD_STALL_CHECK_DISABLE": "1"}
    assert "secret" not in done.stdout.lower()
    odd = "\x7f\x01\x9b \u202e ä \n"
    done = hvdrun.run("--dry-run", "--json", "--", "echo", odd)
    assert json.loads(done.stdout)["payload"]["args"] == [odd]


def test_the_interpreter(tmp_path: pathlib.Path) -> None:
    """--python, then $VIRTUAL_ENV, then python3 in PATH."""
    for folder in ("venv/bin", "path"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("venv/bin/python", "path/python3", "mine"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)

    def chosen(*args: str, **env: str) -> str:
        env = {"HVD_RANK_PROGRAM": "/opt/hvdrank", "PATH": f"{tmp_path}/path:/usr/bin:/bin", "VIRTUAL_ENV": "", **env}
        done = hvdrun.run("-np", "1", "--mpirun", mpirun, *args, "--dry-run", "--json", "-m", "x", env=env)
        return str(json.loads(done.stdout)["payload"]["python"])

    mpirun = fake_mpirun(tmp_path, 4)
    venv = {"VIRTUAL_ENV": str(tmp_path / "venv")}
    assert chosen("--python", str(tmp_path / "mine"), **venv) == str(tmp_path / "mine")
    assert chosen("--python", str(tmp_path / "venv")) == str(tmp_path / "venv/bin/python")
    assert chosen(**venv) == str(tmp_path / "venv/bin/python")
    if not (pathlib.Path(hvdrun.program()).parent.parent / "pyvenv.cfg").exists():
        assert chosen() == str(tmp_path / "path/python3")


def where_it_runs(tmp_path: pathlib.Path, *args: str, **env: str) -> dict[str, object]:
    """The allocation in --dry-run --json."""
    mpirun = fake_mpirun(tmp_path / str(len(list(tmp_path.iterdir()))), 4)
    env = {"HVD_RANK_PROGRAM": "/opt/hvdrank", **env}
    done = hvdrun.run("--mpirun", mpirun, *args, "--dry-run", "--json", "--", "echo", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_allocations(tmp_path: pathlib.Path) -> None:
    """A found allocation is used if no hosts are given; given hosts take precedence, and --dry-run says so."""
    slurm = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "localhost", "SLURM_TASKS_PER_NODE": "3"}
    got = where_it_runs(tmp_path, **slurm)
    assert (got["np"], got["source"], got["why"]) == (3, "Slurm job 17", "found in the environment; no hosts were given")
    got = where_it_runs(tmp_path, "-H", "localhost:2", **slurm)
    assert (got["np"], got["source"]) == (2, "-H")
    assert got["why"] == "given; Slurm job 17 is there too, but given beats found"
    (tmp_path / "nodes").write_text("localhost\nlocalhost\n")
    got = where_it_runs(tmp_path, PBS_NODEFILE="nodes", PBS_JOBID="4")
    assert (got["np"], got["source"]) == (2, "PBS job 4")
    (tmp_path / "m.yaml").write_text("version: 1\nsource: spark\nhosts: [{address: localhost, gpus: 4}]\n")
    got = where_it_runs(tmp_path, HVD_MANIFEST="m.yaml")
    assert (got["np"], got["source"]) == (4, "manifest m.yaml of spark")
    (tmp_path / "find").write_text("#!/bin/sh\necho localhost\n")
    (tmp_path / "find").chmod(0o755)
    got = where_it_runs(tmp_path, "--host-discovery-script", "./find", "--slots", "2")
    assert (got["np"], got["source"]) == (2, "host discovery script ./find")


MAPS = {
    "nvidiaDGX2": 16,
    "power8gpudistances": 4,
    "32em64t-2n8c2t-pci-normalio": 3,
    "96em64t-4n4d3ca2co-pci": 6,
}


# For each machine: the number of pairs of GPUs by kind of link.
WAYS = {
    "nvidiaDGX2": {"NV6": 120},
    "power8gpudistances": {"NV2": 2, "SYS": 4},
    "32em64t-2n8c2t-pci-normalio": {"PHB": 1, "SYS": 2},
    "96em64t-4n4d3ca2co-pci": {},
}


def ways_of(host: dict[str, Any]) -> dict[str, int]:
    """The numbers of GPU links of a host in the JSON map, which lists both directions."""
    said = Counter(way["way"] for gpu in host["gpus"] for way in gpu["ways"])
    return {way: number // 2 for way, number in said.items()}


@pytest.mark.parametrize("machine", MAPS)
def test_maps_of_real_machines(machine: str) -> None:
    """Two hosts of the kind, the second with half as many ranks, against golden files."""
    np = MAPS[machine]
    topology = GOLDEN.parent / f"topologies/{machine}.xml"
    where = ["-H", f"a:{np},b:{np // 2}", "--topology", str(topology)]
    done = hvdrun.run("--show-map", *where)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (GOLDEN / f"map_{machine}.txt").read_text()
    document = json.loads(hvdrun.run("--show-map", "--json", *where).stdout)
    ranks = [rank for host in document["hosts"] for rank in host["ranks"]]
    assert [rank["rank"] for rank in ranks] == list(range(np + np // 2))
    assert ways_of(document["hosts"][0]) == ways_of(document["hosts"][1]) == WAYS[machine]


def test_gpus_and_ranks_must_fit() -> None:
    """The error has both numbers and the remedy; --share-gpus allows it."""
    topology = ["--topology", str(GOLDEN.parent / "topologies/power8gpudistances.xml"), "-np", "5"]
    done = hvdrun.run("--show-map", *topology, env={"HVD_SHARE_GPUS": "0"})
    assert done.returncode == 2
    assert done.stderr.startswith("hvdrun: localhost: 5 ranks on a host with 4 GPUs\n        start fewer there")
    for allowed in ("--share-gpus", "--gpus=none"):
        assert hvdrun.run("--show-map", *topology, allowed, env={"HVD_SHARE_GPUS": "0"}).returncode == 0
    done = hvdrun.run("--show-map", "--gpus", "some", *topology)
    assert done.stderr.startswith("hvdrun: --gpus: 'some' is not one of all, own, none\n")


def test_a_map_of_this_machine() -> None:
    """The map shows the cores that the ranks would get here. --topology is refused for a job that runs."""
    done = hvdrun.run("--show-map", "-np", "1", "--json")
    (host,) = json.loads(done.stdout)["hosts"]
    assert host["known"]
    assert host["ranks"][0]["threads"] >= 1
    done = hvdrun.run("-np", "1", "--topology", "x.xml", "true")
    assert done.returncode == 2
    done = hvdrun.run("--show-map", "-np", "1", "--topology", "nowhere.xml")
    assert done.stderr.startswith("hvdrun: nowhere.xml: is not a topology that hwloc can read\n")


def test_the_example_of_a_configuration_file() -> None:
    """examples/hvdrun.yaml is read, and its values reach the ranks."""
    example = pathlib.Path(__file__).resolve().parents[2] / "examples/hvdrun.yaml"
    done = hvdrun.run("--config-file", str(example), "--dry-run", "--json", "--", "true")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert len(document["ranks"]) == 2
    assert document["rank_variables"] == {
        "HOROVOD_CYCLE_TIME": "2",
        "HOROVOD_FUSION_THRESHOLD": str(64 << 20),
        "HOROVOD_LOG_HIDE_TIME": "0",
        "HOROVOD_LOG_LEVEL": "info",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "30",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "600",
        "HOROVOD_TIMELINE": "timeline.json",
    }
