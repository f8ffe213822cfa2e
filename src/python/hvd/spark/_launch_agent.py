"""hvdrun's launch agent in a Spark job: python _launch_agent.py SOCKET HOST /bin/sh, with the shell's script on stdin.

Passes the script to the task that runs hvdrun, which sends it to that host's task through the barrier.  In an elastic job,
passes it to the driver, which runs it in a task of its own and reports its end.  The socket is in a folder that only this
user can enter.  Standard library only: it starts once a host.
"""

import socket
import struct
import sys


def main() -> None:
    path, host = sys.argv[1], sys.argv[2]
    name, script = host.encode(), sys.stdin.buffer.read()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(20)
        link.connect(path)
        link.sendall(struct.pack("<II", len(name), len(script)) + name + script)
        answer = link.recv(1)
        if answer == b"w":  # wait
            link.settimeout(None)
            answer = link.recv(1)
        if answer != b"k":
            sys.exit(f"hvdrun: {host} was refused by Spark, or is lost")


if __name__ == "__main__":
    main()
