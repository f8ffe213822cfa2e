# Readings of the rank's threads and its cgroup, for the records of steps.  hvdrank_steps.py imports this file.  CPython 3.9 and
# later.
import mmap
import os
import threading
from time import monotonic_ns, thread_time_ns

# Where cores are short, the delays of threads are read at the start and the end of waits.  A reading would cost more than a
# short collective, so values of a certain age will do.
READ_OWN_AGAIN_NS = 1_000_000  # the main thread's
READING_SHARE = 200  # all threads': this multiple of the time that a reading takes
MOST_THREADS = 200  # the names of at most this number of threads are read


def small_file(path):
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def throttled_file(groups):
    """The descriptor of the file that tells how long a cgroup's processor limit held its processes; else -1.

    groups: the text of /proc/self/cgroup
    """
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = "/sys/fs/cgroup" + ("/cpu" if controllers else "")
        for name in ("/cpu.stat.local", "/cpu.stat"):
            fd = small_file(mount + path.rstrip("/") + name)
            if fd >= 0:
                return fd
    return -1


class Delays:
    """Nanoseconds for which the rank's threads were ready to run and had no core: the main thread, and gloo's."""

    def __init__(self):
        self.schedstats = [small_file(f"/proc/self/task/{threading.get_native_id()}/schedstat")]  # the main thread's first
        self.cores_are_short = False  # then the delays are read in waits too
        self.own_ns = self.all_ns = 0  # the last readings: the main thread's, and all threads'
        self.read_own_ns = self.read_all_ns = self.read_again_ns = self.wait_began_ns = 0
        self.in_waits = self.own_in_waits = 0  # since clear()

    def clear(self):
        self.in_waits = self.own_in_waits = 0

    def begin(self, now):
        """A wait begins."""
        self.wait_began_ns = now
        if now - self.read_all_ns > self.read_again_ns:
            self.read(now)
        elif now - self.read_own_ns > READ_OWN_AGAIN_NS:
            own, self.read_own_ns = self.of(self.schedstats[0]), now
            self.all_ns += max(0, own - self.own_ns)
            self.own_ns = own

    def end(self, now):
        """At the end of a long wait, adds the time for which the threads had no core."""
        if now - self.wait_began_ns < self.read_again_ns:
            return
        own, all = self.own_ns, self.all_ns
        self.read(now)
        self.in_waits += max(0, self.all_ns - all)
        self.own_in_waits += max(0, self.own_ns - own)

    def read(self, now):
        began = thread_time_ns()
        each = [self.of(fd) for fd in self.schedstats]
        self.own_ns, self.all_ns = each[0], sum(each)
        self.read_again_ns = READING_SHARE * (thread_time_ns() - began)
        self.read_own_ns = self.read_all_ns = now

    @staticmethod
    def of(schedstat):
        try:
            return int(os.pread(schedstat, 128, 0).split()[1])
        except (OSError, IndexError):  # the thread has ended
            return 0

    def follow_gloo(self):
        """Follows the threads that carry gloo's data."""
        for fd in self.schedstats[1:]:
            os.close(fd)
        del self.schedstats[1:]
        for task in os.listdir("/proc/self/task")[:MOST_THREADS]:
            try:
                with open(f"/proc/self/task/{task}/comm") as name:
                    if name.read().startswith(("pt_gloo", "gloo_")):
                        self.schedstats.append(small_file(f"/proc/self/task/{task}/schedstat"))
            except OSError:
                pass
        self.read(monotonic_ns())


class Group:
    """The process's cgroup: how long its processor limit held the processes."""

    def __init__(self):
        self.text, self.file, self.throttled_ns = "", -1, 0
        self.follow()

    def follow(self):
        """Looks whether the program has entered another group."""
        try:
            with open("/proc/self/cgroup") as file:
                text = file.read()
        except OSError:
            return
        if text == self.text:
            return
        if self.file >= 0:
            os.close(self.file)
        self.text, self.file = text, throttled_file(text)

    def throttled(self):
        """The ns since the last call."""
        ns = 0
        for line in os.pread(self.file, 1024, 0).splitlines() if self.file >= 0 else ():
            name, _, value = line.partition(b" ")
            if name in (b"throttled_usec", b"throttled_time"):
                ns = int(value) * (1000 if name == b"throttled_usec" else 1)
        before, self.throttled_ns = self.throttled_ns or ns, ns
        return max(0, ns - before)


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE
