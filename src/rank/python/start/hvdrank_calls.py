# Records the calls of torch.distributed's collectives for a torch whose gloo has no flight recorder: 2.0 to 2.7.
# hvdrank_collectives.py installs it.  A record has the keys of a flight recorder's entry that the watcher reads.
#
# DistributedDataParallel calls the process group in C++, where no wrapper sees the call.  ddp_call() names such a call by the
# main thread's frames.
import collections
import gc
import inspect
import sys
import time
import weakref

NAMES = (
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "all_gather_into_tensor",
    "gather",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "all_reduce_coalesced",
    "all_gather_coalesced",
)
INPUTS = ("input_tensor", "input", "tensor", "tensors")
MOST = 2000


class Calls:
    def __init__(self, c10d):
        self.c10d = c10d
        self.rows = collections.deque(maxlen=MOST)
        self.counts = {}  # by the process group's name, because a reference would keep alive a group that the program drops
        for name in NAMES:
            original = getattr(c10d, name, None)
            if callable(original):
                setattr(c10d, name, self.wrapped(name, original))

    def wrapped(self, name, original):
        parameters = list(inspect.signature(original).parameters)
        given = next((p for p in INPUTS if p in parameters), None)
        at = parameters.index(given) if given else -1
        group_at = parameters.index("group") if "group" in parameters else -1
        counts, rows, c10d, now, frame = self.counts, self.rows, self.c10d, time.time_ns, sys._getframe

        def call(*args, **kwargs):
            try:
                tensors = None if at < 0 else args[at] if len(args) > at else kwargs.get(given)
                if getattr(tensors, "is_cuda", False):
                    raise ValueError  # NCCL's calls return before they end, and NCCL has a recorder
                group = kwargs.get("group") if group_at < 0 or len(args) <= group_at else args[group_at]
                group = c10d._world.pg_names.get(c10d.group.WORLD if group is None else group)
                number = counts[group] = counts.get(group, 0) + 1
                caller = frame(1)
                row = [group, number, name, tensor_kinds(tensors), now(), (caller.f_code, caller.f_lineno), None]
            except (AttributeError, TypeError, ValueError):  # an argument of another kind: torch raises its own error
                row = None
            if row is None:
                return original(*args, **kwargs)
            rows.append(row)
            work = None
            try:
                work = original(*args, **kwargs)
            finally:
                row[6] = True if work is None else reference(work)
            return work

        call.__name__, call.__qualname__, call.__doc__, call.__module__ = name, name, original.__doc__, original.__module__
        call.__wrapped__ = original
        return call

    def forget(self):
        """Forgets the calls: a new default group uses torch's group names again."""
        self.rows.clear()
        self.counts.clear()

    def entries(self, whole):
        """The records, oldest first.  @whole: with the collectives that have ended."""
        found = []
        for group, number, name, tensors, created, (code, line), end in list(self.rows):
            ended = has_ended(end)
            if ended and not whole:
                continue
            found.append(
                {
                    "process_group": (group,),
                    "collective_seq_id": number,
                    "profiling_name": "call:" + name,
                    "input_sizes": [tuple(size) for size, _ in tensors],
                    "input_dtypes": [str(kind).replace("torch.", "") for _, kind in tensors],
                    "retired": ended,
                    "time_created_ns": created,
                    "frames": [{"filename": code.co_filename, "line": line, "name": code.co_name}],
                }
            )
        return found


def tensor_kinds(given):
    """(shape, dtype) of a tensor, or of each of a list's first hundred."""
    if given is None:
        return ()
    if hasattr(given, "shape"):
        return ((given.shape, given.dtype),)
    return [(one.shape, one.dtype) for one in list(given)[:100] if hasattr(one, "shape")]


def reference(work):
    """Does not keep the work and its tensors alive."""
    try:
        return weakref.ref(work)
    except TypeError:
        return True


def has_ended(end):
    """Returns whether a call has ended. end: None (not returned yet), True (returned), or a weak reference to its work."""
    if end is None or end is True:
        return end is True
    work = end()
    return work is None or bool(work.is_completed())


class DdpCalls:
    """Tells in which of DistributedDataParallel's exchanges the main thread waits."""

    FILES = ("torch/nn/parallel/distributed.py", "torch/distributed/utils.py")

    def __init__(self):
        self.has_model = False

    def name(self, frames):
        """@frames: the main thread's (file, line, function, frame), innermost first; None: it is in no such exchange."""
        for file, _, function, _ in frames[:8]:
            if file.endswith(self.FILES):
                return "DistributedDataParallel()" if function != "backward" else None
            if file.endswith("torch/autograd/__init__.py") and function in ("backward", "grad"):
                return "the gradients of DistributedDataParallel" if is_idle() and self.has_ddp() else None
            if "/torch/" not in file:
                return None
        return None

    def has_ddp(self):
        if not self.has_model:
            self.has_model = any(type(one).__name__ == "DistributedDataParallel" for one in gc.get_objects())
        return self.has_model


def is_idle():
    """Returns whether no thread of this process computes."""
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and cuda.is_initialized():
        return False  # a wait for the GPU looks the same
    used, began = time.process_time(), time.monotonic()
    time.sleep(0.03)
    return time.process_time() - used < 0.2 * (time.monotonic() - began)
