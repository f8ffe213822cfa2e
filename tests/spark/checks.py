"""The requests for the tests' driver process.  Each takes the session first and returns a value that JSON can represent."""

from __future__ import annotations

import os
import pathlib
import threading
import time
from typing import Any

import cloudpickle

import hvd.spark
from sparkdl import HorovodRunner


def rank_value(lr: float) -> dict[str, Any]:
    """A rank's main: one allreduce, one line on each stream, one for the driver."""
    import sys

    import numpy

    import hvd.numpy as h
    from sparkdl.horovod import log_to_driver

    h.init()
    print("out", h.rank(), flush=True)
    print("err", h.rank(), file=sys.stderr, flush=True)
    log_to_driver(f"loss of {h.rank()}")
    total = h.allreduce(numpy.full(3, h.rank() + 1.0), name="x", op=h.Sum)
    here = {"rank": h.rank(), "size": h.size(), "local": h.local_rank(), "cross": h.cross_rank()}
    return {**here, "lr": lr, "sum": total.tolist(), "host": os.environ.get("HVD_HOST", ""), "cwd": os.getcwd()}


import checks  # noqa: E402  (this very module, by the name that pickles use)

cloudpickle.register_pickle_by_value(checks)


def executors_are_there(spark: Any, count: int, limit: float = 60.0) -> None:
    """Waits until `count` executors have registered: a young session has none, and its messages say so."""
    deadline = time.monotonic() + limit
    while (found := spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1) < count:
        assert time.monotonic() < deadline, f"{found} of {count} executors after {limit:g} s"
        time.sleep(0.1)


def runner(_spark: Any, np: int, verbosity: str = "all") -> Any:
    """HorovodRunner's value."""
    return HorovodRunner(np=np, driver_log_verbosity=verbosity).run(rank_value, lr=0.1)


@hvd.spark.distributed(np=2)
def decorated(lr: float) -> dict[str, Any]:
    """rank_value, marked for two ranks."""
    return rank_value(lr)


def decorator(_spark: Any, here: bool = False, gpus: int | None = None) -> Any:
    """Results of a marked function: of two tasks, or with `here` of one rank on the driver."""
    if here:
        return hvd.spark.distributed(np=-1, gpus=gpus)(rank_value).distributed(lr=0.4)
    return (
        decorated.distributed(0.3) if gpus is None else hvd.spark.distributed(np=2, gpus=gpus)(rank_value).distributed(lr=0.3)
    )


def torch_distributor(_spark: Any, script: str = "", **settings: Any) -> Any:
    """A TorchDistributor's result: of rank_value, or of a script."""
    distributor = hvd.spark.TorchDistributor(**settings)
    return distributor.run(script, "--lr", 0.5) if script else distributor.run(rank_value, lr=0.6)


def all_results(_spark: Any, np: int | None = None) -> Any:
    """hvd.spark.run's values."""
    return hvd.spark.run(rank_value, kwargs={"lr": 0.2}, num_proc=np)


def start_times(_spark: Any, np: int, runs: int) -> list[float]:
    """Seconds from run() to the first line of main, for consecutive runs."""
    found = []
    for _ in range(runs):
        began = time.time()
        found.append(HorovodRunner(np=np, driver_log_verbosity="log_callback_only").run(time.time) - began)
    return found


def slow_main(seconds: float, marker: str = "") -> int:
    """A rank that works for some time."""
    import hvd.numpy as h

    h.init()
    if marker:
        pathlib.Path(marker + f".{h.rank()}").touch()
    print("working", flush=True)
    time.sleep(seconds)
    return h.rank()


def slow(_spark: Any, np: int, seconds: float = 120.0, marker: str = "") -> Any:
    """A job that a test disturbs."""
    return HorovodRunner(np=np).run(slow_main, seconds=seconds, marker=marker)


def cancelled(spark: Any, np: int, after: float, marker: str) -> Any:
    """A job that another thread cancels like a notebook's button."""

    def cancel() -> None:
        while not pathlib.Path(marker + ".0").exists():
            time.sleep(0.05)
        time.sleep(after)
        spark.sparkContext.cancelAllJobs()

    threading.Thread(target=cancel, daemon=True).start()
    return HorovodRunner(np=np).run(slow_main, seconds=120.0, marker=marker)


def failing(_spark: Any, np: int) -> Any:
    """A rank that raises."""

    def main() -> None:
        import hvd.numpy as h

        h.init()
        if h.rank() == h.size() - 1:
            raise KeyError("no such layer")
        time.sleep(30)

    return HorovodRunner(np=np).run(main)


def captured_context(spark: Any) -> Any:
    """A function that uses the session."""
    return HorovodRunner(np=2).run(lambda: spark.range(3).count())


def captured_sc(spark: Any) -> Any:
    """A function that uses the context."""
    sc = spark.sparkContext
    return HorovodRunner(np=2).run(lambda: sc.defaultParallelism)


class Trainer:
    """Contains an object that cannot be pickled, two levels down."""

    def __init__(self) -> None:
        self.settings = {"rate": 1, "log": {"lock": threading.Lock()}}

    def train(self) -> int:
        """A method to run."""
        return len(self.settings)


def unpicklable(_spark: Any) -> Any:
    """A bound method whose object cannot be pickled."""
    return HorovodRunner(np=2).run(Trainer().train)


def with_setting(spark: Any, key: str, value: str) -> Any:
    """A run with a temporary change of one of Spark's settings, as the driver reads it."""
    conf = spark.sparkContext._conf
    before = conf.get(key)
    conf.set(key, value)
    try:
        return HorovodRunner(np=2).run(rank_value, lr=1.0)
    finally:
        conf.set(key, before if before is not None else "false")


def connected(_spark: Any) -> Any:
    """A run in a process that made its session with SparkSession.builder.remote()."""
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    try:
        return HorovodRunner(np=2).run(rank_value, lr=1.0)
    finally:
        del os.environ["SPARK_CONNECT_MODE_ENABLED"]


def other_cloudpickle(_spark: Any) -> Any:
    """A driver with another version of cloudpickle."""
    real = cloudpickle.__version__
    cloudpickle.__version__ = "1.0.0"
    try:
        return HorovodRunner(np=2).run(rank_value, lr=1.0)
    finally:
        cloudpickle.__version__ = real


def other_python(spark: Any) -> Any:
    """A driver with another Python, from the workers' point of view."""
    context = spark.sparkContext
    real, context.pythonVer = context.pythonVer, "3.7"
    try:
        return HorovodRunner(np=2).run(rank_value, lr=1.0)
    finally:
        context.pythonVer = real


def manifest(_spark: Any, path: str) -> Any:
    """Writes the cluster's manifest."""
    return hvd.spark.write_manifest(path)


def py_file(spark: Any, path: str, np: int) -> Any:
    """A module that the executors get only from sc.addPyFile."""
    spark.sparkContext.addPyFile(path)

    def main() -> str:
        import brought_along

        return str(brought_along.WORD)

    return hvd.spark.run(main, num_proc=np)


def two_at_once(_spark: Any, np: int) -> Any:
    """Two parallel jobs."""
    found: dict[str, Any] = {}

    def one(name: str) -> None:
        try:
            found[name] = len(hvd.spark.run(slow_main, kwargs={"seconds": 2.0}, num_proc=np))
        except Exception as error:
            found[name] = str(error)

    threads = [threading.Thread(target=one, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(80)
    return found


def one_behind_the_other(_spark: Any, np: int) -> Any:
    """Two jobs that each need all slots, and the message about waiting after a second."""
    import hvd.spark._run as module

    before, module._BUSY_SECONDS = module._BUSY_SECONDS, 1.0
    try:
        return two_at_once(_spark, np)
    finally:
        module._BUSY_SECONDS = before


def payload_of_ancestors() -> str:
    """Runs in a rank.  Waits until the payload file of the hvdrun above is gone; returns its name if it stays, else ""."""
    pid = os.getpid()
    while "--results" not in (words := pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")):
        pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    payload = next(word for word in words if word.endswith(".pkl"))
    deadline = time.monotonic() + 20
    while os.path.exists(os.path.dirname(payload)):
        if time.monotonic() > deadline:
            return payload
        time.sleep(0.05)
    return ""


def folders_while_ranks_run(_spark: Any) -> Any:
    """The function's remains on disk while it runs: none, however the job then ends."""
    return hvd.spark.run(payload_of_ancestors, num_proc=2)


def payload(_spark: Any, megabytes: int) -> Any:
    """A closure with much data: whether it arrived whole, seconds from run() to main, and to the results."""
    data = os.urandom(megabytes << 20)
    began = time.time()
    found = hvd.spark.run(lambda: (len(data), data[:8].hex(), data[-8:].hex(), time.time()), num_proc=2)
    whole = [one[:3] for one in found] == [(len(data), data[:8].hex(), data[-8:].hex())] * 2
    return {"whole": whole, "to_main": max(one[3] for one in found) - began, "all": time.time() - began}


def patterned(rank: int, megabytes: int) -> Any:
    """A model of this size in megabytes, different for each rank."""
    import numpy

    numbers = numpy.arange(megabytes << 17, dtype=numpy.int64)
    numbers += rank * 1000
    return numbers


def is_patterned(numbers: Any, rank: int) -> bool:
    """Returns whether patterned() made the value.  Checks part by part."""
    import numpy

    part = 1 << 22
    return all(
        bool((numbers[at : at + part] == numpy.arange(at, min(at + part, len(numbers))) + rank * 1000).all())
        for at in range(0, len(numbers), part)
    )


def large_results(spark: Any, megabytes: int, only: int | None = None) -> Any:
    """Models of both ranks, or of one: [megabytes, whether it is unchanged]; and the remains in Spark's folder."""

    def main() -> Any:
        rank = int(os.environ["HVD_RANK"])
        return patterned(rank, megabytes) if only in (None, rank) else None

    folder = spark.sparkContext._temp_dir
    before = set(os.listdir(folder))
    values = hvd.spark.run(main, num_proc=2, only=only)
    found = [[value.nbytes >> 20, is_patterned(value, rank if only is None else only)] for rank, value in enumerate(values)]
    return {"found": found, "left": sorted(set(os.listdir(folder)) - before)}


def result_that_breaks_off(_spark: Any, megabytes: int) -> Any:
    """A result whose end cannot be pickled, after much of it has been sent to the driver."""
    return HorovodRunner(np=2).run(lambda: (patterned(0, megabytes), threading.Lock()))


def results_without_room(spark: Any, megabytes: int) -> Any:
    """Large results, if the driver may not write files of that size."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20 << 20, before[1]))
    try:
        return large_results(spark, megabytes)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def results_without_a_channel(spark: Any, megabytes: int) -> Any:
    """Results, if executors cannot reach the driver's port for output."""
    conf = spark.sparkContext._conf
    before = conf.get("spark.driver.host")
    conf.set("spark.driver.bindAddress", "127.0.0.1").set("spark.driver.host", "127.0.0.77")
    try:
        return large_results(spark, megabytes)
    finally:
        conf.set("spark.driver.host", before)


def too_few(_spark: Any, np: int, timeout: float) -> Any:
    """More ranks than slots."""
    return hvd.spark.run(rank_value, kwargs={"lr": 1.0}, num_proc=np, start_timeout=timeout)


def start_timeout_variable(_spark: Any, value: str) -> Any:
    """More ranks than slots, with Horovod's variable for the time-out."""
    os.environ["HOROVOD_SPARK_START_TIMEOUT"] = value
    try:
        return hvd.spark.run(rank_value, kwargs={"lr": 1.0}, num_proc=5)
    finally:
        del os.environ["HOROVOD_SPARK_START_TIMEOUT"]


def secrets_in_ranks(_spark: Any, np: int) -> list[str]:
    """Names of variables in the ranks that contain Spark's secrets."""

    def main() -> list[str]:
        return [name for name, value in os.environ.items() if "SECRET" in name or "for-this-test-only" in value]

    return [name for names in hvd.spark.run(main, num_proc=np) for name in names]


def many_runs(_spark: Any, np: int, runs: int) -> int:
    """Consecutive jobs."""
    return sum(
        HorovodRunner(np=np, driver_log_verbosity="log_callback_only").run(rank_value, lr=0.1)["size"] for _ in range(runs)
    )


def open_files(_spark: Any) -> dict[str, int]:
    """The open files and threads of the driver's process."""
    descriptors = len(os.listdir("/proc/self/fd"))
    children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {"descriptors": descriptors, "children": len(children), "threads": threading.active_count()}


def with_timeline(_spark: Any, path: str) -> Any:
    """A run with HOROVOD_TIMELINE, set as in a notebook."""
    os.environ["HOROVOD_TIMELINE"] = path
    try:
        return HorovodRunner(np=2).run(rank_value, lr=0.1)["size"]
    finally:
        del os.environ["HOROVOD_TIMELINE"]


def warm_up(spark: Any) -> int:
    """Both executors have started, and have run Python once."""
    return int(spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(lambda rows: list(rows)).count())


def torch_distributor_times(_spark: Any, np: int, runs: int) -> list[float]:
    """start_times() for Spark's own TorchDistributor."""
    from pyspark.ml.torch.distributor import TorchDistributor

    found = []
    for _ in range(runs):
        began = time.time()
        found.append(TorchDistributor(num_processes=np, local_mode=False, use_gpu=False).run(time.time) - began)
    return found


def threads_of_ranks(_spark: Any) -> Any:
    """OMP_NUM_THREADS of as many ranks as possible, as Spark sets it by default."""
    return hvd.spark.run(lambda: os.environ.get("OMP_NUM_THREADS"))


def gpus_of_ranks(_spark: Any, np: int) -> Any:
    """[host, CUDA_VISIBLE_DEVICES] of each rank."""
    return hvd.spark.run(lambda: [os.environ["HVD_HOST"], os.environ.get("CUDA_VISIBLE_DEVICES", "")], num_proc=np)


import horovods_examples  # noqa: E402
import lightnings  # noqa: E402
import pipelines  # noqa: E402
from horovods_examples import *  # noqa: E402,F403
from lightnings import *  # noqa: E402,F403
from pipelines import *  # noqa: E402,F403  (the estimators' checks)

cloudpickle.register_pickle_by_value(pipelines)
cloudpickle.register_pickle_by_value(lightnings)
cloudpickle.register_pickle_by_value(horovods_examples)


def counted(folder: str, samples: int, pause: float, whole: int) -> Any:
    """A rank's main that survives other ranks: (rank, size at the end, samples seen, their sum by allreduce).

    The second half of the samples waits until there are `whole` ranks.
    """
    import numpy

    import hvd.numpy as h
    from hvd.elastic import ObjectState, broadcast_from_rank_0, run

    h.init()

    @run
    def train(state: Any) -> None:
        while len(state.seen) < samples:
            left = sorted(set(range(samples)) - set(state.seen))
            mine = left[h.rank() :: h.size()][:2] if h.size() >= whole or 2 * len(left) > samples else []
            total = h.allreduce(numpy.array([float(sum(mine))]), name="total", op=h.Sum)
            state.total += float(total[0])
            state.seen = state.seen + [sample for part in h.allgather_object(mine) for sample in part]
            if h.rank() == 0:
                with open(os.path.join(folder, "sizes"), "a") as file:
                    file.write(f"{time.monotonic()} {h.size()}\n")
            time.sleep(pause)
            state.commit()

    state = ObjectState(broadcast_from_rank_0, h.rank, seen=[], total=0.0)
    train(state)
    return h.rank(), h.size(), state.seen, state.total


def elastic(_spark: Any, folder: str, samples: int = 200, pause: float = 0.05, whole: int = 1, **numbers: Any) -> Any:
    """horovod.spark.run_elastic's values."""
    import horovod.spark

    return horovod.spark.run_elastic(counted, args=(folder, samples, pause, whole), **numbers)


def elastic_cancelled(spark: Any, folder: str) -> Any:
    """elastic(), cancelled as by a notebook's button."""

    def cancel() -> None:
        while not pathlib.Path(folder, "sizes").exists():
            time.sleep(0.05)
        spark.sparkContext.cancelAllJobs()

    threading.Thread(target=cancel, daemon=True).start()
    return elastic(spark, folder, samples=100000, num_proc=2, min_num_proc=1)


def elastic_failing(_spark: Any) -> Any:
    """Ranks that raise the same error repeatedly."""

    def main() -> None:
        import hvd.numpy as h

        h.init()
        raise KeyError("no such layer")

    return hvd.spark.run_elastic(main, num_proc=2, min_num_proc=1)
