"""Hosts and slots of a Flux allocation, as a hostfile for hvdrun.

    flux resource R | python examples/flux_hosts.py > hosts       # in a script for flux batch
    hvdrun --hostfile hosts train.py

Reads Flux' resource set (RFC 20, version 1) from standard input.  A host has a slot for each of its GPUs, or for each core if
it has no GPU.  hvdrun reaches the hosts by ssh.  Tested with resource sets written by hand; Flux did not run.
"""

import json
import re
import sys


def ranges(text):
    """The numbers of an id set: "0-2,7" gives 0, 1, 2, 7."""
    for part in filter(None, text.strip("[]").split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def hosts_of(entry):
    """The hosts of a list like "node[01-03],gpu1"."""
    for name in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", entry):
        before, bracket, rest = name.partition("[")
        if not bracket:
            yield name
            continue
        inside, _, after = rest.partition("]")
        for part in inside.split(","):
            first, _, last = part.partition("-")
            for number in range(int(first), int(last or first) + 1):
                yield f"{before}{number:0{len(first)}}{after}"


def slots(resources):
    """Slots by host.  SystemExit for another kind of input."""
    execution = resources["execution"]
    names = [host for entry in execution["nodelist"] for host in hosts_of(entry)]
    ranked = sorted(
        (rank, len(list(ranges(group["children"].get("gpu") or group["children"]["core"]))))
        for group in execution["R_lite"]
        for rank in ranges(group["rank"])
    )
    if resources.get("version") != 1 or len(names) != len(ranked):
        raise SystemExit("flux_hosts.py: this is no resource set of version 1 (flux resource R)")
    return {name: count for name, (_, count) in zip(names, ranked)}


if __name__ == "__main__":
    for host, count in slots(json.load(sys.stdin)).items():
        print(f"{host}:{count}")
