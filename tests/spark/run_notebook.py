"""Runs a notebook in this interpreter: run_notebook.py NOTEBOOK OUT.  OUT gets the notebook with its outputs.

CELL_ERRORS=1: an error of a cell is an output too, and the next cells run.
"""

from __future__ import annotations

import json
import os
import sys

import nbclient
import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

notebook = nbformat.read(sys.argv[1], as_version=4)  # type: ignore[no-untyped-call]
manager = KernelManager()
# This interpreter, independent of the user's installed kernels.
spec = KernelSpec(argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], language="python")
manager._kernel_spec = spec
client = nbclient.NotebookClient(
    notebook, km=manager, timeout=int(os.environ.get("CELL_SECONDS", "200")), allow_errors="CELL_ERRORS" in os.environ
)
client.execute()
with open(sys.argv[2], "w") as file:
    json.dump(notebook, file)
