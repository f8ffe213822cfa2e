# A rank's process groups, and the collectives in torch's flight recorders.  hvdrank_collectives.py imports this file.
#
# A row is a collective in the answer to the guard: [group's place in the answer, number, kind, tensors, bits, seconds since
# it was enqueued, user's line, root or -1].  Bits: 1 it has ended, 2 a message, 4 not recorded by NCCL.  CPython 3.8 and
# later, torch 2.0 and later.
import pickle
import sys
import time

from hvdrank_frames import place_of

MOST_RECORDS = 192  # of all groups, in one answer: the newest
MOST_OLD = 32  # and open ones that are older than these
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
KINDS = {"all_reduce_barrier": "barrier"}  # NCCL's name of a barrier
ENDED, MESSAGE, NOT_OF_NCCL = 1, 2, 4


def tensor_text(sizes, dtypes):
    """[[8], [2, 3]], ["Float", "Float"] → "[8] float32, [2, 3] float32".  With more than two tensors: the first one and the
    number of others."""
    if not sizes:
        return ""
    words = [
        f"{list(size)} {DTYPES.get(dtype, str(dtype).lower())}" for size, dtype in zip(sizes, list(dtypes) + ["?"] * len(sizes))
    ]
    return ", ".join(words) if len(words) <= 2 else f"{words[0]} and {len(words) - 1} more"


class Groups:
    """The process groups of this rank, in torch's order.  The first one is the whole world."""

    def __init__(self, c10d):
        world = c10d._world
        self.rows = []  # [name, description, global ranks], as in the answer
        self.places = {}  # name → place in rows
        self.ranks = {}  # name → {global rank: rank in the group}
        self.backends, self.of_nccl = set(), set()  # names of backends; names of groups
        for group, ranks in list(world.pg_group_ranks.items()):
            name = str(world.pg_names.get(group, ""))
            backend = str(world.pg_map.get(group, ("?",))[0]) if group in world.pg_map else ""
            configured = str(world.pg_backend_config.get(group, "")) if hasattr(world, "pg_backend_config") else ""
            self.backends.update(part.split(":")[-1] for part in (configured or backend).split(",") if part)
            self.places[name] = len(self.rows)
            self.ranks[name] = ranks
            if backend == "nccl":
                self.of_nccl.add(name)
            description = "default" if not self.rows else str(getattr(group, "group_desc", "") or "")
            self.rows.append([name, description, sorted(ranks)])


class Records:
    """The rank's collectives, as one answer after the other reads them."""

    def __init__(self):
        self.calls = None  # hvdrank_calls.Calls, where torch's gloo records nothing
        self.first_open = {}  # group's name → (number of its first open collective, whether of NCCL), in the last answer
        self.moved_at = {}  # group's name → time of the first answer with its present first open collective

    def read(self, groups, whole):
        """The rows, the oldest first, and the entries of open messages.  Without `whole`, recorders give the open ones."""
        now = time.time()
        rows, messages = [], []
        for entry in self.entries(groups.backends, whole):
            group, name = str(entry["process_group"][0]), str(entry["profiling_name"])
            if group not in groups.places or (group in groups.of_nccl and name.startswith("call:")):
                continue
            row = self.row_of(entry, groups.places[group], now)
            rows.append(row)
            if row[4] & (ENDED | MESSAGE) == MESSAGE:
                messages.append(entry)
        rows.sort(key=lambda row: -row[5])
        return rows, messages

    @staticmethod
    def row_of(entry, place, now):
        name = str(entry["profiling_name"])
        kind = name.split(":", 1)[-1].strip("_")
        kind = KINDS.get(kind, kind)
        message = bool(entry.get("is_p2p"))
        bits = ENDED * (bool(entry.get("retired")) or entry.get("state") == "completed")
        bits += MESSAGE * message + NOT_OF_NCCL * (not name.startswith("nccl:"))
        tensors = "" if kind == "barrier" else tensor_text(entry.get("input_sizes") or (), entry.get("input_dtypes") or ())
        frames = [(f["filename"], f["line"], f["name"]) for f in entry.get("frames", ())]
        age = max(0.0, now - entry["time_created_ns"] / 1e9)
        number = int(entry["p2p_seq_id" if message else "collective_seq_id"])
        return [place, number, kind, tensors, bits, age, place_of(frames), -1]

    def count_from_progress(self, opened, names):
        """Shortens the seconds of these open collectives (rows, in their order): they count from the last progress.

        A rank may enqueue many collectives in advance, and then waits for each one a short time.  Collectives of several NCCL
        groups may wait for each other's streams.  So progress in one group counts for all of them.
        """
        now = time.monotonic()
        before, self.first_open = self.first_open, {}
        several = set()
        for row in opened:
            name = names[row[0]]
            if self.first_open.setdefault(name, (row[1], not row[4] & NOT_OF_NCCL))[0] != row[1]:
                several.add(name)
        moved = {name for name, first in before.items() if self.first_open.get(name) != first}
        moved |= several - set(before)  # the others may have ended just now
        if any(on_gpus for name, (_, on_gpus) in [*before.items(), *self.first_open.items()] if name in moved):
            moved |= {name for name, (_, on_gpus) in self.first_open.items() if on_gpus}
        self.moved_at = {name: now if name in moved else self.moved_at.get(name, 0.0) for name in names}
        for row in opened:
            row[5] = min(row[5], now - self.moved_at[names[row[0]]])

    @staticmethod
    def exist(backends):
        """Returns whether this torch records the collectives of these backends."""
        torch = sys.modules["torch"]._C._distributed_c10d
        return ("gloo" in backends and hasattr(torch, "_dump_fr_trace")) or hasattr(torch, "_dump_nccl_trace")

    def entries(self, backends, whole):
        """Reads the entries of these backends' flight recorders, except hvd's, which has its own."""
        torch = sys.modules["torch"]._C._distributed_c10d
        lines = False  # of the program's source: torch imports its compiler for them, which takes seconds
        found = self.calls.entries(whole) if self.calls is not None else []
        if hasattr(torch, "_dump_fr_trace"):
            for backend in sorted(backends - {"hvd", "fake", "undefined"}):
                try:
                    text = torch._dump_fr_trace(True, lines, not whole, backend)
                except TypeError:  # torch 2.8 to 2.14: one recorder for all that are not NCCL
                    text = torch._dump_fr_trace(True, lines, not whole) if backend == "gloo" else b""
                if text:
                    found += pickle.loads(text).get("entries", [])
        if hasattr(torch, "_dump_nccl_trace") and "nccl" in backends:
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


def longest_gap(rows):
    """The longest time between two successive rows of the newest 64.  A program makes the first two while it starts."""
    gaps = [a[5] - b[5] for a, b in zip(rows[2:], rows[3:])]
    return max(gaps[-64:], default=0.0)


def newest(rows):
    """The rows that an answer has room for: the newest ones, and before these the oldest that are open."""
    return [row for row in rows[:-MOST_RECORDS] if not row[4] & ENDED][:MOST_OLD] + rows[-MOST_RECORDS:]
