"""Runs a command and ends as it did; the last line on stderr has its processor seconds: cost.py COMMAND…"""

import os
import resource
import signal
import sys

MARK = "hvd-cost: "

if __name__ == "__main__":
    # Python ignores these two signals, and a child would inherit that.
    ignored = [signal.SIGPIPE, signal.SIGXFSZ]
    child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, setsigdef=ignored)
    _, status = os.waitpid(child, 0)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    os.write(2, f"\n{MARK}{usage.ru_utime + usage.ru_stime:.3f}\n".encode())
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
