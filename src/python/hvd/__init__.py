"""hvd: collective operations and distributed training, with Horovod's names.

Use one framework's package: ``import hvd.torch as hvd``.  ``hvd.run`` starts a
job from Python.  Nothing here imports a framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hvd._job import stack_dumps as _stack_dumps
from hvd.exceptions import HorovodInternalError, JobError

if TYPE_CHECKING:
    from hvd._job.run import run as run
    from hvd._job.should_stop import should_stop as should_stop

__all__ = ["HorovodInternalError", "JobError", "__version__", "run", "should_stop"]
__version__ = "0.1.0"


_stack_dumps.offer()


def __getattr__(name: str) -> Any:
    # A rank does not need the launcher's side, and the launcher's side does not need the rank's.
    if name == "run":
        from hvd._job.run import run as launch

        return launch
    if name == "should_stop":
        from hvd._job.should_stop import should_stop as ask

        return ask
    hint = "" if name.startswith("_") else ": use one framework's package, as in `import hvd.torch as hvd`"
    raise AttributeError(f"module 'hvd' has no attribute {name!r}{hint}")
