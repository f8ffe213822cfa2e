"""Restarts a job by hvdrun's advice (hvdrun-verdict(5)): restart_by_advice.py HOSTS PROGRAM [ARGUMENT …].

    python restart_by_advice.py node1:4,node2:4,node3:4 train.py --epochs 9

The program must resume from its last checkpoint.  After RESTART_ELSEWHERE, the job starts again without the host to blame.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

MOST_RESTARTS, PAUSE_SECONDS = 5, 5.0


def run(hosts: list[str], program: list[str]) -> dict:
    """Runs one job; returns its verdict."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "verdict.json")
        code = subprocess.call(["hvdrun", "-H", ",".join(hosts), "--verdict-filename", str(file), *program])
        if file.exists():
            return json.loads(file.read_text())
        # hvdrun itself was killed, or the disk is full.
        return {"exit_code": code, "host": None, "advice": {"action": "STOP", "reason": "hvdrun has left no verdict"}}


def main(hosts: list[str], program: list[str]) -> int:
    """Returns the exit code of the last job."""
    for restarts in range(MOST_RESTARTS + 1):
        verdict = run(hosts, program)
        action, reason = verdict["advice"]["action"], verdict["advice"]["reason"]
        if action == "NONE":
            return 0
        if action == "RESTART_ELSEWHERE" and verdict["host"]:
            hosts = [host for host in hosts if host.split(":")[0] != verdict["host"]]
        again = action in ("RESTART", "RESTART_ELSEWHERE") and hosts and restarts < MOST_RESTARTS
        print(f"{action}: {reason}; {'starting again' if again else 'giving up'}", file=sys.stderr, flush=True)
        if not again:
            break
        time.sleep(PAUSE_SECONDS * 2**restarts)
    return verdict["exit_code"]


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1].split(","), sys.argv[2:]))
