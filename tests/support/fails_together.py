"""For a script of torch.distributed: a rank's exception ends the rank once all ranks have one.

hvdrun stops the other ranks after the first failure.  A rank that was slow would be stopped before it has its own exception.
"""

from __future__ import annotations

import sys
from typing import Any

import torch.distributed as dist

shown = sys.excepthook


def show_together(*exception: Any) -> None:
    store = dist.distributed_c10d._get_default_store()
    store.set(f"failed {dist.get_rank()}", "")
    store.wait([f"failed {rank}" for rank in range(dist.get_world_size())])
    shown(*exception)


sys.excepthook = show_together
