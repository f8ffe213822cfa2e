"""The driver's knowledge of its cluster before a job starts, and the settings that it refuses."""

from __future__ import annotations

import socket
import time
from typing import Any

from hvd._runtime import environment as _environment

# How long to wait for executors that have not come yet.  For "all slots" in a young session, the time without a new executor
# after which their number counts as final.
SLOTS_SECONDS = 60.0
_YOUNG_SECONDS, _QUIET_SECONDS = 30.0, 3.0


def spark_context(given: Any = None) -> Any:
    """The running SparkContext.

    Errors: RuntimeError outside a driver, without a session, and with Spark Connect, which has no barrier stages.
    """
    if _is_connect(given):
        raise RuntimeError(
            "Spark Connect cannot start barrier stages: use a classic session, SparkSession.builder.master(…), in the driver's "
            "own process (HorovodRunner(np=-2) runs two ranks here, without Spark)"
        )
    from pyspark import SparkContext, TaskContext

    if given is not None:
        return getattr(given, "sparkContext", given)
    if TaskContext.get() is not None:
        raise RuntimeError("hvd.spark.run is called inside a Spark task: call it at the driver")
    context = SparkContext._active_spark_context
    if context is None:
        raise RuntimeError("there is no Spark session: SparkSession.builder.getOrCreate() makes one")
    return context


def _is_connect(given: Any) -> bool:
    """Returns whether the given session, else this process's session, is a Spark Connect session."""
    if given is not None:
        return type(given).__module__.startswith("pyspark.sql.connect")
    try:
        from pyspark.sql.utils import is_remote
    except ImportError:  # Spark before 3.4
        return False
    return bool(is_remote())


def refuse_unfit(context: Any) -> None:
    """ValueError for settings with which a barrier stage cannot work."""
    conf = context.getConf()
    for key, why, instead in (
        (
            "spark.dynamicAllocation.enabled",
            "executors could go while ranks run on them",
            "ask for a fixed number: spark.executor.instances, or spark.cores.max and spark.executor.cores",
        ),
        ("spark.speculation", "a second copy of a slow rank would disturb the first", "leave it off for this session"),
    ):
        if conf.get(key, "false").lower() == "true":
            raise ValueError(f"{key} is true: {why}. Set {key}=false ({instead}).")


def slots(context: Any) -> int:
    """The number of tasks that can run at once, busy slots included."""
    scala = context._jsc.sc()
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))


def describe(context: Any, count: int) -> str:
    """ "there are 4 slots on 2 executors (…)"."""
    conf = context.getConf()
    others = context._jsc.sc().getExecutorMemoryStatus().size() - 1  # without the driver
    executors = 1 if context.master.startswith("local") and not context.master.startswith("local-") else others
    each = [f"spark.task.cpus={conf.get('spark.task.cpus', '1')}"]
    if gpus := conf.get("spark.task.resource.gpu.amount"):
        each.append(f"spark.task.resource.gpu.amount={gpus}")
    found = f"{count} slot{'s' * (count != 1)} on {executors} executor{'s' * (executors != 1)}"
    return f"there {'is' if count == 1 else 'are'} {found} ({', '.join(each)})"


def start_timeout(given: float | None) -> float | None:
    """Seconds: the argument, else HOROVOD_SPARK_START_TIMEOUT, else None.  Errors: ValueError for an invalid time."""
    if given is None and _environment.given("HOROVOD_SPARK_START_TIMEOUT"):
        return _environment.number("HOROVOD_SPARK_START_TIMEOUT")
    return given


def wait_for_slots(context: Any, np: int, limit: float | None, say: Any) -> int:
    """Waits until there are enough slots.  Returns the number of ranks: np, or all slots for 0.

    Reports at once if there are too few; then waits for executors that may still come.
    Errors: ValueError with both numbers after `limit` seconds.
    """
    wanted, found = max(np, 1), slots(context) if np else _settled(context)
    if found < wanted:
        seconds = SLOTS_SECONDS if limit is None else limit
        say(f"np={np} needs {wanted} slots, and {describe(context, found)}: waiting {seconds:g} s for executors")
        deadline = time.monotonic() + seconds
        while found < wanted and time.monotonic() < deadline:
            time.sleep(0.1)
            found = slots(context)
    if found < wanted:
        raise ValueError(
            f"np={np} needs {wanted} slots, but {describe(context, found)}: "
            f"use np={found}, or give the application more executors or cores"
            if found
            else f"np={np} needs {wanted} slots, but there is no executor: is the cluster full, or are its workers down?"
        )
    return np or _settled(context)


def _settled(context: Any) -> int:
    """The number of slots; in a young session, once no more come."""
    found, since = slots(context), time.monotonic()
    while time.time() - context.startTime / 1000 < _YOUNG_SECONDS and time.monotonic() - since < _QUIET_SECONDS and found:
        time.sleep(0.1)
        if (now := slots(context)) != found:
            found, since = now, time.monotonic()
    return found


def listening_addresses(context: Any) -> tuple[str, str]:
    """The driver's IP address for listening, and the name by which executors reach it."""
    conf = context.getConf()
    host = conf.get("spark.driver.host", "localhost")
    bind = conf.get("spark.driver.bindAddress", host)
    try:
        return socket.getaddrinfo(bind, None, type=socket.SOCK_STREAM)[0][4][0], host  # type: ignore[return-value]
    except OSError:
        return "0.0.0.0", host
