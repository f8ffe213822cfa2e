"""Rows of speed.py: steps of ResNet-50 and of a transformer, alone, with hvd, and with torch's DistributedDataParallel.

A step's time is the device's: from the event after one step to the event after the next, without a synchronise between them,
as in a training script.  exposed_ms: that minus the same step without any exchange.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable

import torch
from exchange_steps import optimizer_of

import hvd.torch as hvd

BLOCKS, STEPS, WARM = 3, 16, 8
KINDS = ("alone", "hvd", "hvd_groups8", "ddp", "ddp_hook")


class Transformer(torch.nn.Module):
    """100 million parameters at the default sizes: 12 layers of 768, 10 000 words in and out."""

    def __init__(self, width: int = 768, layers: int = 12, words: int = 10_000) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(words, width)
        layer = torch.nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = torch.nn.Linear(width, words)

    def forward(self, x: torch.Tensor) -> Any:
        mask = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        return self.head(self.layers(self.embedding(x), mask=mask, is_causal=True))


def resnet50(device: str, small: bool) -> tuple[Callable[[], torch.nn.Module], Callable[[torch.nn.Module], torch.Tensor]]:
    """A function that makes a model, and one that returns the loss of a batch of it."""
    if small:
        images, labels = torch.randn(2, 3, 8, 8), torch.zeros(2, dtype=torch.int64)

        def model() -> torch.nn.Module:
            return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5))
    else:
        import torchvision

        images = torch.randn(64, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
        labels = torch.randint(0, 1000, (64,), device=device)

        def model() -> torch.nn.Module:
            return torchvision.models.resnet50().to(device).to(memory_format=torch.channels_last)  # type: ignore[no-any-return]

    return model, _loss(images, labels, device)


def transformer(device: str, small: bool) -> tuple[Callable[[], torch.nn.Module], Callable[[torch.nn.Module], torch.Tensor]]:
    words = 50 if small else 10_000
    tokens = torch.randint(0, words, (2, 8) if small else (16, 512), device=device)

    def model() -> torch.nn.Module:
        return (Transformer(64, 1, words) if small else Transformer()).to(device)

    return model, _loss(tokens, tokens, device)


def _loss(inputs: torch.Tensor, labels: torch.Tensor, device: str) -> Callable[[torch.nn.Module], torch.Tensor]:
    def loss(model: torch.nn.Module) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16):
            said = model(inputs)
            return torch.nn.functional.cross_entropy(said.flatten(0, -2).float(), labels.flatten())

    return loss


MODELS = {"resnet50": resnet50, "transformer": transformer}


class Contender:
    """A model, its optimizer, and the times of its steps."""

    def __init__(self, kind: str, model: torch.nn.Module, loss: Callable[[torch.nn.Module], torch.Tensor]) -> None:
        self.model, self.loss = model, loss
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        if kind.startswith("hvd"):
            groups = {"groups": 8} if kind == "hvd_groups8" else {}
            optimizer = optimizer_of(optimizer, model.named_parameters(), **groups)
        elif kind.startswith("ddp"):
            where = {"device_ids": [torch.cuda.current_device()]} if next(model.parameters()).is_cuda else {}
            self.model = torch.nn.parallel.DistributedDataParallel(model, **where)  # type: ignore[arg-type]
            if kind == "ddp_hook":
                self.model.register_comm_hook(None, hvd.ddp_comm_hook)
        self.optimizer = optimizer
        self.ms: list[float] = []
        self.synced_ms: list[float] = []
        self.cpu_ms: list[float] = []

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.loss(self.model).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def block(self, steps: int) -> None:
        """Runs steps without a pause; then some between two synchronises each."""
        torch.cuda.synchronize()
        self.step()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
        begin = time.process_time()
        marks[0].record()
        for mark in marks[1:]:
            self.step()
            mark.record()
        torch.cuda.synchronize()
        self.cpu_ms.append((time.process_time() - begin) * 1e3 / steps)
        self.ms += [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
        for _ in range(steps // 2):
            at = time.perf_counter()
            self.step()
            torch.cuda.synchronize()
            self.synced_ms.append((time.perf_counter() - at) * 1e3)


def contenders(
    model_of: Callable[[], torch.nn.Module], loss: Callable[[torch.nn.Module], torch.Tensor], failed: dict[str, str]
) -> dict[str, Contender]:
    """The contenders, warmed up.  A failure of one does not affect the others."""
    found = {}
    for kind in KINDS:
        try:
            found[kind] = Contender(kind, model_of(), loss)
            for _ in range(WARM):
                found[kind].step()
            torch.cuda.synchronize()
        except Exception as error:
            failed[kind] = f"{type(error).__name__}: {str(error)[:300]}"
            found.pop(kind, None)
    return found


def training(model: str, device: str, small: bool) -> dict[str, Any]:
    """All contenders alternate in blocks, because the machine's speed varies."""
    model_of, loss = MODELS[model](device, small)
    failed: dict[str, str] = {}
    found = contenders(model_of, loss, failed)
    for _ in range(1 if small else BLOCKS):
        for kind, one in list(found.items()):
            try:
                one.block(2 if small else STEPS)
            except Exception as error:
                failed[kind] = f"{type(error).__name__}: {str(error)[:300]}"
                del found[kind]
    row: dict[str, Any] = {}
    for kind, one in found.items():
        row["parameters"] = sum(p.numel() for p in one.model.parameters())
        row[f"{kind}_ms"] = statistics.median(one.ms)
        row[f"{kind}_least_ms"] = min(one.ms)
        row[f"{kind}_synced_ms"] = statistics.median(one.synced_ms)
        row[f"{kind}_cpu_ms"] = statistics.median(one.cpu_ms)
    for kind in [kind for kind in found if kind != "alone" and "alone" in found]:
        for suffix in ("", "_least", "_synced"):
            row[f"{kind}_exposed{suffix}_ms"] = row[f"{kind}{suffix}_ms"] - row[f"alone{suffix}_ms"]
    for kind in [kind for kind in found if kind not in ("alone", "ddp") and "ddp_exposed_ms" in row]:
        for suffix in ("", "_least", "_synced"):
            theirs = row[f"ddp_exposed{suffix}_ms"]
            row[f"{kind}_of_ddp{suffix}"] = row[f"{kind}_exposed{suffix}_ms"] / theirs if theirs > 0 else 0.0
    if failed:
        row["failed"] = failed
    del found
    gc.collect()
    if device != "cpu":
        torch.cuda.empty_cache()
    return row


# ---- CUDA graphs


def captured(small: bool) -> dict[str, Any]:
    """ResNet-50's forward and backward as a graph, then optimizer.step(); and the whole step as a graph, with the exchange."""
    model_of, loss = resnet50("cuda", small)
    row: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for kind in ("alone", "hvd", "alone_whole", "hvd_whole", "ddp_whole"):
        try:
            whole = kind.endswith("_whole")
            with on_side_stream():  # as DistributedDataParallel requires
                one = Contender(kind.removesuffix("_whole") if whole else "alone", model_of(), loss)
            row |= {f"{kind}_{name}": value for name, value in _captured(one, whole, exchanges=kind == "hvd").items()}
        except Exception as error:
            failed[kind] = f"{type(error).__name__}: {str(error)[:300]}"
        gc.collect()
        torch.cuda.synchronize()
    for kind, who, name in (("", "hvd", ""), ("_whole", "hvd", "_whole"), ("_whole", "ddp", "_ddp_whole")):
        if f"{who}{kind}_ms" in row and f"alone{kind}_ms" in row:
            row[f"exposed{name}_ms"] = row[f"{who}{kind}_ms"] - row[f"alone{kind}_ms"]
            row[f"exchange{name}_host_us"] = row[f"{who}{kind}_host_us"] - row[f"alone{kind}_host_us"]
    if failed:
        row["failed"] = failed
    return row


@contextmanager
def on_side_stream() -> Iterator[None]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield
    torch.cuda.current_stream().wait_stream(side)


def _captured(one: Contender, whole: bool, exchanges: bool) -> dict[str, float]:
    """whole: optimizer.step() is in the graph too.  exchanges: hvd's optimizer is made after the capture."""

    def forward_backward() -> None:
        one.loss(one.model).backward()  # type: ignore[no-untyped-call]

    with on_side_stream():
        for _ in range(12):  # DistributedDataParallel needs 11
            one.step()
    torch.cuda.synchronize()
    one.optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        forward_backward()
        if whole:
            one.optimizer.step()

    if exchanges:
        one.optimizer = optimizer_of(one.optimizer, one.model.named_parameters())

    def step() -> None:
        graph.replay()
        if not whole:
            one.optimizer.step()

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    steps = 30
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    host = []
    marks[0].record()
    for mark in marks[1:]:
        begin = time.thread_time()
        step()
        host.append((time.thread_time() - begin) * 1e6)
        mark.record()
    torch.cuda.synchronize()
    ms = [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
    return {"ms": statistics.median(ms), "least_ms": min(ms), "host_us": statistics.median(host)}
