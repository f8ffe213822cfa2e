# Tells hvdrun's guard about this rank's torch.distributed collectives, for any backend.  sitecustomize.py runs this
# file after an import of distributed_c10d.  From the first init_process_group() on, a thread waits for the guard's
# questions. The thread sleeps in recv() between questions.
#
# The link: a SOCK_SEQPACKET socket to the guard, with one JSON text a packet.  The guard asks "w" or "a".  "w" asks for
# the rank's present wait, "a" also for its last collectives.  The rank also reports, unasked, when it enters and leaves
# init_process_group().  CPython 3.8 and later, torch 2.0 and later.
import atexit
import functools
import json
import os
import re
import socket
import sys
import threading
import time

from hvdrank_frames import C10D, Stay, all_frames, is_library, place_of
from hvdrank_records import ENDED, MESSAGE, Groups, Records, longest_gap, newest

STILL_SECONDS = 2  # a main thread that stands still so long may wait for the GPU
MOST_BYTES = 150_000  # less than a packet may have
MESSAGE_NAME = re.compile(r"(send|recv) \d+(?:->|<-)(\d+)")  # in NCCL's record; the ranks are those of the group
ROOTS = {"broadcast": "src", "scatter": "src", "reduce": "dst", "gather": "dst"}  # the parameter that names the root


def main_thread_frames():
    return all_frames(sys._current_frames().get(threading.main_thread().ident))


def is_in_c10d(frames):
    """Returns whether the user's innermost line has called torch.distributed."""
    for file, *_ in frames:
        if file.endswith(C10D):
            return True
        if not is_library(file):
            return False
    return False


def caller_frames(main):
    """The frames of the thread that is in torch.distributed.  The main thread comes first, and also counts if no thread is
    there."""
    if is_in_c10d(main):
        return main
    others = map(all_frames, sys._current_frames().values())
    return next((frames for frames in others if is_in_c10d(frames)), main)


class Watcher:
    def __init__(self, c10d, name):
        self.c10d, self.name = c10d, name
        self.lock = threading.Lock()  # the thread holds it while it is inside torch; end() waits for it
        self.link = None
        self.refused = None  # the reason for which the store is unreachable; "": reachable; None: not tried
        self.init = None  # the arguments of the init_process_group() that runs now
        self.records = Records()
        self.ddp = None  # hvdrank_calls.DdpCalls, where torch's gloo records nothing
        self.in_call, self.still = Stay(), Stay()  # of the main thread: its present call's frame, its innermost frame
        self.ending = False

    # ---- the link ----
    def start(self):
        """Connects to the guard, once in a process.  If no guard listens, does nothing."""
        if self.link is not None:
            return
        link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            link.settimeout(1)
            link.connect("\0" + self.name)
            link.settimeout(None)
        except OSError:
            link.close()
            return
        self.link = link
        atexit.register(self.end)
        os.register_at_fork(after_in_child=self.forget)
        threading.Thread(target=self.run, args=(link,), name="hvdrun-watch", daemon=True).start()

    def forget(self):
        """Closes the link in a forked child, because the child is not the rank."""
        if self.link is not None:
            self.link.close()
        self.ending = True
        # If the parent's thread held the old lock at the fork, no thread of this process would release it.
        self.lock = threading.Lock()

    def end(self):
        """Waits at exit until the thread has left torch; otherwise it would abort the process.

        The pause lets gloo's threads take the interpreter's lock and drop their last tensors.  A thread that waits for the
        lock when the interpreter ends aborts the process (torch's issue 190489).
        """
        self.ending = True
        if self.lock.acquire(timeout=10):  # a thread that hangs inside torch must not keep the process
            self.lock.release()
        time.sleep(0.001)

    def run(self, link):
        while True:
            try:
                question = link.recv(16)
            except OSError:
                return
            if not question or self.ending:
                return
            with self.lock:
                if self.ending:
                    return
                self.tell(self.answer(question == b"a"))

    def tell(self, answer):
        text = json.dumps(answer, separators=(",", ":")).encode()
        while len(text) > MOST_BYTES and answer.get("records"):
            answer["records"] = answer["records"][len(answer["records"]) // 2 + 1 :]
            text = json.dumps(answer, separators=(",", ":")).encode()
        try:
            self.link.send(text[:MOST_BYTES], socket.MSG_DONTWAIT)  # a guard that does not read delays no rank
        except OSError:
            pass

    # ---- init_process_group ----
    def enters(self, args, kwargs):
        self.start()
        if self.link is None:
            return
        given = dict(zip(("backend", "init_method", "timeout", "world_size", "rank"), args), **kwargs)
        environment = os.environ.get

        def number(name, variable):
            value = given.get(name, -1)
            if not isinstance(value, int) or value < 0:
                text = environment(variable, "")
                value = int(text) if text.isdigit() else -1
            return value

        method = str(given.get("init_method") or "env://")
        address, port = environment("MASTER_ADDR", ""), environment("MASTER_PORT", "")
        if method.startswith("tcp://"):
            address, _, port = method[6:].partition("/")[0].rpartition(":")
        if given.get("store") is not None or method.startswith("file://"):
            address = port = ""
        self.refused = None
        if self.records.calls is not None and not self.c10d.is_initialized():
            self.records.calls.forget()
        self.init = {
            "rank": number("rank", "RANK"),
            "world": number("world_size", "WORLD_SIZE"),
            "address": address,
            "port": int(port) if port.isdigit() else 0,
            "since": time.monotonic(),
            "place": place_of([entry[:3] for entry in all_frames(sys._getframe(1))]),  # a signal would break torch's connect
        }
        self.tell(self.answer(False, asked=False))

    def leaves(self):
        self.init = None
        if self.link is not None:
            self.tell(self.answer(False, asked=False))

    def reach(self, init):
        """The reason why the store cannot be reached; "": the store can be reached, or was not tried."""
        if not init["address"] or not init["port"] or init["rank"] == 0:
            return ""
        try:
            socket.create_connection((init["address"], init["port"]), timeout=1).close()
        except socket.gaierror:
            return "no host of that name is known"
        except (TimeoutError, socket.timeout):
            return "it does not answer"
        except OSError as error:
            return error.strerror.lower() if error.strerror else str(error)
        return ""

    # ---- the answer ----
    def answer(self, whole, asked=True):
        told = {"whole": whole, "torch": self.torch_version(), "pid": os.getpid(), "rank": -1, "groups": [], "records": []}
        init = self.init
        if init is not None:
            seconds = time.monotonic() - init["since"]
            told["init"] = dict(init, since=seconds)
            if asked and seconds > 3 and self.refused != "":
                self.refused = self.reach(init)  # after a success it is not tried again
            told["init"]["reach"] = self.refused or ""
        try:
            told["call"], group = self.present_call()
            self.add_records(told, whole, group)
        except Exception as error:  # this torch has other internals: the answer says so
            told["trouble"] = repr(error)[:200]
        return told

    @staticmethod
    def torch_version():
        return str(getattr(sys.modules.get("torch"), "__version__", ""))

    def present_call(self):
        """The function of distributed_c10d in which the main thread is: its name, the user's line, seconds; its group."""
        frames = main_thread_frames()
        inside = None
        for file, _, function, frame in frames:
            if file.endswith(C10D):
                if not function.startswith("_") and function != "wrapper":
                    inside = (function, frame)
            elif not is_library(file):
                break
        if inside is None and self.ddp is not None and (name := self.ddp.name(frames)):
            inside = (name, frames[0][3])
        if inside is None or inside[0] == "init_process_group":
            self.in_call.end()
            return None, None
        function, frame = inside
        seconds = self.in_call.seconds(frame)
        peer = tag = -1
        if function in ("send", "recv"):
            tag = frame.f_locals.get("tag")
            for name in ("group_src", "group_dst", "src", "dst"):
                value = frame.f_locals.get(name)
                peer = value if isinstance(value, int) and value >= 0 else peer
        place = place_of([entry[:3] for entry in frames])
        call = {"name": function, "peer": peer, "place": place, "seconds": seconds}
        if isinstance(tag, int) and tag >= 0:
            call["tag"] = tag
        return call, frame.f_locals.get("group")

    def message_of(self, entries, members, frames):
        """Returns the open message through NCCL for which the main thread waits; None: the thread is not still, or no message
        is open.

        NCCL's send() and recv() return at once, and the main thread later waits for the GPU.  A program may also post messages
        in advance.  So a thread that still moves does not wait for a message.
        """
        if not frames:
            return None
        seconds = self.still.seconds(frames[0][3])
        found = entries and MESSAGE_NAME.search(str(entries[0]["profiling_name"]))
        if not found or seconds < STILL_SECONDS:
            return None
        ranks = members.get(str(entries[0]["process_group"][0]), {})
        peer = next((rank for rank, in_group in ranks.items() if in_group == int(found[2])), -1)
        return {"name": found[1], "peer": peer, "place": place_of([entry[:3] for entry in frames]), "seconds": seconds}

    def root_of(self, frames):
        """(function, group's name, root as a global rank) if these frames are in a collective with a root; else None. torch's
        recorder has no roots."""
        for file, _, function, frame in frames:
            if file.endswith(C10D) and function in ROOTS:
                return function, *self.given_root(ROOTS[function], frame.f_locals)
            if not is_library(file):
                return None
        return None

    def given_root(self, parameter, given):
        group, root, in_group = given.get("group"), given.get(parameter), given.get("group_" + parameter)
        group = self.c10d.group.WORLD if group is None else group
        if root is None:
            root = 0 if in_group is None else self.c10d.get_global_rank(group, in_group)
        return str(self.c10d._world.pg_names.get(group)), int(root)

    def add_records(self, told, whole, group_of_call):
        """Adds the groups and the rows of hvdrank_records to `told`.  If `told` has no call yet, also adds the call of an open
        message."""
        groups = Groups(self.c10d)
        told["groups"] = groups.rows
        if not groups.rows:
            return
        told["rank"] = self.c10d.get_rank()
        rows, messages = self.records.read(groups, whole)
        told["recorded"] = self.records.exist(groups.backends)
        told["longest_gap"] = longest_gap(rows) if whole else 0.0
        opened = [row for row in rows if not row[4] & ENDED]
        self.records.count_from_progress([row for row in opened if not row[4] & MESSAGE], list(groups.places))
        frames = main_thread_frames()
        if told["call"] is None:
            told["call"] = self.message_of(messages, groups.ranks, frames)
        if opened:
            self.complete(opened[-1], groups, frames)
        told["records"] = newest(rows)
        used = {0}.union(row[0] for row in told["records"])
        if told["call"] is not None:
            world = self.c10d._world
            name = next((world.pg_names.get(group) for group in world.pg_group_ranks if group is group_of_call), None)
            told["call"]["group"] = groups.places.get(str(name), -1)
            used.add(told["call"]["group"])
        told["groups"] = [group if n in used else [group[0], group[1], []] for n, group in enumerate(groups.rows)]

    def complete(self, row, groups, frames):
        """Adds to the newest open collective its line and its root, where the recorder has none."""
        if not row[6]:  # a thread's present line is the best guess
            row[6] = place_of([entry[:3] for entry in caller_frames(frames)])
        function, group, root = self.root_of(frames) or ("", "", -1)
        if row[2] == function and row[0] == groups.places.get(group):
            row[7] = root


def fill_recorder():
    """Sets the size of the flight recorder, unless the user has set it.  NCCL has a recorder from torch 2.2 on, gloo from
    torch 2.8 on.  torch 2.15 switches the recorder on by itself."""
    if not any(os.environ.get(name) for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")):
        version = tuple(int(part) for part in Watcher.torch_version().split(".")[:2] if part.isdigit())
        os.environ["TORCH_FR_BUFFER_SIZE" if version >= (2, 8) else "TORCH_NCCL_TRACE_BUFFER_SIZE"] = "2000"


def watch(c10d, name, calls):
    """Starts the watch.  calls: a function that loads hvdrank_calls, which only an old torch needs."""
    fill_recorder()
    watcher = Watcher(c10d, name)
    if not hasattr(sys.modules["torch"]._C._distributed_c10d, "_dump_fr_trace"):
        watcher.records.calls, watcher.ddp = calls().Calls(c10d), calls().DdpCalls()
    original = c10d.init_process_group

    @functools.wraps(original)
    def init_process_group(*args, **kwargs):
        watcher.enters(args, kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            watcher.leaves()

    c10d.init_process_group = init_process_group
