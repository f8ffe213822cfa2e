# The frames of a rank's threads, as the watch of torch.distributed's collectives reads them.  hvdrank_collectives.py
# imports this file.  CPython 3.8 and later.
import os
import re
import time

LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ", "<hvdrun>", "/proc/self/fd/")
OUR_PACKAGES = re.compile(
    r"/(hvd|horovod)/(_|(common|data|jax|keras|mxnet|ray|runner|spark|tensorflow|torch)/"
    r"|(elastic|exceptions|network|numpy|process_sets)\.py)"
)
C10D = "torch/distributed/distributed_c10d.py"


def is_library(file):
    """Returns whether the file belongs to a library.  Same rule as source_frame.cc: the packages hvd and horovod count in any
    folder."""
    return any(part in file for part in LIBRARIES) or OUR_PACKAGES.search(file) is not None


def place_of(frames):
    """The user's innermost line of (file, line, function), innermost first: "train.py:8 (step)"."""
    for file, line, function in frames:
        if not is_library(file):
            name = f"{os.path.basename(file)}:{line}"
            return name if function == "<module>" else f"{name} ({function})"
    return ""


def all_frames(frame):
    frames = []
    while frame is not None and len(frames) < 200:
        frames.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, frame))
        frame = frame.f_back
    return frames


def is_new(frame):
    """Returns whether this function has not seen the frame before.

    Each call has a frame of its own, but often at the address of the last one.  A reference would keep the call's tensors
    alive.  So the frame itself gets a mark, which only a debugger or a coverage tool reads.
    """
    if not frame.f_trace_lines:
        return False
    frame.f_trace_lines = False
    return True


class Stay:
    """Since when a frame has been at its present instruction, as far as the calls of seconds() tell."""

    def __init__(self):
        self.last = None  # (instruction, time of the first call that found the frame at it)

    def seconds(self, frame):
        now = time.monotonic()
        if is_new(frame) or self.last is None or self.last[0] != frame.f_lasti:
            self.last = frame.f_lasti, now
        return now - self.last[1]

    def end(self):
        """No frame is of interest now."""
        self.last = None
