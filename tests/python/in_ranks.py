"""The program that ranks run: in_ranks.py FILE... [--after CHECK] calls the check_* functions of the files in order.

Prints a line per check and rank: MARK and JSON [rank, file.name, traceback or null, reason for a skip or null].  After a
failure on one rank, the others may wait in a collective, and every later check would be out of step.  So the rank ends with
an error, which ends the launch.
"""

import faulthandler
import json
import os
import runpy
import sys
import time
import traceback
from pathlib import Path
from unittest import SkipTest

# For a check, and for a file's code before its first check: importing a framework on a busy machine.
LIMIT_SECONDS = 100


def as_in_a_new_script() -> None:
    """hvd.torch has seen no second backward() yet."""
    module = sys.modules.get("hvd.torch._optimizer.second_passes")
    if module:
        module.expected = False
        module._native.both_hooks(False)


def main() -> None:
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("HVD_RANK", "0")))
    files, after = sys.argv[1:], ""
    if "--after" in files:
        *files, _, after = files
    checks = ((Path(file).stem, *item) for file in files for item in runpy.run_path(file).items())
    faulthandler.enable()
    faulthandler.dump_traceback_later(LIMIT_SECONDS, exit=True)
    for stem, name, function in checks:
        if not name.startswith("check_"):
            continue
        if after:
            after = "" if after == f"{stem}.{name}" else after
            continue
        text, skipped = None, None
        as_in_a_new_script()
        try:
            function()
        except SkipTest as why:  # on all ranks
            skipped = str(why)
        except Exception:
            text = traceback.format_exc()
        # One write per line, so that the ranks' lines do not mix.
        os.write(1, ("#check " + json.dumps([rank, f"{stem}.{name}", text, skipped]) + "\n").encode())
        if text:
            time.sleep(1)  # others may have failed as well, and should be able to report it
            os._exit(1)
        faulthandler.dump_traceback_later(LIMIT_SECONDS, exit=True)


if __name__ == "__main__":
    main()
