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
import pickle
import re
import socket
import sys
import threading
import time

STILL_SECONDS = 2  # a main thread that stands still so long may wait for the GPU
MOST_RECORDS = 192  # of all groups, in one answer: the newest
MOST_OLD = 32  # and open ones that are older than these
MOST_BYTES = 150_000  # less than a packet may have
DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Int": "int32",
    "Long": "int64",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
}
LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ", "<hvdrun>", "/proc/self/fd/")
OUR_PACKAGES = re.compile(
    r"/(hvd|horovod)/(_|(common|data|jax|keras|mxnet|ray|runner|spark|tensorflow|torch)/"
    r"|(elastic|exceptions|network|numpy|process_sets)\.py)"
)
C10D = "torch/distributed/distributed_c10d.py"
KINDS = {"all_reduce_barrier": "barrier"}  # NCCL's name of a barrier
MESSAGE = re.compile(r"(send|recv) \d+(?:->|<-)(\d+)")  # a message's name in NCCL's record; its ranks are those of the group
ROOTS = {"broadcast": "src", "scatter": "src", "reduce": "dst", "gather": "dst"}  # the parameter that names the root


def is_library(file):
    """As in source_frame.cc: also the packages hvd and horovod in a folder that is no site-packages."""
    return any(part in file for part in LIBRARIES) or OUR_PACKAGES.search(file) is not None


def place_of(frames):
    """The user's innermost line of (file, line, function), innermost first: "train.py:8 (step)"."""
    for file, line, function in frames:
        if not is_library(file):
            name = f"{os.path.basename(file)}:{line}"
            return name if function == "<module>" else f"{name} ({function})"
    return ""


def tensor_text(sizes, dtypes):
    """[[8], [2, 3]], ["Float", "Float"] → "[8] float32, [2, 3] float32".  Of more than two: the first and a count."""
    if not sizes:
        return ""
    words = [
        f"{list(size)} {DTYPES.get(dtype, str(dtype).lower())}" for size, dtype in zip(sizes, list(dtypes) + ["?"] * len(sizes))
    ]
    return ", ".join(words) if len(words) <= 2 else f"{words[0]} and {len(words) - 1} more"


def all_frames(frame):
    frames = []
    while frame is not None and len(frames) < 200:
        frames.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, frame))
        frame = frame.f_back
    return frames


def is_new(frame):
    """Whether this function has not seen the frame before.

    Each call has a frame of its own, but often at the address of the last one.  A reference would keep the call's tensors
    alive.  So the frame itself gets a mark, which only a debugger or a coverage tool reads.
    """
    if not frame.f_trace_lines:
        return False
    frame.f_trace_lines = False
    return True


class Watcher:
    def __init__(self, c10d, name):
        self.c10d, self.name = c10d, name
        self.lock = threading.Lock()  # the thread holds it while it is inside torch; end() waits for it
        self.link = None
        self.refused = None  # why the store cannot be reached; "": it can; None: not tried
        self.init = None  # the arguments of the init_process_group() that runs now
        self.calls = self.ddp = None  # hvdrank_calls, where torch's gloo records nothing
        self.call = None  # the main thread's present call: (instruction in its frame, time when it was first seen)
        self.still = None  # of the main thread's innermost frame: (instruction, time when it was first seen there)
        self.first_open = {}  # group's name → (number of its first open collective, whether of NCCL), in the last answer
        self.moved_at = {}  # group's name → time of the first answer with its present first open collective
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
        self.lock = threading.Lock()  # the parent's thread may have held the old one, and nobody releases it here

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
        if self.calls is not None and not self.c10d.is_initialized():
            self.calls.forget()
        self.init = {
            "rank": number("rank", "RANK"),
            "world": number("world_size", "WORLD_SIZE"),
            "address": address,
            "port": int(port) if port.isdigit() else 0,
            "since": time.monotonic(),
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
        frames = all_frames(sys._current_frames().get(threading.main_thread().ident))
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
            self.call = None
            return None, None
        function, frame = inside
        now = time.monotonic()
        self.call = self.seen_since(self.call, frame, now)
        peer = -1
        if function in ("send", "recv"):
            for name in ("group_src", "group_dst", "src", "dst"):
                value = frame.f_locals.get(name)
                peer = value if isinstance(value, int) and value >= 0 else peer
        place = place_of([entry[:3] for entry in frames])
        call = {"name": function, "peer": peer, "place": place, "seconds": now - self.call[1]}
        return call, frame.f_locals.get("group")

    @staticmethod
    def seen_since(before, frame, now):
        """(instruction, time since when the frame is at it), from the same pair of the last question, or None."""
        if is_new(frame) or before is None or before[0] != frame.f_lasti:
            return frame.f_lasti, now
        return before

    def message_of(self, entries, members, frames):
        """The present call of a rank whose main thread stands still, while a message through NCCL is open; else None.

        NCCL's send() and recv() return at once.  The main thread then waits for the GPU.  A thread that goes on does not
        wait, because a program may post messages in advance.
        """
        if not frames:
            return None
        now = time.monotonic()
        self.still = self.seen_since(self.still, frames[0][3], now)
        seconds = now - self.still[1]
        found = entries and MESSAGE.search(str(entries[0]["profiling_name"]))
        if not found or seconds < STILL_SECONDS:
            return None
        ranks = members.get(str(entries[0]["process_group"][0]), {})
        peer = next((rank for rank, in_group in ranks.items() if in_group == int(found[2])), -1)
        return {"name": found[1], "peer": peer, "place": place_of([entry[:3] for entry in frames]), "seconds": seconds}

    def root_of(self, frames):
        """(function, group's name, root as a global rank) of the collective with a root in which these frames are; else
        None.  torch's recorder has no roots."""
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
        world = self.c10d._world
        numbers, members_of = {}, {}
        names, recorded_by_nccl = set(), set()
        for group, ranks in list(world.pg_group_ranks.items()):
            name = str(world.pg_names.get(group, ""))
            members = sorted(ranks)
            backend = str(world.pg_map.get(group, ("?",))[0]) if group in world.pg_map else ""
            configured = str(world.pg_backend_config.get(group, "")) if hasattr(world, "pg_backend_config") else ""
            names.update(part.split(":")[-1] for part in (configured or backend).split(",") if part)
            numbers[name] = len(told["groups"])
            members_of[name] = ranks
            if backend == "nccl":
                recorded_by_nccl.add(name)
            description = str(getattr(group, "group_desc", "") or "")
            whole_world = len(told["groups"]) == 0
            told["groups"].append([name, "default" if whole_world else description, members])
            if whole_world:
                told["rank"] = self.c10d.get_rank()
        if not told["groups"]:
            return
        now = time.time()
        rows, messages = [], []
        for entry in self.entries(names, whole):
            number = numbers.get(str(entry["process_group"][0]))
            if number is None:
                continue
            if entry["process_group"][0] in recorded_by_nccl and entry["profiling_name"].startswith("call:"):
                continue
            kind = str(entry["profiling_name"]).split(":", 1)[-1].strip("_")
            kind = KINDS.get(kind, kind)
            ended = bool(entry.get("retired")) or entry.get("state") == "completed"
            peer_to_peer = bool(entry.get("is_p2p"))
            sequence = entry["p2p_seq_id" if peer_to_peer else "collective_seq_id"]
            frames = [(f["filename"], f["line"], f["name"]) for f in entry.get("frames", ())]
            if peer_to_peer and not ended:
                messages.append(entry)
            rows.append(
                [
                    number,
                    int(sequence),
                    kind,
                    "" if kind == "barrier" else tensor_text(entry.get("input_sizes") or (), entry.get("input_dtypes") or ()),
                    int(ended) + 2 * int(peer_to_peer) + 4 * int(not str(entry["profiling_name"]).startswith("nccl:")),
                    max(0.0, now - entry["time_created_ns"] / 1e9),
                    place_of(frames),
                    -1,
                ]
            )
        told["recorded"] = self.records_exist(names)
        rows.sort(key=lambda row: -row[5])
        gaps = [a[5] - b[5] for a, b in zip(rows[2:], rows[3:])]
        told["longest_gap"] = max(gaps[-64:], default=0.0) if whole else 0.0
        self.count_from_progress([row for row in rows if not row[4] & 3], [group[0] for group in told["groups"]])
        opened = [row for row in rows if not row[4] & 1]
        frames = all_frames(sys._current_frames().get(threading.main_thread().ident))
        if told["call"] is None:
            told["call"] = self.message_of(messages, members_of, frames)
        if opened:
            if not opened[-1][6]:  # no line was recorded: the main thread's present line is the best guess
                opened[-1][6] = place_of([entry[:3] for entry in frames])
            function, group, root = self.root_of(frames) or ("", "", -1)
            if opened[-1][2] == function and opened[-1][0] == numbers.get(group):
                opened[-1][7] = root
        told["records"] = [row for row in rows[:-MOST_RECORDS] if not row[4] & 1][:MOST_OLD] + rows[-MOST_RECORDS:]
        used = {0}.union(row[0] for row in told["records"])
        if told["call"] is not None:
            name = next((world.pg_names.get(group) for group in world.pg_group_ranks if group is group_of_call), None)
            told["call"]["group"] = numbers.get(str(name), -1)
            used.add(told["call"]["group"])
        told["groups"] = [group if n in used else [group[0], group[1], []] for n, group in enumerate(told["groups"])]

    def count_from_progress(self, opened, names):
        """Shortens the seconds of these open collectives (rows, in their order): they count from the last progress.

        A rank may enqueue many collectives in advance, and then waits for each one a short time.  Collectives of several
        groups of NCCL may wait for each other's streams, so progress in one group counts for all of them.
        """
        now = time.monotonic()
        before, self.first_open = self.first_open, {}
        several = set()
        for row in opened:
            name = names[row[0]]
            if self.first_open.setdefault(name, (row[1], not row[4] & 4))[0] != row[1]:
                several.add(name)
        moved = {name for name, first in before.items() if self.first_open.get(name) != first}
        moved |= several - set(before)  # the others may have ended just now
        if any(on_gpus for name, (_, on_gpus) in [*before.items(), *self.first_open.items()] if name in moved):
            moved |= {name for name, (_, on_gpus) in self.first_open.items() if on_gpus}
        self.moved_at = {name: now if name in moved else self.moved_at.get(name, 0.0) for name in names}
        for row in opened:
            row[5] = min(row[5], now - self.moved_at[names[row[0]]])

    def records_exist(self, names):
        torch = sys.modules["torch"]._C._distributed_c10d
        return ("gloo" in names and hasattr(torch, "_dump_fr_trace")) or hasattr(torch, "_dump_nccl_trace")

    def entries(self, names, whole):
        """Reads the entries of these backends' flight recorders, except hvd's, which has its own."""
        torch = sys.modules["torch"]._C._distributed_c10d
        lines = False  # of the program's source: torch imports its compiler for them, which takes seconds
        found = self.calls.entries(whole) if self.calls is not None else []
        if hasattr(torch, "_dump_fr_trace"):
            for backend in sorted(names - {"hvd", "fake", "undefined"}):
                try:
                    text = torch._dump_fr_trace(True, lines, not whole, backend)
                except TypeError:  # torch 2.8 to 2.14: one recorder for all that are not NCCL
                    text = torch._dump_fr_trace(True, lines, not whole) if backend == "gloo" else b""
                if text:
                    found += pickle.loads(text).get("entries", [])
        if hasattr(torch, "_dump_nccl_trace") and "nccl" in names:
            seen = {(e["process_group"][0], e["profiling_name"], e["time_created_ns"]) for e in found}
            try:
                dump = pickle.loads(torch._dump_nccl_trace(True, lines, not whole))
            except TypeError:  # torch 2.2 and 2.3 have no parameters
                dump = pickle.loads(torch._dump_nccl_trace())
            for entry in dump.get("entries", []) if isinstance(dump, dict) else dump:
                if "process_group" not in entry:  # these do not name the group either
                    break
                if (entry["process_group"][0], entry["profiling_name"], entry["time_created_ns"]) not in seen:
                    found.append(entry)
        return found


def fill_recorder():
    """Sets the size of the flight recorder, unless the user has set it.  NCCL has a recorder from torch 2.2 on, gloo from
    torch 2.8 on.  torch 2.15 switches the recorder on by itself."""
    if not any(os.environ.get(name) for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")):
        version = tuple(int(part) for part in Watcher.torch_version().split(".")[:2] if part.isdigit())
        os.environ["TORCH_FR_BUFFER_SIZE" if version >= (2, 8) else "TORCH_NCCL_TRACE_BUFFER_SIZE"] = "2000"


def watch(c10d, name, calls):
    """Starts the watch.  calls: a function that loads hvdrank_calls."""
    fill_recorder()
    watcher = Watcher(c10d, name)
    if not hasattr(sys.modules["torch"]._C._distributed_c10d, "_dump_fr_trace"):
        watcher.calls, watcher.ddp = calls().Calls(c10d), calls().DdpCalls()
    original = c10d.init_process_group

    @functools.wraps(original)
    def init_process_group(*args, **kwargs):
        watcher.enters(args, kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            watcher.leaves()

    c10d.init_process_group = init_process_group
