# Records the steps of a torch program that does not call hvd.init(), for hvdrun's report on steps.  libhvd's StepRecorder
# does this for programs that call it.  sitecustomize.py calls look() when parts of torch have been imported.
#
# The recorder writes into the memory that the guard reads.  src/wire/shared/recorder_memory.h and step_record.h have
# the format.  hvd/_job/step_hooks.py hooks the optimizers, loaders and checkpoints.  Here it reports to the recorder
# below instead of libhvd.  A step ends with an optimizer's step.  Without optimizer steps, each backward() from the
# ENOUGHth on ends a step.  Without backward() too, each batch from the ENOUGHth on ends a step.  A program that has made an
# optimizer may add up the gradients of many batches before its first step.  The first optimizer step must then come within
# LONGEST_STEP_NS.  CPython 3.9 and later, torch 2.0 and later.
import mmap
import os
import struct
import sys
import threading
from collections import deque
from functools import partial
from resource import RUSAGE_SELF, getrusage
from time import CLOCK_MONOTONIC, clock_gettime_ns, monotonic_ns

from hvdrank_usage import READ_OWN_AGAIN_NS, Delays, Group, resident_bytes

MARK = 0x6263657264765348  # recorder_mark
MEMORY_STEPS, SLOTS = 64, 1024  # RecorderMemory::steps, and its slots
RECORD = struct.Struct("<24q3i2h")  # StepRecord
SLOT = struct.Struct(f"<{RECORD.size}s")
WORD = struct.Struct("<q")
SLOT_BYTES = 8 + RECORD.size

# hvd.h has the same names with other numbers.  The loaders' numbers are those of step_record.h.
PARTS = ("PART_INPUT", "PART_INPUT_TORCH", "PART_INPUT_TENSORFLOW", "PART_SAVE", "PART_COMPILE")
PART_INPUT, PART_INPUT_TORCH, PART_INPUT_TENSORFLOW, PART_SAVE, PART_COMPILE, COLLECT, WAITING, WORK = range(8)
LOADERS = {PART_INPUT: 1, PART_INPUT_TORCH: 2, PART_INPUT_TENSORFLOW: 3}
BATCH, BACKWARD, OPTIMIZER = range(3)  # events that may end a step; the highest that occurs ends it
ENOUGH = 20  # without an optimizer's step: after this number of batches, or of backward() calls, each one ends a step

SHORTEST_NS, LONGEST_NS, ENOUGH_SHORT, MOST_STEPS = 10_000_000, 40_000_000, 4, 1 << 16  # as in step_recorder.cc
LOOK_AGAIN_NS = 250_000_000
LONGEST_STEP_NS = 300_000_000_000
SHORT_OF_CORES = 20  # as in step_recorder.cc

COLLECTIONS = deque(maxlen=8192)  # the times at which garbage collections began and ended; the oldest are forgotten


class Collecting:
    """The collector's callback partial(getattr, Collecting()), which appends the time to COLLECTIONS.

    C functions of the standard library alone make up the callback.  A callback with bytecode would run handlers of
    signals, and the collector drops what they raise: Ctrl-C would be lost.

    The collector calls getattr(self, "start", info) and getattr(self, "stop", info).  Each of these calls reads a property.
    The property's getter, COLLECTIONS.extend(self), iterates over self, which yields one number: the time.
    """

    start = stop = property(COLLECTIONS.extend)
    __iter__ = staticmethod(partial(map, clock_gettime_ns, (CLOCK_MONOTONIC,)))


class Recorder:
    """The training thread is the one that imported torch."""

    def __init__(self, memory):
        self.memory = memory
        self.trainer = threading.get_ident()
        self.active = True
        self.level, self.counts = -1, [0, 0, 0]
        self.expected_until_ns = 0  # until then, the first step of an optimizer may come
        self.ddp_is_used = True  # or not known
        self.number = self.written = 0
        self.steps_a_record, self.short_records = 1, 0
        self.looked_ns = 0
        self.delays, self.group = Delays(), Group()
        self.collecting = partial(getattr, Collecting())
        self.within = [WORK]
        self.counted_ns = self.began_ns = self.step_began_ns = monotonic_ns()
        self.clear()
        self.used = self.use()
        os.register_at_fork(after_in_child=self.stop)

    def clear(self):
        self.sums = [0] * 8
        self.made = self.operations = self.loader = self.longest = 0
        self.delays.clear()

    def stop(self):
        """Ends the recording: another process, or libhvd, records from now on."""
        self.active = False

    def count(self, now):
        """Adds the time since the last call to the part that has run since then, and to the garbage collector."""
        collected = 0
        while len(COLLECTIONS) > 1:
            began = max(COLLECTIONS.popleft(), self.counted_ns)
            collected += max(0, COLLECTIONS.popleft() - began)
        self.sums[COLLECT] += collected
        self.sums[self.within[-1]] += max(0, now - self.counted_ns - collected)
        self.counted_ns = now

    # ---- what step_hooks calls, as hvd._native ----
    def part_begin(self, part):
        if self.active and threading.get_ident() == self.trainer:
            now = monotonic_ns()
            self.count(now)
            if part == WAITING and self.delays.cores_are_short and part not in self.within:
                self.delays.begin(now)
            self.within.append(part)
            if part in LOADERS:
                self.loader = max(self.loader, LOADERS[part])

    def part_end(self, part):
        if self.active and threading.get_ident() == self.trainer and part in self.within:
            now = monotonic_ns()
            self.count(now)
            while self.within.pop() != part:  # the inner parts have ended too
                pass
            if part in self.within:
                return
            if part == WAITING and self.delays.cores_are_short:
                self.delays.end(now)
            if part == PART_INPUT_TORCH and self.level < BACKWARD:
                self.seen(BATCH)

    def step_end(self):
        self.seen(OPTIMIZER)

    def batches_made(self, ns):
        if ns > 0:
            self.made += ns

    # ---- steps ----
    def seen(self, level):
        """Something that may end a step has happened."""
        if not self.active or level < self.level or threading.get_ident() != self.trainer:
            return
        if level > self.level:
            self.counts[level] += 1
            if level < OPTIMIZER and (self.counts[level] < ENOUGH or monotonic_ns() < self.expected_until_ns):
                return
            self.level = level
        self.number = number = self.number + 1
        if number & (number - 1) == 0:  # modules that have been imported meanwhile, and new groups
            look(None)
            try:
                self.delays.follow_gloo()
                self.group.follow()
            except OSError:
                return self.stop()
        now = monotonic_ns()
        self.longest = max(self.longest, now - self.step_began_ns)
        self.step_began_ns = now
        if number // self.steps_a_record == self.written // self.steps_a_record:
            return
        time = now - self.began_ns
        try:
            self.write(now)
        except (OSError, ValueError, IndexError, struct.error):  # such as descriptors that the program has closed
            return self.stop()
        self.short_records = self.short_records + 1 if time < SHORTEST_NS else 0
        if self.short_records == ENOUGH_SHORT and self.steps_a_record < MOST_STEPS:
            self.steps_a_record, self.short_records = 2 * self.steps_a_record, 0
        elif time > LONGEST_NS and self.steps_a_record > 1:
            self.steps_a_record //= 2

    def write(self, now):
        self.count(now)
        if WAITING in self.within:
            if self.delays.cores_are_short:
                self.delays.end(now)
            self.delays.wait_began_ns = now  # of the part of this wait that the next record has
        sums, before = self.sums, self.used
        self.used = used = self.use()
        delayed = min(self.delays.in_waits, sums[WAITING])
        self.delays.cores_are_short = SHORT_OF_CORES * (used[5] - before[5]) > now - self.began_ns
        resident = throttled = 0
        if now - self.looked_ns > LOOK_AGAIN_NS:
            self.looked_ns = now
            resident, throttled = resident_bytes(), self.group.throttled()
        record = RECORD.pack(
            self.number,
            0,  # epoch
            now,
            now - self.began_ns,
            sums[PART_INPUT] + sums[PART_INPUT_TORCH] + sums[PART_INPUT_TENSORFLOW],
            sums[WAITING] - delayed,
            0,  # moved: in torch, no different from waiting
            sums[COLLECT],
            sums[PART_SAVE],
            max(0, used[0] - before[0]),
            max(0, used[1] - before[1]) + max(0, delayed - self.delays.own_in_waits),
            *(max(0, x - y) for x, y in zip(used[2:4], before[2:])),
            0,  # bytes of operations: not known
            resident,
            throttled,
            self.made,
            0,
            0,  # links: likewise
            0,
            sums[PART_COMPILE],
            delayed,
            0,  # waits of a GPU: not seen
            self.longest,
            self.operations,
            used[4] - before[4],
            -1,
            -1,
            self.loader,
        )
        self.put(record)
        self.written = self.number
        self.began_ns = now
        self.clear()

    def put(self, record):
        """RecordRing::put()."""
        number = WORD.unpack_from(self.memory, MEMORY_STEPS)[0]
        slot = MEMORY_STEPS + 8 + number % SLOTS * SLOT_BYTES
        WORD.pack_into(self.memory, slot, 2 * number + 1)
        SLOT.pack_into(self.memory, slot + 8, record)
        WORD.pack_into(self.memory, slot, 2 * number + 2)
        WORD.pack_into(self.memory, MEMORY_STEPS, number + 1)

    def use(self):
        """Processor time, time without a core, bytes read and written, major faults, time without a core of all threads."""
        usage = getrusage(RUSAGE_SELF)
        self.delays.read(monotonic_ns())
        cpu = int((usage.ru_utime + usage.ru_stime) * 1e9)
        return cpu, self.delays.own_ns, usage.ru_inblock * 512, usage.ru_oublock * 512, usage.ru_majflt, self.delays.all_ns

    def makes(self, init):
        """Wraps Optimizer.__init__()."""

        def made(*args, **kwargs):
            self.expected_until_ns = monotonic_ns() + LONGEST_STEP_NS
            return init(*args, **kwargs)

        return made

    # ---- torch's collectives ----
    def waits(self, wait):
        """Wraps Work.wait(), to count its time."""
        thread, clock, delays = threading.get_ident, monotonic_ns, self.delays

        def waited(*args, **kwargs):
            if len(self.within) > 1 or len(COLLECTIONS) > 1 or thread() != self.trainer:
                return waited_with_care(*args, **kwargs)
            began = delays.wait_began_ns = clock()
            if delays.cores_are_short and began - delays.read_own_ns > READ_OWN_AGAIN_NS:
                delays.begin(began)
            try:
                return wait(*args, **kwargs)
            finally:  # as part_begin(), part_end() and count() do, in a third of their time
                self.operations += 1
                sums, before, now = self.sums, self.counted_ns, clock()
                sums[WORK] += began - before
                sums[WAITING] += now - began
                self.counted_ns = now
                if delays.cores_are_short and now - began >= delays.read_again_ns:
                    delays.end(now)

        def waited_with_care(*args, **kwargs):
            self.part_begin(WAITING)
            self.operations += 1
            try:
                return wait(*args, **kwargs)
            finally:
                self.part_end(WAITING)

        return waited

    def wraps(self, init):
        """Wraps DistributedDataParallel.__init__()."""
        self.ddp_is_used = False

        def wrapped(*args, **kwargs):
            self.ddp_is_used = True
            return init(*args, **kwargs)

        return wrapped

    def backs(self, backward):
        """Wraps torch.autograd.backward().  DDP waits for its collectives in a callback after the last gradient.  A callback
        queued before that one records when the wait begins.  The two callbacks take 30 µs, so only programs with DDP have
        them."""
        import torch

        graph = torch.autograd.graph
        queue = getattr(graph, "queue_callback", None) or torch.autograd.Variable._execution_engine.queue_callback

        def begins(_):
            try:
                queue(lambda: self.part_begin(WAITING))
            except RuntimeError:
                pass

        def backed(tensors, *args, **kwargs):
            handle = None
            if self.ddp_is_used and self.active:
                first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors  # never an iterator's
                if isinstance(first, torch.Tensor) and first.requires_grad:
                    handle = first.register_hook(begins)
            try:
                return backward(tensors, *args, **kwargs)
            finally:
                if handle is not None:
                    handle.remove()
                    self.part_end(WAITING)
                self.seen(BACKWARD)

        return backed


def guards_memory():
    """The memory that the guard reads; None: there is none, or it has another format."""
    try:
        fd = int(os.environ["HVD_RECORDER_FD"])
        memory = mmap.mmap(fd, os.fstat(fd).st_size)
        if WORD.unpack_from(memory, 0)[0] == MARK and WORD.unpack_from(memory, MEMORY_STEPS)[0] == 0:
            return memory
    except (KeyError, OSError, ValueError, struct.error):
        pass
    return None


recorder = hooks = None


def begin(load):
    """Once: makes the recorder, and loads the hooks."""
    global recorder, hooks
    ours = sys.modules.get("hvd._job.step_hooks")
    if ours is not None and "gc" in ours._installed:  # hvd.init() has been called: libhvd records
        return
    memory = guards_memory()
    if memory is None or threading.current_thread() is not threading.main_thread():
        return
    recorder = Recorder(memory)
    for name in PARTS:
        setattr(recorder, name, globals()[name])
    hooks = load("hvdrank_step_hooks", _native=recorder)
    hooks.install()


def look(load):
    """Parts of torch have been imported."""
    if recorder is None and load is not None:
        begin(load)
    if recorder is not None and recorder.active:
        hooks.framework_is_there()
        hooks._watch("torch.optim.optimizer", "Optimizer", "__init__", recorder.makes)
        hooks._watch("torch.nn.parallel.distributed", "DistributedDataParallel", "__init__", recorder.wraps)
        hooks._watch("torch.autograd", None, "backward", recorder.backs)
        hooks._watch("torch._C._distributed_c10d", "Work", "wait", recorder.waits)


def stop():
    """hvd.init() has been called: libhvd records from now on."""
    if recorder is not None:
        recorder.stop()
        if hooks is not None:  # the hooks could not be loaded: hvd.init() must not fail for that
            hooks.remove()
