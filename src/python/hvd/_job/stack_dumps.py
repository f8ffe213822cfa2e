"""Lets hvdrun ask for this rank's place: faulthandler writes all threads' frames to the guard's memory file.

After a fatal signal (SIGSEGV and others), faulthandler writes these frames there too.  faulthandler works while the rank runs C
code or holds the GIL, and costs nothing until it is used.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os

from hvd._job import attach as _attach
from hvd._runtime import environment as _environment

_offered = False


def offer() -> None:
    """Registers the handler once, if a guard named a signal and a descriptor."""
    global _offered
    number, descriptor = _environment.text("HVD_STACK_SIGNAL"), _environment.text("HVD_STACK_FD")
    if _offered or not (number.isdigit() and descriptor.isdigit()):
        return
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        # A program that the rank started has the variables too, but under that number another file, or none.
        if "hvdrank-stacks" in os.readlink(f"/proc/self/fd/{descriptor}"):
            faulthandler.register(int(number), file=int(descriptor), all_threads=True, chain=False)
            if not faulthandler.is_enabled():  # the line of a fatal signal, for the verdict
                faulthandler.enable(file=int(descriptor), all_threads=True)
            _offered = True
            _attach.offer()
