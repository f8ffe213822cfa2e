"""Prints "nccl 2.30.7": the version of the NCCL wheel beside torch.  Embedded into hvdrun, runs on a host (ask_hosts.h)."""

from importlib.metadata import distributions


def report_nccl():
    # type: () -> None
    for distribution in distributions():
        if (distribution.metadata["Name"] or "").startswith("nvidia-nccl-cu"):
            print("nccl", distribution.version)
