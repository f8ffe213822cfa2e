"""Runs a command and exits with its status; the last line on stderr has its processor seconds: cost.py COMMAND…"""

import os
import resource
import signal
import subprocess
import sys

MARK = "hvd-cost: "

if __name__ == "__main__":
    # subprocess restores the signals that Python ignores.  posix_spawn(3) would leave signal 32 ignored in the child, which a
    # test of hvdrank's own children sees.
    code = subprocess.Popen(sys.argv[1:], close_fds=True, restore_signals=True).wait()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    os.write(2, f"\n{MARK}{usage.ru_utime + usage.ru_stime:.3f}\n".encode())
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
