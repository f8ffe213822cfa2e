"""The faults of faults.py: the action, its end, and its cost."""

from __future__ import annotations

import dataclasses
import random
import signal
import time
from collections.abc import Callable

from campaigns.fault_job import FaultJob, Here, Hosts, parent, send, told

# Points where a worker can be struck (fault_rank.py), in the order of a recovery.
RECOVERY = ["before restore", "before leaving", "after leaving", "before the meeting", "in the meeting", "after the meeting"]
RECOVERY += ["reset", "before the shares", "before sync", "in sync", "after sync"]
TRAINING = ["step", "before commit", "kept", "in commit"]
# Points of a joining worker.
ENTRY = ["begin", "before the meeting", "in the meeting", "after the meeting", "before the shares", "before sync", "in sync"]
ENTRY += ["after sync", "step", "kept"]
DISCOVERIES = {"fails": "exit 3", "prints garbage": "echo 'loc al:x:y'", "drops every host": ":"}
SLOTS_HERE, SLOTS_A_HOST = 6, 2
NO_MEMORY = "MemoryError: Unable to allocate 64.0 MiB"  # the error of a rank that runs out of memory in commit()
FLAPS = 4  # interruptions of a cable, together shorter than the limit of a connection
RATES = ["5mbit", "20mbit", "100mbit"]  # of a slow network interface
SLOW = ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "burst", "32k", "latency", "50ms"]


@dataclasses.dataclass
class Row:
    """Figures of one fault, or of two that belong together.  Times are -1 without an event."""

    kind: str
    faults: int = 1
    noticed: float = -1
    next_step: float = -1
    lost: int = 0


def all_hosts(place: Here | Hosts) -> list[str]:
    """The discovery script's hosts while all is well."""
    return [f"{host}:{SLOTS_A_HOST if len(place.hosts) > 1 else SLOTS_HERE}" for host in place.hosts]


def discover(place: Here | Hosts, hosts: list[str], does: str = "") -> None:
    """Sets the discovery script's hosts and behaviour."""
    folder = place.folders()[0]
    fresh = folder / "discover.new"
    fresh.write_text("#!/bin/sh\n" + (does or "\n".join(f"echo {host}" for host in hosts)) + "\n")
    fresh.chmod(0o755)
    fresh.rename(folder / "discover")


class Faults:
    """Plants one fault after the other in a job, and waits until training continues."""

    def __init__(self, job: FaultJob, dice: random.Random, ranks: int, commit: int, kept: bool) -> None:
        self.job, self.dice, self.ranks, self.commit, self.kept = job, dice, ranks, commit, kept
        self.now = ""  # the current fault
        self.settled = 0.0  # time when the last fault was over

    def give(self, kind: str = "") -> Row:
        """Plants a fault that the job can survive, drawn unless it is named.  AssertionError if the job makes no progress."""
        can = [name for name, fault in KINDS.items() if self._fits(name, fault)]
        name = kind or self.dice.choices(can, [KINDS[one].weight for one in can])[0]
        fault, detail = KINDS[name], self.dice.choice(KINDS[name].details)
        self.now = f"{name} {detail}".strip()
        need = self.ranks if self.dice.random() < 0.3 else fault.need
        workers = self.job.wait_for_step(self.settled, lambda there: len(there) >= need, f"a step of {need} ranks").workers
        time.sleep(self.dice.uniform(0, 0.15))
        row = Row(self.now, 2 if detail in RECOVERY + TRAINING or name in TWO else 1)
        begun = time.monotonic()
        fault.run(self, list(workers), detail)
        self._measure(row, begun)
        self.settled = time.monotonic()
        self.now = ""
        return row

    def _fits(self, name: str, fault: Fault) -> bool:
        if name in NEED_A_FILE and not self.kept:
            return False
        return not (name in NEED_HOSTS and len(self.job.place.hosts) == 1) and fault.need <= self.ranks

    def _measure(self, row: Row, begun: float) -> None:
        steps = self.job.steps()
        restored = next((at for at in self.job.restored() if at > begun), -1)
        row.noticed = restored - begun if restored >= 0 else -1
        cut = restored if restored >= 0 else begun
        row.next_step = next(step.at for step in steps if step.at > cut) - begun
        done = [step.number for step in steps if self.settled < step.at <= cut]
        row.lost = max(max(done) + 1 - min(step.number for step in steps if step.at > cut), 0)
        name = row.kind
        if not name.startswith(tuple(NEED_A_FILE)):
            # A worker that dies between two worlds, after a commit, loses no work.
            assert row.noticed >= 0 or row.lost == 0 or not name.startswith("kill"), "nobody went back to its last commit"
            assert row.lost <= self.commit, f"{row.lost} steps are lost, and there is a commit every {self.commit}"
        if name.startswith(("term", "hosts", "flapping")):
            assert row.lost == 0, f"{row.lost} steps are lost"
        if name.startswith("flapping"):
            assert row.noticed < 0, "ranks went back to their last commit"

    # ---- what is done

    def pick(self, workers: list[int], number: int = 1) -> list[int]:
        """Draws workers."""
        return self.dice.sample(workers, number)

    def strike(self, workers: list[int], what: int = signal.SIGKILL, guard: bool = False) -> None:
        """Strikes the workers at once."""
        there = self.job.workers()
        pids = [there[worker] for worker in workers if worker in there]
        assert len(pids) == len(workers), f"workers {workers} are not among {sorted(there)}"
        for pid in [parent(pid) if guard else pid for pid in pids]:
            send(pid, what)

    def over(self, victims: list[int], since: float | None = None) -> None:
        """Waits until training continues without the victims."""
        begun = time.monotonic() if since is None else since
        self.job.wait_for_step(begun, lambda there: not set(there) & set(victims), f"a step without workers {victims}")

    def kill(self, workers: list[int], detail: str) -> None:
        victims = self.pick(workers, 2 if detail == "two" else 1)
        self.strike(victims)
        self.over(victims)

    def term(self, workers: list[int], detail: str) -> None:
        victims = self.pick(workers)
        self.strike(victims, signal.SIGTERM, detail == "its guard")
        self.over(victims)

    def kill_guard(self, workers: list[int], detail: str) -> None:
        victims = self.pick(workers)
        self.strike(victims, guard=True)
        self.over(victims)

    def stop(self, workers: list[int], detail: str) -> None:
        victims = self.pick(workers)
        self.strike(victims, signal.SIGSTOP)
        time.sleep(self.dice.uniform(0.05, 0.4))
        self.strike(victims, signal.SIGKILL if detail else signal.SIGCONT)
        self.over(victims if detail else [])

    def _second(self, workers: list[int], where: str, what: str) -> None:
        """Plants a second fault at that point of the recovery from a first one."""
        first = self.pick(workers)
        order = 0 if where in TRAINING else self.job.order(where, what)
        self.strike(first)
        order = order or self.job.order(where, what)
        self._wait_for(order, first)
        struck = self.job.taken(order)
        if what == "stop" and struck:
            time.sleep(self.dice.uniform(0.05, 0.3))
            there = self.job.workers()
            for worker in struck:
                send(there.get(worker, 0), signal.SIGCONT)
            struck = []
        self.over(first + struck)

    def _wait_for(self, order: int, first: list[int]) -> None:
        """Waits until a worker has taken the order, or the recovery is over without it."""
        begun = time.monotonic()

        def is_over() -> bool:
            if self.job.taken(order):
                return True
            later = [step for step in self.job.steps() if step.at > begun and not set(step.workers) & set(first)]
            return len(later) > 3

        self.job.wait(is_over, "the second fault, or a step")
        self.job.withdraw(order)

    def kill_again(self, workers: list[int], detail: str) -> None:
        self._second(workers, detail, "kill")

    def kill_a_guard_again(self, workers: list[int], detail: str) -> None:
        self._second(workers, detail, "guard")

    def stop_again(self, workers: list[int], detail: str) -> None:
        self._second(workers, detail, "stop")

    def kill_the_new_one(self, workers: list[int], detail: str) -> None:
        """Kills a rank, and its successor while it joins."""
        order = self.job.order(detail, "kill", self._known())
        first = self.pick(workers)
        self.strike(first)
        self.job.wait(lambda: self.job.taken(order), "the new worker's end")
        self.job.withdraw(order)
        self.over(first + self.job.taken(order))

    def _known(self) -> list[int]:
        """The workers that have been in a world."""
        return sorted({worker for step in self.job.steps() if step.at > self.job.begun for worker in step.workers})

    def kill_the_giver(self, workers: list[int], detail: str) -> None:
        """Kills rank 0 before its host's new rank has received the state: other ranks, perhaps on other hosts, have it."""
        hosts = [set(self.job.workers(host)) for host in self.job.place.hosts]
        beside = [worker for worker in workers[1:] if any({worker, workers[0]} <= there for there in hosts)]
        order = self.job.order("after the meeting", "stop", self._known())
        first = self.pick(beside or workers[1:])
        self.strike(first)
        self.job.wait(lambda: self.job.taken(order), "the new worker")
        self.job.withdraw(order)
        time.sleep(0.05)  # the others are in the new world, too
        self.strike(workers[:1])
        self.strike(self.job.taken(order), signal.SIGCONT)
        self.over(first + workers[:1])

    def kill_all(self, workers: list[int], detail: str) -> None:
        begun = time.monotonic()
        self.strike(workers)
        self.over(workers, begun)

    def kill_hvdrun(self, workers: list[int], detail: str) -> None:
        pids = self.job.workers().values()
        send(self.job.hvdrun(), signal.SIGKILL)
        self.job.again()
        self.job.wait(lambda: not any(told(pid, "HVD_RANK") for pid in pids), "the end of the ranks whose hvdrun has gone")
        self.job.begun = time.monotonic()
        self.over([])

    def full_memory(self, workers: list[int], detail: str) -> None:
        """The next copy of the state finds no memory: the rank ends with an error that says so, and the others continue."""
        victims = self.pick(workers)
        order = self.job.order("full memory", "fill", [worker for worker in self._known() if worker not in victims])
        self.job.wait(lambda: self.job.taken(order), "a commit")
        self.job.withdraw(order)
        self.over(self.job.taken(order))

    # ---- hosts that are not well

    def _host(self, workers: list[int]) -> str:
        return self.dice.choice(sorted(self._hosts_with(workers)))

    def _on_host(self, host: str, *argv: str) -> None:
        assert isinstance(self.job.place, Hosts)
        done = self.job.place.cluster.run(host, argv, timeout=10)
        assert done.returncode == 0, f"{argv}: {done.stderr}"

    def flap(self, workers: list[int], detail: str) -> None:
        """A host's cable is pulled and put back repeatedly: no rank and no step is lost."""
        assert isinstance(self.job.place, Hosts)
        cable, host = self.job.place.cluster.cable, self._host(workers)
        for _ in range(self.dice.randint(2, FLAPS)):
            cable(host, "down")
            time.sleep(self.dice.uniform(0.1, 1.0))
            cable(host, "up")
            time.sleep(self.dice.uniform(0.05, 0.4))
        self.job.wait_for_step(time.monotonic(), lambda there: set(workers) <= set(there), "a step of all")

    def slow_link(self, workers: list[int], detail: str) -> None:
        """A rank dies while a host sends slowly."""
        host = self._host(workers)
        self._on_host(host, *SLOW, "rate", detail)
        time.sleep(self.dice.uniform(0, 0.5))
        self.kill(workers, "")
        self._on_host(host, "tc", "qdisc", "del", "dev", "eth0", "root")

    def full_shm(self, workers: list[int], detail: str) -> None:
        """A rank dies while /dev/shm of its host is full: the next world's memory is elsewhere."""
        host, there = self.dice.choice(sorted(self._hosts_with(workers).items()))
        self._on_host(host, "sh", "-c", "mount -o remount,size=64m /dev/shm && ! cat /dev/zero >/dev/shm/full")
        victims = self.pick(there)
        self.strike(victims)
        self.over(victims)
        self._on_host(host, "sh", "-c", "rm /dev/shm/full && mount -o remount,size=4g /dev/shm")

    # ---- what hosts there are

    def change_hosts(self, workers: list[int], detail: str) -> None:
        """Removes some hosts from the list, and later adds them again."""
        place = self.job.place
        if len(place.hosts) == 1:
            left, ranks = ["localhost:2"], 2
        else:
            gone = self.dice.choice(place.hosts)
            left = [host for host in all_hosts(place) if not host.startswith(gone)]
            ranks = self.ranks
        discover(place, left)

        def fits(now: list[int]) -> bool:
            return len(now) == ranks and (len(place.hosts) == 1 or set(now) <= self._on(left))

        self.job.wait_for_step(time.monotonic(), fits, f"a step on {left}")
        discover(place, all_hosts(place))

    def _on(self, hosts: list[str]) -> set[int]:
        return {worker for host in hosts for worker in self.job.workers(host.partition(":")[0])}

    def bad_discovery(self, workers: list[int], detail: str) -> None:
        """A rank dies while the discovery script misbehaves."""
        discover(self.job.place, [], DISCOVERIES[detail])
        time.sleep(self.dice.uniform(0, 1.5))
        victims = self.pick(workers)
        self.strike(victims)
        self.over(victims)
        discover(self.job.place, all_hosts(self.job.place))

    def _hosts_with(self, workers: list[int]) -> dict[str, list[int]]:
        """Hosts that can end while other hosts' workers survive."""
        found = {host: [w for w in workers if w in self.job.workers(host)] for host in self.job.place.hosts}
        return {host: there for host, there in found.items() if there and len(there) < len(workers)}

    def kill_daemon(self, workers: list[int], detail: str) -> None:
        _, victims = self.dice.choice(sorted(self._hosts_with(workers).items()))
        send(self.job.daemon(victims[0]), signal.SIGKILL)
        self.over(victims)

    def kill_host(self, workers: list[int], detail: str) -> None:
        others = {host: there for host, there in self._hosts_with(workers).items() if host != "alpha"}  # hvdrun runs on alpha
        host, victims = self.dice.choice(sorted(others.items()))
        for pid in self.job.place.processes(host):
            send(pid, signal.SIGKILL)
        self.over(victims)


@dataclasses.dataclass
class Fault:
    """`need`: least number of ranks; `details`: one is drawn."""

    run: Callable[[Faults, list[int], str], None]
    need: int
    weight: int = 1
    details: list[str] = dataclasses.field(default_factory=lambda: [""])


KINDS = {
    "kill": Fault(Faults.kill, 2, 3),
    "kill at once": Fault(Faults.kill, 3, 2, ["two"]),
    "term": Fault(Faults.term, 2, 1, ["", "its guard"]),
    "kill a guard": Fault(Faults.kill_guard, 2, 2),
    "stop": Fault(Faults.stop, 2, 1, ["", "and kill"]),
    "kill, then kill": Fault(Faults.kill_again, 3, 8, RECOVERY + TRAINING),
    "kill, then kill a guard": Fault(Faults.kill_a_guard_again, 3, 3, RECOVERY + TRAINING),
    "kill, then stop": Fault(Faults.stop_again, 2, 3, RECOVERY + TRAINING),
    "kill, then the new one": Fault(Faults.kill_the_new_one, 2, 4, ENTRY),
    "kill, then who has the state": Fault(Faults.kill_the_giver, 3, 3),
    "kill all": Fault(Faults.kill_all, 1, 3),
    "kill hvdrun": Fault(Faults.kill_hvdrun, 1, 2),
    "hosts removed": Fault(Faults.change_hosts, 3, 1),
    "kill while discovery": Fault(Faults.bad_discovery, 2, 1, list(DISCOVERIES)),
    "full memory at commit": Fault(Faults.full_memory, 3, 1),
    "flapping cable": Fault(Faults.flap, 2, 1),
    "kill while a link is slow": Fault(Faults.slow_link, 3, 1, RATES),
    "kill while /dev/shm is full": Fault(Faults.full_shm, 3, 1),
    "kill a daemon": Fault(Faults.kill_daemon, 3, 2),
    "kill a host": Fault(Faults.kill_host, 3, 3),
}
NEED_A_FILE = ("kill all", "kill hvdrun")
NEED_HOSTS = ("kill a daemon", "kill a host", "flapping cable", "kill while a link is slow", "kill while /dev/shm is full")
TWO = ("kill at once", "kill, then the new one", "kill, then who has the state", "hosts removed", "kill while discovery")
