"""HorovodRunner with the interface of Databricks' sparkdl."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable


class HorovodRunner:
    """Runs a function on np ranks: HorovodRunner(np=2).run(main, lr=0.1) returns the result of main on rank 0.

    np > 0: np tasks of one barrier stage. np = 0: every slot. np < 0: -np ranks on the driver, for trials.
    driver_log_verbosity: "all" (here the default) shows the ranks' output while they run; "log_callback_only" shows only the
    lines from sparkdl.horovod.log_to_driver().
    """

    def __init__(self, np: int, driver_log_verbosity: str = "all") -> None:
        if not isinstance(np, int) or isinstance(np, bool):
            raise TypeError(f"np is {np!r}: it must be a whole number")
        if driver_log_verbosity not in ("all", "log_callback_only"):
            raise ValueError(f"driver_log_verbosity is {driver_log_verbosity!r}: it must be 'all' or 'log_callback_only'")
        self.np = np
        self.driver_log_verbosity = driver_log_verbosity

    def run(self, main: Callable[..., Any], **kwargs: Any) -> Any:
        """Calls main(**kwargs) on every rank and returns rank 0's result.  Errors: as hvd.spark.run, hvd.run."""
        __tracebackhide__ = True  # IPython leaves this frame out
        if self.np < 0:
            from hvd._job.run import run as run_here
            from hvd.spark._log import Shown

            shown = partial(Shown, self.driver_log_verbosity == "all")
            return run_here(main, kwargs=kwargs, num_proc=-self.np, only=0, shown=shown)[0]
        from hvd.spark._run import run

        return run(main, kwargs=kwargs, num_proc=self.np, only=0, driver_log_verbosity=self.driver_log_verbosity)[0]
