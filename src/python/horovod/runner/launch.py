"""horovodrun: hvdrun under the name in launch lines for Horovod."""

from __future__ import annotations

import os
import sys

from hvd._job.run import hvdrun_program

__all__ = ["run_commandline"]


def run_commandline() -> None:
    """Becomes hvdrun, with this process's arguments."""
    path = hvdrun_program()
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    run_commandline()
