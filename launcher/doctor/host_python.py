"""The questions of hvdrun doctor to a host's Python.  Embedded into hvdrun; runs on the host, from an interpreter's
stdin.  Its first argument is the script's folder.

hvdrun puts remote/nccl_version.py before this text and appends a call of report().  Any Python 3 must be able to run
this text.  Each printed line is "key value", as doctor/checkup.h reads them.
"""

import os
import re
import socket
import sys
from importlib.metadata import distributions
from importlib.util import find_spec
from threading import Thread

_SECONDS_TO_CONNECT = 1
_UNUSED_PORT = 61037  # no program listens there: a host that is reachable refuses the connection


def _report_hvd():
    # type: () -> None
    """Versions of Python and hvd, and where Horovod itself is installed: a file that only its own package has."""
    print("python", ".".join(str(n) for n in sys.version_info[:3]))
    print("interpreter", os.path.realpath(sys.executable))
    try:
        import hvd

        print("hvd", hvd.__version__)
    except Exception as error:
        print("hvd_error", " ".join(str(error).split()) or type(error).__name__)
    for folder in getattr(find_spec("horovod"), "submodule_search_locations", None) or ():
        if os.path.exists(os.path.join(folder, "metadata.json")):
            print("horovod", folder)


def _report_packages():
    # type: () -> None
    """The installed packages as name==version, names as pip compares them, of each the first one in sys.path."""
    found = {}  # type: dict[str, str]
    for distribution in distributions():
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
        if name not in ("", "hvdrun"):  # the question about hvd reports hvdrun's own version
            found.setdefault(name, str(distribution.version))
    print("packages", *("==".join("".join(w.split()) for w in item) for item in sorted(found.items())))


def _absent(modules, folder):
    # type: (list[str], str) -> list[str]
    """The modules that a script in the folder could not import."""
    sys.path.insert(0, folder)
    try:
        return [m for m in modules if find_spec(m) is None]
    finally:
        sys.path.pop(0)


def _reached(addresses):
    # type: (list[str]) -> list[str]
    """The addresses of hvdrun, "ip:port", to which a connection can be made."""
    good = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _SECONDS_TO_CONNECT).close()
            good.append(address)
        except OSError:
            pass
    return good


def _unreachable(peers):
    # type: (list[str]) -> list[str]
    """The other hosts that do not answer, sorted."""
    silent = []

    def look(host):
        # type: (str) -> None
        try:
            socket.create_connection((host, _UNUSED_PORT), _SECONDS_TO_CONNECT).close()
        except ConnectionRefusedError:
            pass
        except OSError:
            silent.append(host)

    threads = [Thread(target=look, args=(peer,)) for peer in peers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(silent)


def report(modules, addresses, peers):
    # type: (list[str], list[str], list[str]) -> None
    """modules: the names that the job imports.  addresses: hvdrun's, "ip:port".  peers: the other hosts."""
    _report_hvd()
    _report_packages()
    print("absent", *_absent(modules, sys.argv[1]))
    print("reached", *_reached(addresses))
    print("blind", *_unreachable(peers))
