"""The jobs that the tests run in a Ray driver.  Each check gets the Cluster; None in a driver that did not make the cluster."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import ray

from hvd.ray import ElasticRayExecutor, RayExecutor

NODE = {"num_cpus": 2, "object_store_memory": 80 << 20, "include_dashboard": False}
NODES: list[Any] = []  # beside the head


@contextlib.contextmanager
def started(*args: Any, start: dict[str, Any] | None = None, **kwargs: Any) -> Iterator[RayExecutor]:
    """A RayExecutor between start() and shutdown()."""
    made = RayExecutor(RayExecutor.create_settings(timeout_s=60), *args, **kwargs)
    made.start(**(start or {}))
    try:
        yield made
    finally:
        made.shutdown()


def wait_for(condition: Any, what: str, limit: float = 20.0) -> None:
    """Errors: TimeoutError."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.1)


class Unreadable:
    """Can be pickled, and not read again."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def places(number: int) -> dict[str, Any]:
    """On a rank."""
    import numpy

    import hvd.numpy as h
    from horovod.ray import ray_logger

    h.init()
    print(f"rank {h.rank()} works")
    ray_logger.log({"lost": Unreadable()})
    ray_logger.log({"rank": h.rank()})
    return {
        "rank": h.rank(),
        "hosts": h.cross_size(),
        "sum": float(h.allreduce(numpy.ones(1), op=h.Sum)[0]) * number,
        "process": os.getpid(),
    }


def ranks_and_output(_cluster: Any) -> dict[str, Any]:
    """Calls of one executor."""
    before, logged = ray.available_resources().get("CPU"), []
    with started(num_hosts=2, num_workers_per_host=1, start={"extra_env_vars": {"OF_MINE": 5}}) as executor:
        ran = executor.run(places, args=[10], callbacks=[logged.append])
        later = ray.get(executor.run_remote(places, kwargs={"number": 1}))
        single = executor.execute_single(lambda _: os.environ["OF_MINE"])
        actors = executor.adapter.workers
        ray.get(actors[1].update_env_vars.remote({"MORE": 1}))
        told = ray.get([actor.env_vars.remote() for actor in actors])
        nodes = set(ray.get([actor.node_id.remote() for actor in actors]))
    wait_for(lambda: ray.available_resources().get("CPU") == before, "the slots are not given back")
    return {
        "ran": ran,
        "same": [one["process"] for one in ran] == [one["process"] for one in later],
        "single": single,
        "logged": sorted(value["rank"] for value in logged),
        "told": [(own["HOROVOD_RANK"], own.get("MORE")) for own in told],
        "nodes": len(nodes),
    }


def executable(_cluster: Any) -> list[Any]:
    """An object on each rank."""

    class Counter:
        def __init__(self, begin: int, step: int = 1) -> None:
            self.count, self.step = begin, step

        def next(self) -> int:
            self.count += self.step
            return self.count

    start = {"executable_cls": Counter, "executable_args": [5], "executable_kwargs": {"step": 2}}
    with started(num_workers=2, start=start) as executor:
        return [executor.execute(lambda counter: counter.next()) for _ in range(2)]


def failing_rank(_cluster: Any) -> dict[str, Any]:
    """A rank's exception, and a second start."""

    def fail() -> None:
        import numpy

        import hvd.numpy as h

        h.init()
        if h.rank() == 1:
            raise KeyError("of rank 1")
        h.allreduce(numpy.ones(1))

    executor = RayExecutor(RayExecutor.create_settings(), num_workers=2)
    executor.start()
    began = time.monotonic()
    errors = []
    for _ in range(2):
        try:
            executor.run(fail)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
    seconds = time.monotonic() - began
    executor.shutdown()
    executor.start()
    again = executor.run(lambda: 3)
    executor.shutdown()
    return {"errors": errors, "again": again, "seconds": seconds}


def no_room(_cluster: Any) -> str:
    """The error of a job that is too large."""
    try:
        RayExecutor(RayExecutor.create_settings(placement_group_timeout_s=1), num_hosts=1, num_workers_per_host=9).start()
    except TimeoutError as error:
        return str(error)
    return "it started"


def address(cluster: Any) -> str:
    """For other drivers."""
    return str(cluster.address)


def sleep_for_ever(folder: str) -> None:
    """On a rank: writes its process id, then waits."""
    with open(os.path.join(folder, os.environ["HOROVOD_RANK"]), "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)


def running(folder: str, ranks: int) -> list[int]:
    """The ranks' process ids, when all have written them."""
    pids: list[int] = []

    def are_there() -> bool:
        pids[:] = [int(text) for rank in range(ranks) if (text := read(os.path.join(folder, str(rank))))]
        return len(pids) == ranks

    wait_for(are_there, "ranks", 60)
    return pids


def read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        return ""


def killed(cluster: Any, folder: str, what: str) -> dict[str, Any]:
    """A job of two ranks, of which the second loses its actor or its node.  "second": the actor of a node's second rank."""
    error, began, pids = "", 0.0, []

    def kill(executor: RayExecutor) -> None:
        nonlocal began
        pids.extend(running(folder, 2))
        began = time.monotonic()
        if what != "node":
            ray.kill(executor.adapter.workers[1])
        else:
            cluster.remove_node(NODES.pop(), allow_graceful=False)

    nodes = 1 if what == "second" else 2
    with started(num_hosts=nodes, num_workers_per_host=2 // nodes) as executor:
        thread = threading.Thread(target=kill, args=(executor,))
        thread.start()
        try:
            executor.run(sleep_for_ever, args=[folder])
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        thread.join()
        seconds = time.monotonic() - began
        wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "ranks stay")
    if what == "node":
        NODES.append(cluster.add_node(**NODE))
    return {"error": error, "seconds": seconds}


def wait_in_ranks(_cluster: Any, folder: str) -> None:
    """Never returns."""
    with started(num_workers=2) as executor:
        executor.run(sleep_for_ever, args=[folder])


def train_loop(config: dict[str, Any]) -> dict[str, Any]:
    """On a worker of Ray Train.  Worker 1 of the first attempt fails, while the others wait for it."""
    import ray.train
    import torch
    import torch.distributed as dist

    import hvd.torch as hvd

    hvd.init()
    again = os.path.exists(config["file"])
    if not again and hvd.rank() == 1:
        pathlib.Path(config["file"]).touch()
        raise KeyError("of worker 1")
    one = torch.ones(1)
    dist.all_reduce(one)
    total = float(hvd.allreduce(one, op=hvd.Sum))
    ranks = {dist.get_rank(), hvd.rank(), ray.train.get_context().get_world_rank()}
    ray.train.report({"total": total})
    return {"total": total, "backend": dist.get_backend(), "ranks": list(ranks), "again": again}


def ray_train(_cluster: Any, folder: str) -> dict[str, Any]:
    """Returns the result of the first of two workers on two nodes."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    from hvd.ray.train import HvdConfig

    done = TorchTrainer(
        train_loop,
        train_loop_config={"file": os.path.join(folder, "failed")},
        torch_config=HvdConfig(),
        scaling_config=ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD"),
        run_config=RunConfig(storage_path=folder, failure_config=FailureConfig(max_failures=1)),
    ).fit()
    return dict(done.return_value)


# ---- elastic ---------------------------------------------------------------------------------------------------------


def counted(stop: str) -> tuple[int, int, list[int]]:
    """On a rank: all ranks together see each sample once, until the file `stop` is there."""
    import hvd.numpy as h
    from horovod.ray import ray_logger
    from hvd.elastic import ObjectState, broadcast_from_rank_0, run

    h.init()

    @run
    def train(state: Any) -> None:
        while not state.ended:
            begin = len(state.seen)
            told = h.allgather_object((begin + h.rank(), os.path.exists(stop)))
            state.seen = state.seen + [sample for sample, _ in told]
            state.ended = told[0][1]
            if h.rank() == 0:
                ray_logger.log({"size": h.size()})
            time.sleep(0.05)
            state.commit()

    state = ObjectState(broadcast_from_rank_0, h.rank, seen=[], ended=False)
    train(state)
    return h.rank(), h.size(), state.seen


def report(done: list[Any], sizes: list[int]) -> dict[str, Any]:
    """The facts about a job that the tests compare."""
    seen = done[0][2]
    changes = [size for before, size in zip([0, *sizes], sizes) if size != before]
    return {"ranks": [(rank, size) for rank, size, _ in done], "each_once": seen == list(range(len(seen))), "sizes": changes}


class Hosts:
    """A discovery: names one host, then both, then the first again.  The answer changes once the job has trained with it."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.nodes = [node["NodeID"] for node in ray.nodes() if node["alive"]]

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        grown = bool(self.sizes) and max(self.sizes) >= 3
        second = bool(self.sizes) and not grown
        return {self.nodes[0]: 1, self.nodes[1]: 2} if second else {self.nodes[0]: 1}


def elastic_hosts(_cluster: Any, stop: str) -> dict[str, Any]:
    """A job whose second host comes and goes.  The user's own discovery object names the hosts."""
    sizes: list[int] = []

    def take(value: dict[str, int]) -> None:
        sizes.append(value["size"])
        if max(sizes) == 3 and value["size"] == 1:
            pathlib.Path(stop).touch()

    settings = RayExecutor.create_settings(timeout_s=60)
    settings.discovery = Hosts(sizes)
    executor = RayExecutor(settings, min_workers=1, max_workers=3, override_discovery=False)
    executor.start(extra_env_vars={"OF_MINE": "1"})
    done = executor.run(counted, args=[stop], callbacks=[take])
    executor.shutdown()
    return report(done, sizes)


def elastic_node_dies(cluster: Any, stop: str) -> dict[str, Any]:
    """A node of a job is lost; the job goes on, with Horovod's older interface."""
    sizes: list[int] = []

    def take(value: dict[str, int]) -> None:
        sizes.append(value["size"])
        if value["size"] == 4 and NODES:
            cluster.remove_node(NODES.pop(), allow_graceful=False)
        if max(sizes) == 4 and value["size"] == 2:
            pathlib.Path(stop).touch()

    executor = ElasticRayExecutor(ElasticRayExecutor.create_settings(min_np=2, timeout_s=60))
    executor.start()
    done = executor.run(functools.partial(counted, stop), callbacks=[take])
    NODES.append(cluster.add_node(**NODE))
    return report(done, sizes)


def page_program(_cluster: Any, text: str) -> None:
    """Runs a program of a manual page on this cluster."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text.replace('ray.init(address="auto")\n', ""), "page", "exec"), names)
