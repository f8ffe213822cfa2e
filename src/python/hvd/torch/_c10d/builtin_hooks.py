"""DistributedDataParallel's built-in communication hooks, over this package's groups.

torch's hook for half precision is C++.  It takes the value of an operation's future for a list of tensors.  A future from
Python has a Python object as its value, and the hook would fail.  So a network whose gradients travel over this package gets
torch's own hook in Python, which does the same arithmetic.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from hvd.torch._c10d.group_calls import GroupCalls

_Network: Any = DistributedDataParallel
_HALF: Any = torch._C._distributed_c10d.BuiltinCommHookType.FP16_COMPRESS
_register: Any = _Network._register_builtin_comm_hook


def _register_over_any_group(self: Any, comm_hook_type: Any) -> None:
    """Replaces DistributedDataParallel._register_builtin_comm_hook."""
    if comm_hook_type != _HALF or not _is_ours(self.process_group, self.device):
        _register(self, comm_hook_type)
        return
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    self.register_comm_hook(self.process_group, fp16_compress_hook)
    self.logger._set_comm_hook_name(str(comm_hook_type))


def _is_ours(group: Any, device: Any) -> bool:
    """Returns whether the group's operations on tensors of this device are this package's."""
    return isinstance(group, GroupCalls) or isinstance(group._get_backend(device), GroupCalls)


def replace_builtin_hooks() -> None:
    """Makes DistributedDataParallel's built-in hooks work over this package's groups, and leaves them alone over others."""
    _Network._register_builtin_comm_hook = _register_over_any_group
