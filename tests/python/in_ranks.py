"""The program that ranks run: in_ranks.py FILE... calls the check_* functions of the files in order.

A line per check and rank: MARK and JSON [rank, name, null or traceback].  A check that fails on one rank may leave the
others waiting in a collective, and every later one out of step: the rank ends with an error, which ends the launch.
"""

import faulthandler
import json
import os
import runpy
import sys
import time
import traceback


def main() -> None:
    faulthandler.enable()
    faulthandler.dump_traceback_later(150, exit=True)
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("HVD_RANK", "0")))
    checks = (item for file in sys.argv[1:] for item in runpy.run_path(file).items())
    for name, function in checks:
        if not name.startswith("check_"):
            continue
        text = None
        try:
            function()
        except Exception:
            text = traceback.format_exc()
        # One write per line: the ranks' lines must not mix.
        os.write(1, ("#check " + json.dumps([rank, name, text]) + "\n").encode())
        if text:
            time.sleep(1)  # the others may have failed as well, and should be able to say so
            os._exit(1)


if __name__ == "__main__":
    main()
