"""Compares the ranks before the first step of a watched optimizer, for hvd.agreement.

One line for each difference, on the first rank.  Nothing stops: a rank may differ for a good reason.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data.distributed import DistributedSampler

from hvd._runtime import environment as _environment
from hvd.torch.elastic import ElasticSampler

__all__ = ["differences", "facts"]

_LONGEST = 60  # characters of a value in a line
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of a function or an object; each process has others


def facts(
    optimizer: torch.optim.Optimizer, named: dict[str, torch.Tensor], hashes: dict[str, int], size: int
) -> dict[str, Any]:
    """This rank's facts, for the other ranks.  The keys are the words of differences().

    named: the parameters.  hashes: of their values.  size: the number of ranks that are compared.
    """
    samplers = _samplers(size)
    return {
        **_versions(),
        "the script": _script(),
        "the seed of torch": torch.initial_seed(),
        "the optimizer": type(optimizer).__name__,
        "the learning rate": [float(group["lr"]) for group in optimizer.param_groups if "lr" in group],
        "an option of the optimizer": [
            f"{key}={_ADDRESS.sub('', str(value))}"
            for group in optimizer.param_groups
            for key, value in sorted(group.items())
            if key not in ("params", "lr", "initial_lr")
        ],
        "a parameter": [f"{name} {list(p.shape)} {p.dtype}" for name, p in named.items()],
        "a data sampler": [text for text, _ in samplers],
        "samplers": [part for _, part in samplers],
        "values": hashes,
    }


def _versions() -> dict[str, str]:
    loaded = {name: sys.modules.get(name) for name in ("torch", "numpy", "hvd")}
    told = {name: str(getattr(module, "__version__", "")) for name, module in loaded.items() if module is not None}
    return {"the version of Python": platform.python_version(), **{f"the version of {name}": v for name, v in told.items()}}


def _script() -> str:
    """A hash of the script's text; "": it is no file."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12] if file else ""
    except OSError:
        return ""


def _samplers(size: int) -> list[tuple[str, int]]:
    """The samplers that divide data among these ranks: their settings, and the part of this rank."""
    if not _living_samplers(size):
        return []
    gc.collect()  # each rank has other garbage
    # In an elastic job, samplers of ranks that stay have seen more epochs than those of new ranks.
    has_epochs = not _environment.flag("HOROVOD_ELASTIC")
    found = []
    for one in _living_samplers(size):
        with contextlib.suppress(AttributeError, TypeError):  # a user's class may lack anything
            text = f"{type(one).__name__} of {len(one.dataset)} samples, seed {one.seed}"
            text += f", epoch {one.epoch}" if has_epochs else ""
            found.append((text + ("" if one.shuffle else ", not shuffled"), int(one.rank)))
    return sorted(found)


def _living_samplers(size: int) -> list[Any]:
    kinds = (DistributedSampler, ElasticSampler)
    return [one for one in gc.get_objects() if issubclass(type(one), kinds) and getattr(one, "num_replicas", 0) == size]


def differences(told: Sequence[dict[str, Any]], ranks: Sequence[int]) -> Iterator[str]:
    """A line for each difference.  told: the facts of each rank.  ranks: their numbers."""
    for what, mine in told[0].items():
        values: list[Any] = [one.get(what) for one in told]
        if what in ("samplers", "values") or all(str(value) == str(mine) for value in values):  # NaN is not NaN
            continue
        if what == "the seed of torch" and not _has_outsiders(values):
            continue
        if isinstance(mine, list):  # the first element that differs
            at = next(i for i in range(max(map(len, values))) if len({str(value[i : i + 1]) for value in values}) > 1)
            values = [str(value[at]) if at < len(value) else "missing" for value in values]
        yield f"{what} is {_each(values, ranks)}"
    yield from _same_parts([one["samplers"] for one in told], ranks)
    yield from _other_values([one["values"] for one in told], ranks)


def _has_outsiders(seeds: Sequence[Any]) -> bool:
    """Returns whether more than half of three ranks or more have one seed.  Seeds that depend on the rank are usual."""
    return len(seeds) > 2 and 2 * max(seeds.count(seed) for seed in seeds) > len(seeds)


def _each(values: Sequence[Any], ranks: Sequence[int]) -> str:
    """ "2.1 on rank 0, 1, 2.0 on rank 2", the most frequent value first."""
    texts = [str(value) if len(str(value)) <= _LONGEST else str(value)[: _LONGEST - 2] + " …" for value in values]
    of: dict[str, list[int]] = {}
    for value, text, rank in zip(values, texts, ranks):
        of.setdefault(f"{text}\0{value}", []).append(rank)
    parts = sorted(of.items(), key=lambda item: -len(item[1]))
    return "; ".join(f"{text.partition(chr(0))[0]} on rank {_listed(which)}" for text, which in parts)


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")


def _same_parts(parts: Sequence[list[int]], ranks: Sequence[int]) -> Iterator[str]:
    if len({len(one) for one in parts}) > 1:
        return  # told as "a data sampler"
    for of_one in zip(*parts):
        twice = [rank for rank, part in zip(ranks, of_one) if of_one.count(part) > 1]
        if twice:
            yield f"a data sampler gives the same samples to several ranks, among them {_listed(twice)}: check its rank="
            return


def _other_values(hashes: Sequence[dict[str, int]], ranks: Sequence[int]) -> Iterator[str]:
    if any(one.keys() != hashes[0].keys() for one in hashes):
        return  # told as "a parameter"
    bad = [name for name in hashes[0] if len({one[name] for one in hashes}) > 1]
    if bad:
        values = [one[bad[0]] for one in hashes]
        usual = max(values, key=values.count)
        which = [rank for rank, value in zip(ranks, values) if value != usual or values.count(usual) == 1]
        yield (
            f"{len(bad)} of {len(hashes[0])} parameters have other values on rank {_listed(which)}, the first is {bad[0]}: "
            "call broadcast_parameters() before the first step"
        )
