"""An S3 server on this machine, for a test: prints its URL, and ends with its stdin."""

import contextlib
import sys

from moto.server import ThreadedMotoServer


def main() -> None:
    """See the file's comment."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    with contextlib.redirect_stdout(sys.stderr):
        server.start()
    host, port = server.get_host_and_port()
    print(f"http://{host}:{port}", flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
