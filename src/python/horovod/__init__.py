"""Horovod's name for hvd: ``import horovod.torch as hvd`` works unchanged.  Re-exports only."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from horovod import _missing
from hvd._runtime import environment as _environment

if TYPE_CHECKING:
    from hvd._job.run import run as run

__all__ = ["run"]
# Scripts compare it: the version of the Horovod whose names are provided, not our own (hvd.__version__).
__version__ = "0.28.1"


def _warn_of_the_other() -> None:
    """Warns of an installed Horovod: both packages use one folder, where its remaining files no longer work."""
    folder = os.path.dirname(__file__)
    if os.path.exists(os.path.join(folder, "metadata.json")) and _environment.text("HVD_RANK") in ("", "0"):
        import warnings

        warnings.warn(
            f"Horovod itself was installed in {folder} too: its files there are mixed with hvdrun's. "
            "Run `pip uninstall horovod`, then install hvdrun again",
            RuntimeWarning,
            stacklevel=3,
        )


_warn_of_the_other()
_missing.install()


def __getattr__(name: str) -> Any:
    if name == "run":  # a rank does not need the launcher's side
        from hvd._job.run import run

        globals()["run"] = run
        return run
    hint = "" if name.startswith("_") else ": use one framework's package, as in `import horovod.torch as hvd`"
    raise AttributeError(f"module 'horovod' has no attribute {name!r}{hint}")
