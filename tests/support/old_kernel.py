"""Runs a program as on Linux 4.18, without newer system calls: subprocess.run(…, preexec_fn=old_kernel.enter)."""

from __future__ import annotations

import ctypes
import errno

FIRST_NEW_CALL = 424  # pidfd_send_signal, of Linux 5.1; calls that are newer have larger numbers
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
LOAD_NUMBER, JUMP_IF_GREATER_OR_EQUAL, RETURN = 0x20, 0x35, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000


class Instruction(ctypes.Structure):
    """struct sock_filter."""

    _fields_ = (("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("k", ctypes.c_uint))


class Filter(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.POINTER(Instruction)))


CODE = (Instruction * 4)(
    Instruction(LOAD_NUMBER, 0, 0, 0),
    Instruction(JUMP_IF_GREATER_OR_EQUAL, 0, 1, FIRST_NEW_CALL),
    Instruction(RETURN, 0, 0, FAIL | errno.ENOSYS),
    Instruction(RETURN, 0, 0, ALLOW),
)
FILTER = Filter(len(CODE), CODE)
LIBC = ctypes.CDLL(None, use_errno=True)


def enter() -> None:
    """From now on, newer system calls fail in this process and in its children."""
    for call in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(FILTER))):
        if LIBC.prctl(*call) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
