"""Made by scripts/man-options from src/options/table.h: do not edit.

Variables that the Python packages read, for _runtime/environment.py, and run()'s keywords with hvdrun's options.
"""

from __future__ import annotations

from typing import NamedTuple


class Variable(NamedTuple):
    """One row of the table: default and limits as the variable has them."""

    type: str  # "flag", "integer", "number" or "text"
    default: str | None = None
    least: float | None = None
    most: float | None = None


VARIABLES = {
    "HVD_ENCRYPT_TENSORS": Variable("flag", default="0"),
    "HVD_AGREEMENT": Variable("text", default="off"),
    "HVD_AGREEMENT_STEPS": Variable("integer", default="500", least=1.0, most=1000000.0),
    "HOROVOD_ELASTIC_TIMEOUT": Variable("number", default="600", least=0.001, most=1000000000.0),
    "HVD_STATE_DIR": Variable("text"),
    "HVD_STRICT": Variable("flag", default="0"),
    "HOROVOD_DYNAMIC_PROCESS_SETS": Variable("flag", default="1"),
    "HOROVOD_SPARK_START_TIMEOUT": Variable("number", least=0.001, most=1000000000.0),
    "HVD_TENSORFLOW_BATCH_BYTES": Variable("integer", default="33554432", least=1.0),
    "HOROVOD_ENABLE_XLA_OPS": Variable("flag", default="0"),
    "HVD_TENSORFLOW_GPU": Variable("flag", default="0"),
    "HVD_CUDA_LIBRARY": Variable("text"),
    "HVD_LIBRARY": Variable("text"),
    "HVD_RUN_PROGRAM": Variable("text"),
    "HVD_INIT_TIMEOUT": Variable("number", default="600", least=0.001, most=1000000000.0),
    "HVD_TENSORFLOW_DEVICE_TYPE": Variable("text", default="GPU"),
    "HVD_JOB": Variable("text"),
    "HVD_RANK": Variable("integer"),
    "HVD_SIZE": Variable("integer"),
    "HVD_PROGRAMS": Variable("text"),
    "HOROVOD_ELASTIC": Variable("flag", default="0"),
    "HOROVOD_RANK": Variable("integer", default="0"),
    "HOROVOD_SIZE": Variable("integer"),
    "HOROVOD_HOSTNAME": Variable("text"),
    "HOROVOD_CONTROLLER": Variable("text"),
    "HVD_LINK_FD": Variable("integer", default="-1", least=-1.0, most=1048576.0),
    "HVD_MEETING_FD": Variable("integer", default="-1", least=-1.0, most=1048576.0),
    "HVD_ELASTIC_LATE": Variable("flag", default="0"),
    "HVD_STATUS_FD": Variable("integer", default="-1", least=-1.0, most=1048576.0),
    "HVD_STACK_SIGNAL": Variable("integer"),
    "HVD_STACK_FD": Variable("integer"),
    "HVD_INIT": Variable("text"),
}

# keyword: hvdrun's option and what kind of value it takes
RUN_KEYWORDS = {
    "num_proc": ("--num-proc", "integer"),
    "np": ("--num-proc", "integer"),
    "hosts": ("--hosts", "text"),
    "hostfile": ("--hostfile", "text"),
    "host_discovery_script": ("--host-discovery-script", "text"),
    "ssh_port": ("--ssh-port", "integer"),
    "ssh_identity_file": ("--ssh-identity-file", "text"),
    "network_interfaces": ("--network-interfaces", "text"),
    "network_interface": ("--network-interfaces", "text"),
    "mpi_args": ("--mpi-args", "text"),
    "executable": ("--python", "text"),
    "output_filename": ("--output-filename", "text"),
    "prefix_output_with_timestamp": ("--prefix-output-with-timestamp", "flag"),
    "verbose": ("--verbose", "flag"),
    "start_timeout": ("--start-timeout", "number"),
    "min_num_proc": ("--min-np", "integer"),
    "min_np": ("--min-np", "integer"),
    "max_num_proc": ("--max-np", "integer"),
    "max_np": ("--max-np", "integer"),
    "slots": ("--slots-per-host", "integer"),
    "state_dir": ("--state-dir", "text"),
    "spares": ("--spares", "integer"),
    "reset_limit": ("--reset-limit", "integer"),
    "cooldown_range": ("--blacklist-cooldown-range", "pair"),
    "use_mpi": ("--mpi", "flag"),
    "use_gloo": ("--gloo", "flag"),
    "disable_cache": ("--disable-cache", "flag"),
    "only": ("--results-of", "integer"),
}
