"""A real Slurm over the hosts of a cluster: munge and slurmd on each, slurmctld on alpha.

Slurm's state is in /tmp and /run of each host, and disappears with the hosts.  Jobs get SLURM_CONF, the path of the
configuration.
"""

from __future__ import annotations

import os
import secrets
import shutil
from typing import Any

from .cluster import DEFAULT_PATH, Cluster, wait_for

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "salloc", "srun", "sinfo")
CPUS = 4
FOLDER = "/tmp/slurm"
ENVIRONMENT = {"SLURM_CONF": f"{FOLDER}/slurm.conf"}
START_SECONDS = 90


def why_not() -> str | None:
    """None if Slurm can run, else the reason in one line."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=DEFAULT_PATH) is None]
    return f"not installed: {', '.join(missing)} (Debian: slurm-wlm, munge)" if missing else None


def configuration(cluster: Cluster) -> str:
    """slurm.conf(5): no accounting, no cgroups, a given number of processors."""
    nodes = "".join(f"NodeName={name} NodeAddr={cluster.address(name)} CPUs={CPUS}\n" for name in cluster.names)
    return (
        "ClusterName=test\nSlurmctldHost=alpha\nSlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\nCredType=cred/munge\n"
        "MpiDefault=none\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n"
        "SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nSlurmdParameters=config_overrides\nReturnToService=2\n"
        f"StateSaveLocation={FOLDER}/state\nSlurmdSpoolDir={FOLDER}/spool\nSlurmctldPidFile={FOLDER}/slurmctld.pid\n"
        f"SlurmdPidFile={FOLDER}/slurmd.pid\nSlurmctldLogFile={FOLDER}/slurmctld.log\nSlurmdLogFile={FOLDER}/slurmd.log\n"
        f"SwitchType=switch/none\nSchedulerType=sched/builtin\nSchedulerParameters=batch_sched_delay=0\nKillWait=5\nMailProg=/bin/true\n{nodes}"
        "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
    )


def start(cluster: Cluster) -> None:
    """Starts all daemons and waits until every node is idle.  RuntimeError with the logs' ends if that fails."""
    text, key = configuration(cluster), secrets.token_bytes(128)
    for host in cluster.names:
        folder = cluster.tmp(host) / "slurm"
        for name in ("", "state", "spool", "munge"):
            (folder / name).mkdir(mode=0o755)
        (folder / "slurm.conf").write_text(text)
        (folder / "munge/key").write_bytes(key)
        (folder / "munge/key").chmod(0o600)
        daemon(cluster, host, "mkdir", "-p", "/run/munge")
        files = [f"--{name}-file={FOLDER}/munge/{name}" for name in ("key", "log", "pid", "seed")]
        daemon(cluster, host, "munged", "--force", "--num-threads=2", "--socket=/run/munge/munge.socket.2", *files)
    daemon(cluster, "alpha", "slurmctld")
    for host in cluster.names:
        daemon(cluster, host, "slurmd", "-N", host)
    try:
        wait_for(lambda: idle(cluster) == set(cluster.names), START_SECONDS, "Slurm's nodes")
    except TimeoutError as error:
        logs = [path for host in cluster.names for path in (cluster.tmp(host) / "slurm").glob("*.log")]
        ends = "\n".join(f"{path}\n{path.read_text(errors='replace')[-1500:]}" for path in logs)
        raise RuntimeError(f"{error}\n{ends}") from error


def daemon(cluster: Cluster, host: str, *argv: str) -> None:
    """Runs a program that puts itself into the background."""
    done = run(cluster, host, *argv)
    if done.returncode != 0:
        raise RuntimeError(f"{host}: {' '.join(argv)}: {done.stderr or done.stdout}")


def idle(cluster: Cluster) -> set[str]:
    """Nodes that wait for work."""
    lines = run(cluster, "alpha", "sinfo", "--noheader", "--Node", "--format=%N %T").stdout.splitlines()
    return {name for name, state in (line.split() for line in lines) if state == "idle"}


def run(cluster: Cluster, host: str, *argv: str, timeout: float = 60.0, **options: Any) -> Any:
    """Runs a command to its end with Slurm's configuration in its environment."""
    env = {**ENVIRONMENT, **options.pop("env", {})}
    return cluster.run(host, list(argv), timeout=timeout, env=env, **options)


def processes(cluster: Cluster, host: str) -> dict[int, str]:
    """The processes on the host without Slurm's daemons."""
    own = {"slurmctld", "slurmd", "munged", "slurmscriptd"}
    found = cluster.processes(host)
    return {pid: line for pid, line in found.items() if not own & {os.path.basename(word) for word in line.split()[:2]}}
