"""A torch estimator's ranks: each streams its rows, trains with hvd.torch, and rank 0 keeps checkpoints in the store."""

from __future__ import annotations

import io
from itertools import islice
from typing import Any

import numpy

from hvd.spark.ml.share import Share
from hvd.spark.ml.training import Training, steps_of


def train(training: Training) -> dict[str, Any] | None:
    """One rank's training.  Rank 0 returns the model's weights, the history and the width of each output."""
    import torch

    import hvd.torch as hvd

    hvd.init()
    return _Trainer(training, torch, hvd).run()


class _Trainer:
    def __init__(self, training: Training, torch: Any, hvd: Any) -> None:
        self.t, self.torch, self.hvd = training, torch, hvd
        self.settings = training.settings
        seed = self.settings["random_seed"]
        if seed is not None:
            torch.manual_seed(int(seed))
        work = training.work
        self.model, optimizer = work["model"], work["optimizer"]
        self.losses, self.metrics = work["losses"], work["metrics"]
        self.history: dict[str, list[float]] = {}
        self.first_epoch = self._resume(optimizer)
        self.optimizer = hvd.DistributedOptimizer(
            optimizer,
            named_parameters=self.model.named_parameters(),
            backward_passes_per_step=self.settings["backward_passes_per_step"],
            **({"compression": c} if (c := self.settings["gradient_compression"]) else {}),
        )
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(self.optimizer, root_rank=0)
        self.share, self.val = training.shares(hvd)
        size = self.settings["batch_size"]
        self.steps = steps_of(self.share, size, self.settings["train_steps_per_epoch"], hvd)
        self.val_size = self.settings["val_batch_size"] or size
        asked = self.settings["validation_steps_per_epoch"]
        self.val_steps = steps_of(self.val, self.val_size, asked, hvd) if self.val is not None else 0

    def _resume(self, optimizer: Any) -> int:
        """The first epoch to train; loads the run's checkpoint where there is one."""
        path = self.t.store.get_checkpoint_path(self.t.run_id)
        found = self.t.store.read(path) if self.hvd.rank() == 0 and self.t.store.exists(path) else None
        found = self.hvd.broadcast_object(found, root_rank=0, name="hvd.spark.checkpoint")
        if found is None:
            return 0
        state = self.torch.load(io.BytesIO(found), weights_only=False)
        self.model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        self.history = state["history"]
        return int(state["epoch"]) + 1

    def run(self) -> dict[str, Any] | None:
        for epoch in range(self.first_epoch, self.settings["epochs"]):
            order = self.t.order(self.hvd.rank(), epoch) if self.settings["shuffle"] else None
            logs = self._epoch(self.share, True, self.settings["batch_size"], self.steps, order)
            if self.val is not None:
                found = self._epoch(self.val, False, self.val_size, self.val_steps)
                logs.update({f"val_{name}": value for name, value in found.items()})
            for name, value in logs.items():
                self.history.setdefault(name, []).append(value)
            if self.hvd.rank() == 0:
                self._keep(epoch)
                if self.settings["verbose"]:
                    listed = "  ".join(f"{name} {value:.5g}" for name, value in logs.items())
                    print(f"epoch {epoch + 1}/{self.settings['epochs']}  {listed}", flush=True)
            for callback in self.settings["callbacks"] or ():
                callback(epoch, self.model, logs)
        if self.hvd.rank() != 0:
            return None
        self.model.eval()
        with self.torch.no_grad():
            outputs = self._forward(self.share.first)
        widths = [int(output[0].numel()) for output in outputs]
        return {"model": self.model.state_dict(), "history": self.history, "widths": widths}

    def _keep(self, epoch: int) -> None:
        file = io.BytesIO()
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "history": self.history}
        self.torch.save({**state, "epoch": epoch}, file)
        if self.t.store.saving_runs():
            self.t.store.write(self.t.store.get_checkpoint_path(self.t.run_id), file.getvalue())

    def _forward(self, batch: dict[str, Any]) -> list[Any]:
        shapes = self.settings["input_shapes"]
        inputs = [self.torch.from_numpy(numpy.ascontiguousarray(batch[name])) for name in self.t.features]
        output = self.model(*shaped(inputs, shapes))
        return list(output) if isinstance(output, (list, tuple)) else [output]

    def _epoch(self, share: Share, trains: bool, size: int, steps: int, order: Any = None) -> dict[str, float]:
        """`steps` batches; means over all ranks, by rows."""
        self.model.train(trains)
        sums: dict[str, float] = {}
        seen = 0
        passes = self.settings["backward_passes_per_step"]
        for step, batch in enumerate(islice(share.cycle(size, order), steps)):
            rows = len(batch[self.t.features[0]])
            with self.torch.set_grad_enabled(trains):
                if trains and step % passes == 0:
                    self.optimizer.zero_grad()
                outputs = self._forward(batch)
                labels = [label_for(self.torch, out, batch[name]) for out, name in zip(outputs, self.t.labels)]
                loss = self._loss(outputs, labels, batch)
                if trains:
                    loss.backward()
                    if (step + 1) % passes == 0 or step + 1 == steps:
                        self.optimizer.step()
            values = {"loss": loss, **{name: metric(outputs[0], labels[0]) for name, metric in self.metrics.items()}}
            for name, value in values.items():
                number = value.item() if isinstance(value, self.torch.Tensor) else float(value)
                sums[name] = sums.get(name, 0.0) + number * rows
            seen += rows
        names = sorted(sums)
        total = self.torch.tensor([sums[name] for name in names] + [float(seen)], dtype=self.torch.float64)
        total = self.hvd.allreduce(total, op=self.hvd.Sum, name=f"hvd.spark.epoch.{trains}")
        return {name: float(total[i] / total[-1]) for i, name in enumerate(names)}

    def _loss(self, outputs: list[Any], labels: list[Any], batch: dict[str, Any]) -> Any:
        weights = self.settings["loss_weights"] or [1.0] * len(self.losses)
        rows = self.torch.from_numpy(batch[self.t.weight]).float() if self.t.weight else None
        terms = [w * weighted(loss, out, label, rows) for w, loss, out, label in zip(weights, self.losses, outputs, labels)]
        return sum(terms[1:], terms[0])


def shaped(inputs: list[Any], shapes: Any) -> list[Any]:
    """Inputs in the shapes asked for; a column of numbers without one is [rows, 1].  Whole numbers stay whole only with
    a shape of their own (an embedding's input), since most layers take real ones."""
    out = []
    for i, value in enumerate(inputs):
        if shapes:
            out.append(value.reshape(shapes[i]))
        else:
            real = value.float()
            out.append(real.reshape(-1, 1) if real.ndim == 1 else real)
    return out


def label_for(torch: Any, output: Any, values: Any) -> Any:
    """The label as losses take it: whole numbers beside one output a class, else of the output's own shape."""
    label = torch.from_numpy(numpy.ascontiguousarray(values))
    if label.numel() == output.numel():
        return label.to(output.dtype).reshape(output.shape)
    return label if label.is_floating_point() and label.ndim > 1 else label.long()


def weighted(loss: Any, output: Any, label: Any, rows: Any) -> Any:
    """The loss with each row's weight: of a loss module without its reduction, else the loss gets the weights."""
    if rows is None:
        return loss(output, label)
    if hasattr(loss, "reduction"):
        kept, loss.reduction = loss.reduction, "none"
        try:
            each = loss(output, label)
        finally:
            loss.reduction = kept
        return (each.reshape(len(rows), -1).mean(dim=1) * rows).sum() / rows.sum()
    return loss(output, label, sample_weight=rows)
