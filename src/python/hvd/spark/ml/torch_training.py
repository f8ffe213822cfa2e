"""A torch estimator's ranks: each streams its rows and trains with hvd.torch; rank 0 keeps checkpoints in the store."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

import numpy

from hvd.spark.ml.events import EventFile
from hvd.spark.ml.readers import open_reader
from hvd.spark.ml.training import Training, begin, of_rows


def train(training: Training) -> dict[str, Any] | None:
    """One rank's training.  Rank 0 returns the last checkpoint (bytes), the history and the width of each output."""
    begin(training.settings)
    import torch

    import hvd.torch as hvd

    hvd.init()
    return _Trainer(training, torch, hvd).run()


class _Trainer:
    def __init__(self, training: Training, torch: Any, hvd: Any) -> None:
        self.t, self.torch, self.hvd = training, torch, hvd
        self.settings = training.settings
        if (seed := self.settings["random_seed"]) is not None:
            torch.manual_seed(int(seed))
        work = training.work
        self.device = device_of(torch, hvd, self.settings["use_gpu"])
        self.model, optimizer = work["model"].to(self.device), work["optimizer"]
        made = work["losses"] or [constructed(make, self.model) for make in work["loss_constructors"]]
        self.losses = [loss.to(self.device) if isinstance(loss, torch.nn.Module) else loss for loss in made]
        self.metrics = work["metrics"]
        self.history: list[dict[str, Any]] = []
        self.first_epoch = self._resume(optimizer)
        optimizer.load_state_dict(optimizer.state_dict())  # moves its state to the parameters' device
        _scale_rates(optimizer.param_groups, hvd.size())
        self.optimizer = hvd.DistributedOptimizer(
            optimizer,
            named_parameters=self.model.named_parameters(),
            backward_passes_per_step=self.settings["backward_passes_per_step"],
            **({"compression": c} if (c := self.settings["gradient_compression"]) else {}),
        )
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(self.optimizer, root_rank=0)
        self.rows = open_reader(training, hvd)
        self.sample: list[Any] = []  # one row's inputs
        kept = hvd.rank() == 0 and training.store.saving_runs()
        self.events = EventFile(training.store, training.store.get_logs_path(training.run_id)) if kept else None

    def _resume(self, optimizer: Any) -> int:
        """The first epoch to train; loads the run's checkpoint if there is one."""
        path = self.t.store.get_checkpoint_path(self.t.run_id)
        found = self.t.store.read(path) if self.hvd.rank() == 0 and self.t.store.exists(path) else None
        found = self.hvd.broadcast_object(found, root_rank=0, name="hvd.spark.checkpoint")
        if found is None:
            return 0
        state = self.torch.load(io.BytesIO(found), map_location="cpu", weights_only=False)
        self.model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        self.history = state["history"]
        return int(state["epoch"]) + 1

    def run(self) -> dict[str, Any] | None:
        with self.rows as rows:
            for epoch in range(self.first_epoch, self.settings["epochs"]):
                found = {"epoch": epoch, "train": self._train(rows.train(epoch))}
                if rows.val_steps:
                    found["validation"] = self._validate(rows.validate())
                self.history.append(found)
                self._tell(epoch, found)
            if self.hvd.rank() != 0:
                return None
            if not self.sample:
                self._tensors(next(rows.train(0)))
        self.model.eval()
        with self.torch.no_grad():
            outputs = _listed(self.model(*self.sample))
        widths = [int(output[0].numel()) for output in outputs]
        return {"state": self._state(len(self.history) - 1), "history": self.history, "widths": widths}

    def _tell(self, epoch: int, found: dict[str, Any]) -> None:
        """Reports to checkpoint, event file, screen and callbacks."""
        stages: dict[str, Any] = {stage: found[stage] for stage in ("train", "validation") if stage in found}
        logs = {
            ("val_" if stage == "validation" else "") + name: value
            for stage, one in stages.items()
            for name, value in [("loss", one["loss"]), *(item for group in one["all_metrics"] for item in group.items())]
        }
        if self.hvd.rank() == 0:
            if self.t.store.saving_runs():
                self.t.store.write(self.t.store.get_checkpoint_path(self.t.run_id), self._state(epoch))
            if self.events:
                self.events.add(epoch, _tags(stages))
            if self.settings["verbose"]:
                listed = "  ".join(f"{name} {value:.5g}" for name, value in logs.items())
                print(f"epoch {epoch + 1}/{self.settings['epochs']}  {listed}", flush=True)
        for callback in self.settings["callbacks"] or ():
            callback(epoch, self.model, logs)

    def _state(self, epoch: int) -> bytes:
        """The checkpoint; its learning rates are those of one rank."""
        file, optimizer = io.BytesIO(), self.optimizer.state_dict()
        _scale_rates(optimizer["param_groups"], 1 / self.hvd.size())
        state = {"model": self.model.state_dict(), "optimizer": optimizer, "history": self.history}
        self.torch.save({**state, "epoch": epoch}, file)
        return file.getvalue()

    # ---- batches ----

    def _tensor(self, values: Any) -> Any:
        if isinstance(values, numpy.ndarray):
            values = self.torch.from_numpy(numpy.ascontiguousarray(values))
        return self.torch.as_tensor(values).to(self.device)

    def _tensors(self, batch: Any) -> tuple[list[Any], list[Any], Any]:
        """(inputs, labels, the rows' weights or None).  batch: of a shard, or of a data_module."""
        features, labels = batch if isinstance(batch, (tuple, list)) else (batch, batch)
        if isinstance(labels, Mapping):
            labels = [labels[name] for name in self.t.labels]
        labels = [self._tensor(label) for label in (labels if isinstance(labels, (list, tuple)) else [labels])]
        inputs = shaped([self._tensor(features[name]) for name in self.t.features], self.settings["input_shapes"])
        rows = self._tensor(features[self.t.weight]).float() if self.t.weight else None
        self.sample = self.sample or [value[:1] for value in inputs]
        return inputs, labels, rows

    def _shaped_labels(self, outputs: Any, labels: list[Any]) -> tuple[list[Any], list[Any]]:
        """Outputs as a list, labels in the losses' form: the transform_outputs of a train_minibatch_fn."""
        outputs = _listed(outputs)
        if len(outputs) < len(labels):
            raise ValueError(f"the model has {len(outputs)} outputs for {len(labels)} label columns: it must have one for each")
        shapes = self.settings["label_shapes"] or [None] * len(labels)
        every = zip(outputs, labels, self.losses, shapes)
        return outputs, [label_for(self.torch, output, label, loss, shape) for output, label, loss, shape in every]

    def _loss(self, outputs: list[Any], labels: list[Any], rows: Any) -> Any:
        weights = self.settings["loss_weights"] or [1 / len(self.losses)] * len(self.losses)
        terms = [w * weighted(loss, out, label, rows) for w, loss, out, label in zip(weights, self.losses, outputs, labels)]
        return sum(terms[1:], terms[0])

    # ---- epochs ----

    def _minibatch(self, model: Any, optimizer: Any, transform_outputs: Any, loss_fn: Any, inputs: list[Any],
                   labels: list[Any], rows: Any, passes: int, step: int) -> tuple[Any, Any]:  # fmt: skip
        """A batch of training, with a train_minibatch_fn's arguments."""
        if step % passes == 0:
            optimizer.zero_grad()
        outputs, labels = transform_outputs(model(*inputs), labels)
        loss = loss_fn(outputs, labels, rows)
        (loss / passes).backward()
        if (step + 1) % passes == 0:
            optimizer.step()
        return outputs, loss

    def _train(self, batches: Iterator[Any]) -> dict[str, Any]:
        """Returns {"loss": …, "all_metrics": [{name: …} for each group]}, means over all ranks' rows."""
        self.model.train()
        given = self.settings["train_minibatch_fn"]
        sums = _Sums(self)
        for step, batch in enumerate(batches):
            inputs, labels, rows = self._tensors(batch)
            if given:
                labels = [label.float() for label in labels]  # as in Horovod
            outputs, loss = (given or self._minibatch)(
                self.model, self.optimizer, self._shaped_labels, self._loss, inputs, labels, rows,
                self.settings["backward_passes_per_step"], step,
            )  # fmt: skip
            sums.add(loss, *self._shaped_labels(outputs, labels), len(inputs[0]))
        if self.optimizer._hvd.busy:  # gradients of the last batches, which are no complete step
            self.optimizer.step()
        return sums.means("train")

    def _validate(self, batches: Iterator[Any]) -> dict[str, Any]:
        self.model.eval()
        sums = _Sums(self)
        with self.torch.no_grad():
            for batch in batches:
                inputs, labels, rows = self._tensors(batch)
                outputs, labels = self._shaped_labels(self.model(*inputs), labels)
                sums.add(self._loss(outputs, labels, rows), outputs, labels, len(inputs[0]))
        return sums.means("validation")


class _Sums:
    """Loss and metrics of an epoch."""

    def __init__(self, trainer: _Trainer) -> None:
        self.torch, self.hvd, self.groups = trainer.torch, trainer.hvd, trainer.metrics
        self.sums = [0.0] * (1 + sum(len(group) for group in self.groups))
        self.rows = 0

    def add(self, loss: Any, outputs: list[Any], labels: list[Any], rows: int) -> None:
        """Adds a batch."""
        with self.torch.no_grad():
            found = [fn(outputs[at], labels[at]) for group in self.groups for fn, at in group.values()]
        numbers = [float(value.detach() if isinstance(value, self.torch.Tensor) else value) for value in (loss, *found)]
        self.sums = [old + number * rows for old, number in zip(self.sums, numbers)]
        self.rows += rows

    def means(self, stage: str) -> dict[str, Any]:
        """The means over all ranks.  Collective."""
        total = self.torch.tensor([*self.sums, float(self.rows)], dtype=self.torch.float64)
        total = self.hvd.allreduce(total, op=self.hvd.Sum, name=f"hvd.spark.epoch.{stage}")
        values = iter((total[:-1] / total[-1]).tolist())
        return {"loss": next(values), "all_metrics": [{name: next(values) for name in group} for group in self.groups]}


def device_of(torch: Any, hvd: Any, use_gpu: bool) -> Any:
    """This rank's GPU if there are any, else the CPU.  Errors: RuntimeError if only some ranks have one."""
    count = torch.cuda.device_count() if use_gpu and torch.cuda.is_available() else 0
    have = hvd.allgather_object(count > 0, name="hvd.spark.gpus")
    if len(set(have)) > 1:
        without = ", ".join(str(rank) for rank, one in enumerate(have) if not one)
        raise RuntimeError(f"ranks {without} have no GPU that torch can use, the others have: give all one, or use_gpu=False")
    if not count:
        return torch.device("cpu")
    device = torch.device("cuda", hvd.local_rank() % count)
    torch.cuda.set_device(device)
    return device


def _scale_rates(groups: list[dict[str, Any]], factor: float) -> None:
    for group in groups:
        if group.get("lr") is not None:
            group["lr"] = group["lr"] * factor


def constructed(make: Any, model: Any) -> Any:
    """A loss from a constructor: Horovod's get all possible arguments by name, torch's classes take none."""
    import inspect

    try:
        known = inspect.signature(make).parameters
    except (TypeError, ValueError):
        known = {}  # type: ignore[assignment]
    named = "model" in known or any(p.kind is p.VAR_KEYWORD for p in known.values())
    return make(model=model) if named else make()


def _tags(stages: dict[str, Any]) -> dict[str, float]:
    """The figures by TensorBoard's tags, with Horovod's names."""
    found = {}
    for stage, one in stages.items():
        short = "val" if stage == "validation" else stage
        found[f"{short}/loss"] = one["loss"]
        for index, group in enumerate(one["all_metrics"]):
            found.update({f"{short}/{name}:{index}": value for name, value in group.items()})
    return found


def _listed(outputs: Any) -> list[Any]:
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def shaped(inputs: list[Any], shapes: Any) -> list[Any]:
    """Inputs in the requested shapes; a column of numbers without one is [rows, 1].  Whole numbers stay whole only with
    a requested shape (an embedding's input), since most layers take real numbers."""
    if shapes:
        return [value.reshape(of_rows(shape)) for value, shape in zip(inputs, shapes)]
    reals = [value.float() for value in inputs]
    return [value.reshape(-1, 1) if value.ndim == 1 else value for value in reals]


def label_for(torch: Any, output: Any, label: Any, loss: Any, shape: Any = None) -> Any:
    """The label in the loss' form.  If label and output have equally many values, the label gets the output's type.  It also
    gets the output's shape, unless another shape is requested.  For torch's losses of classes, it becomes a class number.
    Otherwise it is unchanged."""
    if shape is not None:
        label = label.reshape(of_rows(shape))
    if label.numel() == output.numel():
        return label.to(output.dtype).reshape(label.shape if shape is not None else output.shape)
    nn, f = torch.nn, torch.nn.functional
    kinds, functions = (nn.CrossEntropyLoss, nn.NLLLoss, nn.MultiMarginLoss), (f.cross_entropy, f.nll_loss, f.multi_margin_loss)
    return label.long() if isinstance(loss, kinds) or loss in functions else label


def takes_reduction(loss: Any) -> bool:
    """Returns whether a loss can return the loss of each row, which row weights require."""
    import inspect

    if hasattr(loss, "reduction"):
        return True
    try:
        known = inspect.signature(loss).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(p.name == "reduction" or p.kind is p.VAR_KEYWORD for p in known)


def weighted(loss: Any, output: Any, label: Any, rows: Any) -> Any:
    """The mean of the rows' losses, each times its weight.  The result is not divided by the sum of the weights, which differs
    between batches.  Otherwise a row would count more in a batch of small weights."""
    if rows is None:
        return loss(output, label)
    if hasattr(loss, "reduction"):
        kept, loss.reduction = loss.reduction, "none"
        try:
            each = loss(output, label)
        finally:
            loss.reduction = kept
    else:
        each = loss(output, label, reduction="none")
    return (each.reshape(len(rows), -1).mean(dim=1) * rows).mean()
