"""A rank of a small job in which one rank fails on purpose: planted_rank.py CAUSE SEED.  causes.py lists the causes."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable

import numpy as np

import hvd.numpy as hvd

CAUSE, SEED = sys.argv[1], int(sys.argv[2])
CHOICE = random.Random(SEED)
RANK, SIZE = int(os.environ["HVD_RANK"]), int(os.environ["HVD_SIZE"])
CULPRIT, STEP, CODE = CHOICE.randrange(SIZE), CHOICE.randrange(3, 12), CHOICE.randrange(1, 125)
AT_ONCE = CHOICE.random() < 0.5  # the others are in a collective already, or reach it later
x = np.ones(1000, "f4")


class Planted(RuntimeError):
    """An exception of a user's script."""


def die_of(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def segfault() -> None:
    ctypes.string_at(0)


def segfault_in_a_thread() -> None:
    threading.Thread(target=segfault).start()
    time.sleep(30)


def overflow_the_stack() -> None:
    sys.setrecursionlimit(10**9)

    def deeper(_: int) -> list[object]:
        return list(map(deeper, [0]))  # each call goes through C

    deeper(0)


def uncaught_in_cpp() -> None:
    ctypes.CDLL("libstdc++.so.6")["_ZSt20__throw_length_errorPKc"](b"planted")


def eat() -> None:
    group = os.environ.get("PLANTED_GROUP")
    if group:  # not the guard's own group, so that the kernel's log reports the kill
        open(group + "/cgroup.procs", "w").write(str(os.getpid()))
    hold = [bytearray(b"x" * (1 << 20)) for _ in range(4000)]
    sys.exit(f"not killed with {len(hold)} MiB")


def fill_shared_memory() -> None:
    with open("/dev/shm/planted", "w+b") as file:
        file.truncate(1 << 30)
        memory = mmap.mmap(file.fileno(), 1 << 30)
        for at in range(0, 1 << 30, 4096):
            memory[at] = 1


def fail(text: str = "planted") -> None:
    raise Planted(text)


def in_a_collective() -> None:
    hvd.allreduce(x, op="nonsense", name="x")  # type: ignore[arg-type]


def import_nothing() -> None:
    import no_such_module_planted  # noqa: F401


def open_too_many() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    kept = []
    while True:
        kept.append(open("/dev/null"))


def fill_the_disk() -> None:
    with open(os.environ["PLANTED_DISK"] + f"/{RANK}", "wb") as file:
        while True:
            file.write(b"x" * (1 << 20))


def ask_for_too_much() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    np.ones(1 << 33, "f8")


def burn() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    soon = int(used.ru_utime + used.ru_stime) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soon, soon + 1))
    spin()


def spin() -> None:
    while True:
        pass


def leave_a_child_with_the_pipes() -> None:
    subprocess.Popen(["setsid", "sleep", "30"])
    sys.exit(CODE)


def other_branch() -> None:
    hvd.allreduce(x, name="other")


def nap() -> None:
    time.sleep(60)


def tell_and_nap() -> None:
    print("victim", os.getpid(), flush=True)  # causes.py kills its ancestor
    nap()


DEEDS: dict[str, Callable[[], None]] = {
    "SIGKILL": die_of(signal.SIGKILL),
    "SIGTERM": die_of(signal.SIGTERM),
    "SIGUSR1": die_of(signal.SIGUSR1),
    "SIGFPE": die_of(signal.SIGFPE),
    "SIGILL": die_of(signal.SIGILL),
    "interrupt": lambda: signal.raise_signal(signal.SIGINT),
    "segfault": segfault,
    "segfault in a thread": segfault_in_a_thread,
    "stack overflow": overflow_the_stack,
    "abort": os.abort,
    "C++ exception": uncaught_in_cpp,
    "out of memory, cgroup": eat,
    "out of memory, kernel's log": eat,
    "full /dev/shm": fill_shared_memory,
    "sys.exit": lambda: sys.exit(CODE),
    "sys.exit with text": lambda: sys.exit("planted"),
    "os._exit": lambda: os._exit(CODE),
    "exception": fail,
    "exception before init": fail,
    "exception in a collective": in_a_collective,
    "exceptions in order": fail,
    "import error": import_nothing,
    "no descriptors": open_too_many,
    "disk full": fill_the_disk,
    "no address space": ask_for_too_much,
    "processor time over": burn,
    "child holds the pipes": leave_a_child_with_the_pipes,
    "stopped": die_of(signal.SIGSTOP),
    "loops": spin,
    "other branch": other_branch,
    "waits elsewhere": nap,
    "ended early": lambda: sys.exit(0),
    "mpirun killed": tell_and_nap,
    "daemon killed": tell_and_nap,
    "watchdog killed": tell_and_nap,
    "guard killed": tell_and_nap,
    "link cut": tell_and_nap,
}


def caught() -> None:
    """Prints a harmless traceback on stderr."""
    try:
        fail("caught")
    except Planted:
        traceback.print_exc()


def a_child_fails() -> None:
    subprocess.run(["sh", "-c", "kill -9 $$"], check=False)


def a_signal_is_handled() -> None:
    signal.signal(signal.SIGUSR1, lambda *_: None)
    os.kill(os.getpid(), signal.SIGUSR1)


def leave_a_child() -> None:
    subprocess.Popen(["setsid", "sleep", "60"])


HABITS: list[Callable[[], object]] = [
    caught,
    a_child_fails,
    a_signal_is_handled,
    leave_a_child,
    lambda: time.sleep(0.5),  # slow: the others wait, but briefly
    lambda: print("x" * 200_000),
    lambda: print("50 %", end="\r"),
    lambda: threading.Thread(target=time.sleep, args=(60,), daemon=True).start(),
    lambda: print("Traceback (most recent call last):", file=sys.stderr),
]


def live_well() -> None:
    """Runs steps with odd but harmless habits, and one of several successful ends."""
    hvd.init()
    mine = random.Random(SEED * SIZE + RANK)
    for step in range(STEP):
        if mine.random() < 0.4:
            mine.choice(HABITS)()
        hvd.allreduce(x, name=f"step/{step % 3}")
    [lambda: None, lambda: sys.exit(0), lambda: sys.exit(), hvd.shutdown][CHOICE.randrange(4)]()


def go_wrong(deed: Callable[[], None]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if CAUSE == "exception before init" and RANK == CULPRIT:
        deed()
    hvd.init()
    second = (CULPRIT + 1) % SIZE
    for step in range(STEP + 1000):
        if step == STEP and RANK == CULPRIT:
            if AT_ONCE:
                time.sleep(0.05)
            deed()
        if step == STEP and second == RANK and CAUSE == "exceptions in order":
            time.sleep(0.15)
            fail("the second")
        hvd.allreduce(x, name=f"step/{step % 3}")
        time.sleep(0.002)


if CAUSE == "none":
    live_well()
else:
    go_wrong(DEEDS[CAUSE])
