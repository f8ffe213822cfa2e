"""Gradients of matrices as products of two thin ones: PowerSGD (arXiv:1905.13727), with error feedback.

A gradient is seen as a matrix M, [rows, columns].  The matrix is sent as P = M Q, [rows, rank], and Q = M' P, [columns, rank].
In between, the columns of P are made orthonormal.  All ranks have the mean P and the mean Q and use P Q' as the mean of M.  The
difference to a rank's own M is added to its next gradient.  Q is kept from step to step, and so follows the gradient.
"""

from __future__ import annotations

import zlib
from typing import Any

import torch

from hvd._native import Average
from hvd.torch._optimizer.gradient_transport import Settings
from hvd.torch._optimizer.parameter_entries import ParameterEntry
from hvd.torch._optimizer.reducer import Reducer
from hvd.torch.compression import NoneCompressor, PowerSGD
from hvd.torch.ops import collectives


def _orthonormal(matrix: torch.Tensor) -> torch.Tensor:
    """Columns of length 1 at right angles.  All ranks have the same matrix and get the same bits."""
    wide = matrix.float() if matrix.dtype in (torch.float16, torch.bfloat16) else matrix
    columns: torch.Tensor = torch.linalg.qr(wide).Q
    return columns.to(matrix.dtype)


class _Thin:
    """The state of one parameter."""

    def __init__(self, parameter: torch.Tensor, name: str, rank: int) -> None:
        rows, columns = parameter.shape[0], parameter[0].numel()
        rank = min(rank, rows, columns)
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))  # equal on all ranks
        q = torch.randn(columns, rank, generator=generator).to(parameter)
        self.q = _orthonormal(q)
        self.error = torch.zeros(rows, columns, dtype=parameter.dtype, device=parameter.device)
        self.wanted = self.error  # this step's gradient plus the error of the last
        self.p = q
        self.handle: Any = None


class LowRankReducer(Reducer):
    """A Reducer that sends matrices as PowerSGD does, and everything else like its base."""

    in_memory = False

    def __init__(self, settings: Settings) -> None:
        if settings.op != Average:
            raise ValueError("PowerSGD works with op=Average only")
        if settings.predivide != 1.0:
            raise ValueError("PowerSGD works without gradient_predivide_factor")
        super().__init__(settings)
        self._powersgd: PowerSGD = settings.compression
        self.compression = NoneCompressor  # for everything that is no matrix
        self._thin: dict[int, _Thin] = {}

    def _of(self, entry: ParameterEntry) -> _Thin | None:
        found = self._thin.get(id(entry.parameter))
        if found is None and self._powersgd.fits(entry.parameter):
            found = self._thin[id(entry.parameter)] = _Thin(entry.parameter, entry.base_name, self._powersgd.rank)
        return found

    @torch.no_grad()
    def _submit(self, entry: ParameterEntry) -> None:
        thin = self._of(entry)
        gradient: Any = entry.parameter.grad
        if thin is None or gradient.is_sparse:
            super()._submit(entry)
            return
        thin.wanted = thin.error + gradient.reshape(thin.error.shape)
        thin.p = (thin.wanted @ thin.q).contiguous()
        thin.handle = self._reduce(thin.p, entry.name + ".P")
        entry.gradient = entry.work = gradient  # pending

    def group(self, groups: Any) -> None:
        """ValueError: matrices travel one by one."""
        raise ValueError("PowerSGD works without groups")

    def _reduce(self, matrix: torch.Tensor, name: str) -> Any:
        return collectives.allreduce_async_(matrix, None, name, Average, process_set=self.settings.process_set)

    def _complete(self, entries: list[ParameterEntry]) -> None:
        try:
            super()._complete(entries)
            self._finish(entries)
        except KeyboardInterrupt:
            raise  # still pending
        except BaseException:
            for thin in self._thin.values():
                thin.handle = None  # ended with the same error
            raise

    @torch.no_grad()
    def _finish(self, entries: list[ParameterEntry]) -> None:
        """Second exchange; writes the gradients."""
        under_way = []
        for entry in entries:
            thin = self._thin.get(id(entry.parameter))
            if thin is not None and thin.handle is not None:
                handle, thin.handle = thin.handle, None
                thin.p = _orthonormal(collectives.synchronize(handle))
                thin.q = (thin.wanted.t() @ thin.p).contiguous()
                under_way.append((entry, thin, self._reduce(thin.q, entry.name + ".Q")))
        for entry, thin, handle in under_way:
            thin.q = collectives.synchronize(handle)
            mean = thin.p @ thin.q.t()
            thin.error = thin.wanted - mean
            into: Any = entry.into()
            if into is not None:
                into.copy_(mean.view(into.shape))
            norm = thin.q.norm(dim=0, keepdim=True)
            thin.q = torch.where(norm > 0, thin.q / norm.clamp_min(1e-30), thin.q)
