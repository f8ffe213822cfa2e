"""hvd.spark.run: the driver's side of a job in a barrier stage."""

from __future__ import annotations

import io
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any, BinaryIO, Callable

from hvd._job.host_daemon import travelling_environment
from hvd._job.payload import pickled_call
from hvd._job.results import results, wanted_ranks
from hvd._job.run import StreamEcho, command_words
from hvd.spark import _session
from hvd.spark._errors import JobCancelled, explained
from hvd.spark._log import Shown
from hvd.spark._relay import Kept, Receiver
from hvd.spark._task import Outcome, Spec, run_task

__all__ = ["JobCancelled", "run"]

# After the Spark job: time for its last output; time for a cancelled job to end.
_REST_SECONDS = 10.0
_FAILED_REST_SECONDS = 1.0
_CANCEL_SECONDS = 20.0
# A stage that does not start within this time waits for slots of other jobs.
_BUSY_SECONDS = 5.0


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    num_proc: int | None = None,
    *,
    start_timeout: float | None = None,
    env: dict[str, str] | None = None,
    verbose: bool | int = False,
    network_interfaces: str | Sequence[str] | None = None,
    mpi_args: str | None = None,
    prefix_output_with_timestamp: bool = False,
    executable: str | None = None,
    driver_log_verbosity: str = "all",
    only: int | None = None,
    spark: Any = None,
) -> list[Any]:
    """Calls func(*args, **kwargs) on num_proc ranks, one for each task of a barrier stage; returns all ranks' results.

    num_proc: None or 0 takes every slot.  start_timeout: seconds to wait for executors, and for the ranks to start;
    default: HOROVOD_SPARK_START_TIMEOUT.  only: the one rank that returns a result, in a list.  env: variables for the
    ranks; the driver's HOROVOD_*, HVD_* and NCCL_* travel anyway.  executable: the ranks' Python, the executors' own by
    default.
    driver_log_verbosity: "all" shows the ranks' output here while they run.  "log_callback_only" shows only the lines
    from log_to_driver().

    Errors: RuntimeError with the traceback of the rank that failed first, or with the reason why the Spark job ended.
    JobCancelled, a RuntimeError, if somebody cancelled the Spark job.  ValueError for too few slots, and for settings
    that do not fit a barrier stage.  TypeError for an object that cannot be pickled.  KeyboardInterrupt ends the job
    first.
    """
    __tracebackhide__ = True  # IPython leaves this frame out
    if not callable(func):
        raise TypeError(f"hvd.spark.run needs something to call, not a {type(func).__name__}")
    if driver_log_verbosity not in ("all", "log_callback_only"):
        raise ValueError(f"driver_log_verbosity is {driver_log_verbosity!r}: it must be 'all' or 'log_callback_only'")
    np = 0 if num_proc is None else num_proc
    if not isinstance(np, int) or np < 0:
        raise ValueError(f"num_proc is {num_proc!r}: it must be at least 1, or 0 for every slot")
    start_timeout = _session.start_timeout(start_timeout)
    context = _session.spark_context(spark)
    _session.refuse_unfit(context)
    payload = pickled_call(func, tuple(args), dict(kwargs or {}))
    np = _session.wait_for_slots(context, np, start_timeout, _say)
    wanted = wanted_ranks(np, only)
    options = {
        "start_timeout": start_timeout,
        "verbose": verbose,
        "mpi_args": mpi_args,
        "network_interfaces": network_interfaces,
        "prefix_output_with_timestamp": prefix_output_with_timestamp,
        "only": only,
    }
    name = getattr(func, "__name__", type(func).__name__)
    job = _Job(context, np, name, driver_log_verbosity == "all")
    with closing(Kept(getattr(context, "_temp_dir", None))) as kept:
        outcome = job.run(payload, {**travelling_environment(), **(env or {})}, command_words(options), executable, kept)
        if not outcome.live:
            _say("the ranks' output could not be shown: executors cannot reach the driver at " + job.address)
        return results(_brought(outcome, kept, job.address), wanted, outcome.code, outcome.errors)


def _brought(outcome: Outcome, kept: Kept, address: str) -> BinaryIO:
    """hvdrun's records, from the channel or the row.  RuntimeError if a successful job did not deliver them."""
    if outcome.code == 0 and outcome.lost:
        raise RuntimeError(
            f"the results are {outcome.lost / 1e6:.0f} MB, too large to go through Spark, and executors cannot reach the "
            f"driver at {address}: open that port (spark.hvd.driver.port chooses it), or let rank 0 write a file"
        )
    if not outcome.sent:
        return io.BytesIO(outcome.results)
    if outcome.code == 0:
        kept.refuse_less_than(outcome.sent)
    return kept.file


def _say(text: str) -> None:
    if sys.stderr is not None:
        print(f"hvd.spark: {text}", file=sys.stderr, flush=True)


class _Job:
    """One Spark job in a thread of its own; the calling thread shows its output."""

    def __init__(self, context: Any, np: int, name: str, everything: bool) -> None:
        self.context, self.np, self.name, self.everything = context, np, name, everything
        self.tag = f"hvd-{uuid.uuid4().hex[:12]}"
        self.address = ""
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self.look_again = time.monotonic() + _BUSY_SECONDS
        self.waiting_said = False

    def run(
        self, payload: bytes, environment: dict[str, str], options: list[str], executable: str | None, kept: Kept
    ) -> Outcome:
        """The outcome that task 0 returned, with large results in `kept`.  Otherwise raises the reason for which the Spark
        job ended.
        """
        import cloudpickle
        from pyspark import InheritableThread

        conf = self.context.getConf()
        bind, host = _session.listening_addresses(self.context)
        receiver = Receiver(bind, host, conf.get("spark.hvd.driver.port", "*"), self._echoes, kept)
        self.address = receiver.where["address"]
        broadcast = self.context.broadcast(payload)
        spec = Spec(
            job=self.tag,
            name=self.name,
            payload=broadcast,
            application=self.context.applicationId,
            cloudpickle=cloudpickle.__version__,
            gpus=conf.get("spark.task.resource.gpu.amount") is not None,
            relay=receiver.where,
            environment=environment,
            options=options,
            executable=executable,
        )
        thread = InheritableThread(target=self._work, args=(spec,), name=self.tag, daemon=True)
        thread.start()
        try:
            tick = partial(self._tick, receiver)
            receiver.pump(thread.is_alive, tick, lambda: _REST_SECONDS if self.error is None else _FAILED_REST_SECONDS)
        except BaseException:
            self._cancel()
            thread.join(_CANCEL_SECONDS)
            raise
        finally:
            receiver.close()
            _forget(broadcast)
        if self.error is not None:
            raise explained(self.error, self.np) from None
        assert self.outcome is not None
        return self.outcome

    def _echoes(self, stdout: Any, stderr: Any) -> list[StreamEcho]:
        return [StreamEcho(stream, name, Shown(self.everything)) for stream, name in ((stdout, "stdout"), (stderr, "stderr"))]

    def _work(self, spec: Spec) -> None:
        """Runs in the job's own thread."""
        context = self.context
        try:
            if hasattr(context, "addJobTag"):  # Spark 3.5; keeps the caller's job group, by which notebooks cancel
                context.addJobTag(self.tag)
            else:
                context.setJobGroup(self.tag, f"hvd.spark: {self.name}", interruptOnCancel=True)
            context.setLocalProperty("spark.job.description", f"hvd.spark: {self.name} on {self.np} ranks")
            tasks = context.parallelize(range(self.np), self.np).barrier().mapPartitions(partial(run_task, spec))
            found = tasks.collect()
            self.outcome = found[0]
        except BaseException as error:
            self.error = error

    def _tick(self, receiver: Receiver) -> None:
        """Reports once if no task has started because other jobs have the slots."""
        if self.waiting_said or receiver.heard or time.monotonic() < self.look_again:
            return
        self.look_again = time.monotonic() + _BUSY_SECONDS
        tracker = self.context.statusTracker()
        mine = {stage for job in self._jobs() if (info := tracker.getJobInfo(job)) for stage in info.stageIds}
        infos = {stage: tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()}
        running = {stage: info.numActiveTasks for stage, info in infos.items() if info is not None and info.numActiveTasks}
        others = sum(tasks for stage, tasks in running.items() if stage not in mine)
        # The tracker's data on our own tasks may be ten seconds old, a heartbeat's time.  Messages of the tasks arrive
        # sooner.
        if others and not mine & running.keys():
            self.waiting_said = True
            _say(f"waiting for {self.np} free slots; {others} task{'s' * (others != 1)} of other jobs run")

    def _jobs(self) -> list[int]:
        """Spark's numbers of this job's Spark jobs."""
        tracker = self.context._jsc.sc().statusTracker()
        by_tag = hasattr(self.context, "addJobTag")
        return list(tracker.getJobIdsForTag(self.tag) if by_tag else tracker.getJobIdsForGroup(self.tag))

    def _cancel(self) -> None:
        try:
            if hasattr(self.context, "cancelJobsWithTag"):
                self.context.cancelJobsWithTag(self.tag)
            else:
                self.context.cancelJobGroup(self.tag)
        except Exception:  # the context may be gone; its executors then end by themselves
            pass


def _forget(broadcast: Any) -> None:
    """Frees the payload on all machines."""
    try:
        broadcast.destroy()
    except Exception:  # the context may be gone
        pass
