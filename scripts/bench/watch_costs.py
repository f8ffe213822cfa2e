"""Measures the cost of hvdrun's watch over torch's own gloo: python scripts/bench/watch_costs.py [--hvdrun FILE] [--rounds N].

The figures are processor time of all threads of a rank, so other processes on the machine disturb little.  Three ranks, each
in a world of one, take turns in each round.  A disturbance can only lengthen a turn.  So the table has the tenth
percentile of `alone`, and what the others add to it.  Medians are in parentheses.

alone     without hvdrun, torch's flight recorder off: processor time
recorder  without hvdrun, the recorder on, as torch 2.15 has it by default: what it adds
hvdrun    under hvdrun, with the recorder, the record of steps and the watch: what all three add

collective  µs of a blocking all_reduce of 16 B
of a step   µs of a step with backward(), 20 such all_reduces and optimizer.step(), divided by 20: the goal is 5 at most,
            which is 0.5 % of a step at 1 000 collectives a second
of DDP      like `of a step`, but DistributedDataParallel reduces 20 buckets
idle        wake-ups of all threads of a rank that sleeps for 5 s
start       ms of a start of Python without torch, under hvdrun, and what its archive adds (-E leaves it out)
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

COLLECTIVES, STEPS, A_STEP = 40, 2, 20  # a turn is shorter than a time slice
IDLE_SECONDS = 5.0
TELL_TIME = "import time; print(time.process_time())"
Rank = tuple[socket.socket, subprocess.Popen[bytes]]


def serve(path: str) -> None:
    """A rank: carries out a word from the socket, and answers with a number."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}.{os.getpid()}", rank=0, world_size=1)
    tensor, model = torch.ones(4), torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    layers = torch.nn.Sequential(*(torch.nn.Linear(4, 4, bias=False) for _ in range(A_STEP)))
    divided = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=1e-5)  # a bucket for each parameter
    of_layers = torch.optim.SGD(layers.parameters(), lr=0.1)

    def collective() -> float:
        return cost(COLLECTIVES, lambda: dist.all_reduce(tensor))

    def step() -> float:
        return cost(STEPS, one_step) / A_STEP

    def one_step() -> None:
        model(tensor).sum().backward()
        for _ in range(A_STEP):
            dist.all_reduce(tensor)
        optimizer.step()

    def of_ddp() -> float:
        return cost(STEPS, one_step_of_ddp) / A_STEP

    def one_step_of_ddp() -> None:
        divided(tensor).sum().backward()
        of_layers.step()

    def idle() -> float:
        time.sleep(IDLE_SECONDS)  # hvdrun asks once, after the last collective
        before = wakes()
        time.sleep(IDLE_SECONDS)
        return wakes() - before - 1  # its own

    measures: dict[str, Callable[[], float]] = {"collective": collective, "of a step": step, "of DDP": of_ddp, "idle": idle}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        link.connect(path)
        while word := link.recv(64).decode():
            link.send(str(measures[word]()).encode())
    dist.destroy_process_group()


def cost(times: int, what: Callable[[], object]) -> float:
    """µs of processor time of this process, all threads, each time."""
    start = time.process_time_ns()
    for _ in range(times):
        what()
    return (time.process_time_ns() - start) / times / 1e3


def wakes() -> int:
    """Returns the number of voluntary context switches of all threads of this process."""
    texts = [path.read_text() for path in pathlib.Path("/proc/self/task").glob("*/status")]
    return sum(int(n) for text in texts for n in re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M))


def ask(rank: Rank, word: str) -> float:
    rank[0].send(word.encode())
    return float(rank[0].recv(64))


def spread(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def start_costs(launch: list[str]) -> str:
    """A start of Python under hvdrun, with the archive and without."""
    times: list[list[float]] = [[], []]
    for _ in range(20):
        for kept, option in zip(times, (["-E"], [])):
            argv = [*launch, "--", sys.executable, *option, "-c", TELL_TIME]
            kept.append(
                1e3 * float(subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout.split()[-1])
            )
    return f"start       {spread(times[0])} ms; hvdrun adds {spread([a - b for b, a in zip(*times)])}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hvdrun", default=shutil.which("hvdrun") or str(pathlib.Path(sys.executable).with_name("hvdrun")))
    parser.add_argument("--rounds", type=int, default=500)
    options = parser.parse_args()
    launch = [options.hvdrun, "--no-report", "-np", "1"]
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        path = folder + "/socket"
        server.bind(path)
        server.listen()
        command = [sys.executable, __file__, "--serve", path]
        ranks: dict[str, Rank] = {}
        for name, words, size in (("alone", [], "0"), ("recorder", [], "2000"), ("hvdrun", launch, "2000")):
            job = subprocess.Popen(
                [*words, *(["--"] if words else []), *command], env={**os.environ, "TORCH_FR_BUFFER_SIZE": size}
            )
            server.settimeout(600)  # imports of torch on a busy machine
            ranks[name] = server.accept()[0], job
            ranks[name][0].settimeout(600)
        order = list(ranks)
        for word in ("collective", "of a step", "of DDP"):
            found: dict[str, list[float]] = {name: [] for name in ranks}
            for turn in range(options.rounds + 5):
                for name in order[turn % 3 :] + order[: turn % 3]:
                    value = ask(ranks[name], word)
                    if turn >= 5:
                        found[name].append(value)
            least = {name: statistics.quantiles(values, n=10)[0] for name, values in found.items()}
            cells = f"alone {least['alone']:.2f} ({statistics.median(found['alone']):.2f}) µs"
            for name in ("recorder", "hvdrun"):
                median = statistics.median(a - b for a, b in zip(found[name], found["alone"]))
                cells += f"; {name} +{least[name] - least['alone']:.2f} (+{median:.2f})"
            print(f"{word:11} {cells}", flush=True)
        print(f"{'idle':11} " + "; ".join(f"{name} {ask(ranks[name], 'idle'):.0f}" for name in ("alone", "hvdrun")), flush=True)
        for link, job in ranks.values():
            link.close()
            job.wait(60)
    print(start_costs(launch))
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    serve(sys.argv[2]) if sys.argv[1:2] == ["--serve"] else main()
