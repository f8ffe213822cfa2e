"""The optimizer's side of a GradScaler, so that all ranks scale, skip and step alike.

A scaler looks for infinities in the gradients, and steps only if there are none.  All ranks must find the same.
Otherwise one rank would step alone, and wait for the others.  So gradients are reduced before the scaler looks at them,
at the scaler's first access to the optimizer.  In unscale_() this access reads param_groups; in step() it asks whether
the optimizer scales by itself.
Adasum reduces no gradients.  With Adasum the ranks exchange overflows, so that each scaler finds them.  The scaler leaves the
decision to us, by its protocol for fused optimizers.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from hvd._native import Adasum, Sum
from hvd.torch._optimizer.reducer import Reducer
from hvd.torch.ops import collectives

_UNSCALES = "_unscale_grads_"  # GradScaler's function that reads param_groups


class GradScalerSupport:
    """A base before the user's optimizer class, like _Distributed."""

    _hvd: Reducer
    _scaler_synchronized: bool  # the gradients were reduced for a scaler, and step() has not been called yet

    def _synchronize_for_scaler(self) -> None:
        hvd: Reducer | None = self.__dict__.get("_hvd")
        if hvd is None or not hvd.has_gradients:
            return
        if hvd.settings.op != Adasum:
            hvd.synchronize()
            self._scaler_synchronized = True
        elif not self._scaler_synchronized:
            self._share_overflow(hvd)
            self._scaler_synchronized = True

    @staticmethod
    def _share_overflow(hvd: Reducer) -> None:
        """If some rank's gradients have an infinity, every rank's get one, so all scalers find and do the same."""
        parameters: list[Any] = [entry.parameter for entry in hvd.entries.values()]
        values = [g._values() if g.is_sparse else g for g in (p.grad for p in parameters) if g is not None]
        mine = torch.tensor([float(any(not bool(torch.isfinite(value).all()) for value in values))])
        total = collectives.allreduce(mine, None, "hvd.found_inf", Sum, process_set=hvd.settings.process_set)
        if total.item() and not mine.item() and values:
            values[0].fill_(float("inf"))

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The optimizer's own param_groups."""
        if sys._getframe(1).f_code.co_name == _UNSCALES:
            self._synchronize_for_scaler()
        return self.__dict__["param_groups"]  # type: ignore[no-any-return]

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.__dict__["param_groups"] = groups

    def _scales_itself(self) -> bool:
        """Returns whether the user's optimizer is a fused one, which unscales in its own step."""
        return bool(self.__dict__.get("_step_supports_amp_scaling", False))

    @property
    def _step_supports_amp_scaling(self) -> bool:
        self._synchronize_for_scaler()
        return self._scales_itself() or (self._hvd.settings.op == Adasum and bool(self._hvd.entries))

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, value: bool) -> None:
        self.__dict__["_step_supports_amp_scaling"] = value

    def _skips_for_overflow(self) -> bool:
        """Called by a scaler, with Adasum.  Returns whether any rank's gradients overflowed; if not, unscales this rank's
        gradients."""
        found = getattr(self, "found_inf", None)
        if found is None:
            return False
        if found.item():
            return True
        if not self._scales_itself():
            scale: Any = getattr(self, "grad_scale", None)
            for entry in self._hvd.entries.values() if scale is not None else ():
                if entry.parameter.grad is not None:
                    entry.parameter.grad.div_(scale.to(entry.parameter.device))
            self.grad_scale = self.found_inf = None  # an optimizer that does not scale refuses them
        return False
