"""hvdrun's launch agent in Spark and Ray: python launch_agent.py SOCKET HOST /bin/sh, with the shell's script on stdin.

Passes the script to the program that started hvdrun (agents.py), which runs it on that host.  If that program asks for it,
the agent stays until the host's daemon has ended.  In Spark's barrier stages, the agent ends at once.  The socket is in a
folder that only this user can enter.  This file uses only the standard library, because it starts once for each host.
"""

import os
import socket
import struct
import sys


def main() -> None:
    path, host = sys.argv[1], sys.argv[2]
    name, script = host.encode(), sys.stdin.buffer.read()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(20)
        link.connect(path)
        if struct.unpack("iII", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1] != os.geteuid():
            sys.exit("hvdrun: another user's process listens for this launch agent")
        link.sendall(struct.pack("<II", len(name), len(script)) + name + script)
        answer = link.recv(1)
        if answer == b"w":  # wait
            link.settimeout(None)
            answer = link.recv(1)
        if answer != b"k":
            sys.exit(f"hvdrun: {host} was refused by the cluster, or is lost")


if __name__ == "__main__":
    main()
