"""Drivers and clusters of real Spark for the tests: local-cluster here, standalone on hosts in network namespaces."""

from __future__ import annotations

import json
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from typing import Any

from netns.cluster import Cluster, wait_for
from support.hvdrun import patience

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MASTER_PORT = 7077
# Small JVMs: a test's executors and daemons together stay below 4 GB.
# Little compiling and one thread of garbage collection, because the tests' JVMs live for a minute.
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:CICompilerCount=1"
EXECUTOR = (
    "spark.executor.memory=512m",
    "spark.rpc.askTimeout=60s",
    f"spark.executor.extraJavaOptions={JAVA}",
    f"spark.driver.extraJavaOptions={JAVA}",
)


def python() -> str | None:
    """The interpreter with pyspark: HVD_TEST_SPARK."""
    named = os.environ.get("HVD_TEST_SPARK", "")
    return named if named and os.access(named, os.X_OK) else None


def why_not() -> str | None:
    """None if Spark runs here, else the reason."""
    if python() is None:
        return "pyspark is not there (HVD_TEST_SPARK names a Python that has it)"
    return None if shutil.which("java") else "java is not there (apt install openjdk-17-jre-headless)"


def environment(folder: pathlib.Path) -> dict[str, str]:
    """For drivers, masters and workers: our build, that Python, work folders below `folder`."""
    build = pathlib.Path(os.environ.get("HVD_BUILD_DIR", ROOT / "build"))
    interpreter = str(python())
    path = (
        f"{build / 'launcher'}:{pathlib.Path(interpreter).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    )
    return {
        "PATH": path,
        "HOME": os.environ.get("HOME", "/root"),
        "LANG": "C.UTF-8",
        "KERAS_BACKEND": "torch",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(build / "src/python"),
        "PYSPARK_PYTHON": interpreter,
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "192m",
        "SPARK_DAEMON_JAVA_OPTS": JAVA,
        "SPARK_NO_DAEMONIZE": "1",
        "HVD_SHARE_GPUS": "1",
    }


class Driver:
    """A driver process; ask() runs a check of checks.py in it."""

    def __init__(self, argv: list[str], log: pathlib.Path, env: dict[str, str] | None = None, limit: float = 100.0) -> None:
        """argv: the command, master and settings included."""
        self.log = log
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("ab"),
            env=env,
            start_new_session=True,
            text=True,
        )
        self.answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._next(limit)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put("")

    def _next(self, limit: float) -> dict[str, Any]:
        try:
            line = self.answers.get(timeout=limit * patience())
        except queue.Empty:
            line = ""
        if not line:
            self.close()
            raise AssertionError(f"the driver gave no answer within {limit:g} s:\n" + self.log.read_text()[-4000:])
        return dict(json.loads(line))

    def send(self, check: str, **args: Any) -> None:
        """Starts a check; result() returns its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"check": check, "args": args}) + "\n")
        self.process.stdin.flush()

    def result(self, limit: float = 90.0) -> dict[str, Any]:
        """The answer to the last check."""
        return self._next(limit)

    def ask(self, check: str, limit: float = 90.0, **args: Any) -> dict[str, Any]:
        """Runs a check to its end: {"value"} or {"error", "kind"}, {"out", "err", "seconds"}."""
        self.send(check, **args)
        return self.result(limit)

    def good(self, check: str, limit: float = 90.0, **args: Any) -> Any:
        """The value of a check that must succeed."""
        answer = self.ask(check, limit, **args)
        assert "value" in answer, f"{answer.get('kind')}: {answer.get('error')}\n{answer['err'][-3000:]}"
        return answer["value"]

    def interrupt(self) -> None:
        """Ctrl-C, or the notebook's stop button."""
        self.process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Ends the session; kills remaining processes."""
        process = self.process
        if process.stdin is not None and not process.stdin.closed:
            process.stdin.close()
        try:
            process.wait(20.0)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def local_cluster(
    folder: pathlib.Path, executors: int = 2, cores: int = 1, settings: tuple[str, ...] = (), memory_mb: int = 512
) -> Driver:
    """A driver with executors on this machine."""
    (folder / "local").mkdir(parents=True, exist_ok=True)
    return Driver(
        [str(python()), str(HERE / "driver.py"), f"local-cluster[{executors},{cores},{memory_mb}]", *EXECUTOR,
         f"spark.executor.cores={cores}", f"spark.executor.memory={memory_mb}m", "spark.driver.host=127.0.0.1", *settings],
        folder / "driver.log",
        {**environment(folder), "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip


class Standalone:
    """Spark's standalone master and workers, one worker on each host of a Cluster."""

    def __init__(self, cluster: Cluster, cores: int = 2, settings: tuple[str, ...] = ()) -> None:
        self.cluster, self.settings = cluster, settings
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hvd-spark-test-", dir="/var/tmp"))  # the same on all hosts
        self.variables = environment(pathlib.Path("/tmp/spark"))  # separate on each host
        self.processes: list[subprocess.Popen[Any]] = []
        if settings:
            conf = self.folder / "conf"
            conf.mkdir()
            (conf / "spark-defaults.conf").write_text("".join(s.replace("=", " ", 1) + "\n" for s in settings))
            self.variables["SPARK_CONF_DIR"] = str(conf)
        home = pathlib.Path(str(python())).parent.parent
        self.spark_class = str(next(home.glob("lib/python3*/site-packages/pyspark/bin/spark-class")))
        first = cluster.names[0]
        self.url = f"spark://{cluster.address(first)}:{MASTER_PORT}"
        deploy = "org.apache.spark.deploy."
        master = ["--host", cluster.address(first), "--port", str(MASTER_PORT), "--webui-port", "0"]
        self._start(first, deploy + "master.Master", *master)
        master_log = self.log(first, "master")
        self._wait(lambda: "I have been elected leader" in master_log.read_text(), "Spark's master")
        for host in cluster.names:
            worker = ["--host", cluster.address(host), "--webui-port", "0", "-c", str(cores), "-m", "1100m", self.url]
            self._start(host, deploy + "worker.Worker", *worker)
        logs = [self.log(host, "worker") for host in cluster.names]
        self._wait(lambda: all("Successfully registered" in log.read_text() for log in logs), "Spark's workers")

    def _wait(self, condition: Any, what: str) -> None:
        try:
            wait_for(condition, 100.0, what)
        except TimeoutError as error:
            said = "".join(log.read_text()[-1500:] for log in self.folder.glob("*.log"))
            self.close()
            raise TimeoutError(f"{error}\n{said}") from None

    def log(self, host: str, what: str) -> pathlib.Path:
        """A daemon's log."""
        return self.folder / f"{what}-{host}.log"

    def _start(self, host: str, name: str, *args: str) -> None:
        log = self.log(host, name.rsplit(".", 1)[1].lower())
        env = {**self.variables, "SPARK_LOCAL_IP": self.cluster.address(host)}
        command = [self.spark_class, name, *args]
        log.touch()
        self.processes.append(
            self.cluster.popen(
                host, command, env=env, stdin=subprocess.DEVNULL, stdout=log.open("ab"), stderr=subprocess.STDOUT
            )
        )

    def driver(self, name: str = "driver", settings: tuple[str, ...] = ()) -> Driver:
        """A driver on the first host."""
        first = self.cluster.names[0]
        own = (f"spark.driver.host={self.cluster.address(first)}", *EXECUTOR, *settings)
        argv = [str(python()), str(HERE / "driver.py"), self.url, *own]
        env = {**self.variables, "SPARK_LOCAL_IP": self.cluster.address(first)}
        return Driver(self.cluster.command(first, argv, env=env), self.folder / f"{name}.log")

    def executors(self, host: str) -> list[int]:
        """Process ids of the executors on a host."""
        found = self.cluster.processes(host).items()
        return [pid for pid, line in found if "CoarseGrainedExecutorBackend" in line and "java" in line.split(" ")[0]]

    def close(self) -> None:
        """Ends the daemons (the hosts' namespaces end all others) and removes the folder."""
        for process in self.processes:
            Cluster.signal(process, signal.SIGKILL)
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def leftovers(processes: dict[int, str]) -> dict[int, str]:
    """The processes of a host that belong to a job, by the programs' names, since a checkout's folder may be called hvdrun."""
    programs = {"hvdrank", "hvdrun", "orted", "prted", "mpirun"}

    def of_a_job(line: str) -> bool:
        return "<hvdrank>" in line or any(word.strip("'\"").rpartition("/")[2] in programs for word in line.split())

    return {pid: line for pid, line in processes.items() if of_a_job(line)}


def wait_until_clean(clusters_processes: Any, limit: float = 20.0) -> None:
    """Waits until no process of a job is left; AssertionError with them after the limit."""
    deadline = time.monotonic() + limit * patience()
    while left := leftovers(clusters_processes()):
        assert time.monotonic() < deadline, f"left: {left}"
        time.sleep(0.2)


def files_left(cluster: Cluster, host: str) -> list[str]:
    """Files of jobs on a host."""
    found = cluster.run(host, ["sh", "-c", "ls -d /tmp/hvd* /tmp/ompi.* /dev/shm/* /run/hvd* 2>/dev/null"]).stdout
    return [line for line in found.splitlines() if not line.startswith("/tmp/hvd-spark-test")]


def interrupt_on(cluster: Cluster, host: str) -> None:
    """SIGINT for the driver's Python on a host."""
    for pid, line in cluster.processes(host).items():
        if "driver.py" in line and "env -i" not in line and "pyspark-shell" not in line:
            os.kill(pid, signal.SIGINT)


def local_session(folder: pathlib.Path) -> Driver:
    """A driver that computes in its own process."""
    argv = [str(python()), str(HERE / "driver.py"), "local[2]", "spark.driver.host=127.0.0.1", *EXECUTOR]
    return Driver(argv, folder / "driver.log", {**environment(folder), "SPARK_LOCAL_IP": "127.0.0.1"})
