"""hvd.spark.torch: a torch model as a stage of a Spark ML pipeline."""

from __future__ import annotations

import io
from typing import Any

from hvd.spark.ml.defaults import LIGHTNING
from hvd.spark.ml.estimator import HorovodEstimatorBase, HorovodModelBase
from hvd.spark.ml.torch_training import takes_reduction
from hvd.spark.ml.training import Training

__all__ = ["TorchEstimator", "TorchModel"]


class TorchEstimator(HorovodEstimatorBase):
    """Trains a torch.nn.Module.

    model and optimizer belong together (optimizer = SGD(model.parameters(), …)).  The learning rate is that of one rank, and
    is multiplied by their number.  loss: a callable (output, label), or a list with one for each label column.  metrics:
    groups, each such a callable or a list with one for each label column.  Each feature column is one argument of the model.
    The other parameters: hvd.spark.ml.defaults.
    """

    NOT_MINE: tuple[str, ...] = ("checkpoint_callback", "custom_objects", *LIGHTNING)

    def _work(self) -> Any:
        import torch

        model, optimizer = self.value("model"), self.value("optimizer")
        if not isinstance(model, torch.nn.Module):
            raise ValueError(f"model is a {type(model).__name__}, not a torch.nn.Module")
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ValueError("optimizer must be a torch.optim.Optimizer made of the model's parameters")
        mine = {id(p) for p in model.parameters()}
        if not all(id(p) in mine for group in optimizer.param_groups for p in group["params"]):
            raise ValueError("the optimizer holds parameters of another model: make it of model.parameters()")
        labels, loss, made = self.value("label_cols"), self.value("loss"), self.value("loss_constructors")
        if loss is not None and made is not None:
            raise ValueError("there are both loss and loss_constructors: give one of them")
        losses = None if loss is None else _for_each(loss, labels, "losses")
        weight = self.value("sample_weight_col")
        if weight and (bad := [one for one in losses or () if not takes_reduction(one)]):
            name = getattr(bad[0], "__name__", bad[0])
            raise ValueError(
                f'sample_weight_col needs each row\'s loss, and {name} cannot give it: let it take reduction="none", as those '
                "of torch.nn.functional do (lambda output, label, **more: f.mse_loss(output, label, **more))"
            )
        return {
            "model": model,
            "optimizer": optimizer,
            "losses": losses,
            "loss_constructors": None if made is None else _for_each(made, labels, "loss_constructors"),
            "metrics": _metric_groups(self.value("metrics"), labels),
        }

    def _train_function(self) -> Any:
        from hvd.spark.ml.torch_training import train

        return train

    def _model_of(self, result: dict[str, Any], training: Training) -> Any:
        import copy

        import torch

        model, optimizer = copy.deepcopy((training.work["model"], training.work["optimizer"]))
        state = torch.load(io.BytesIO(result["state"]), map_location="cpu", weights_only=False)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        model.eval()
        extra = {"widths": result["widths"], "input_shapes": self.value("input_shapes")}
        names = training.features, training.labels, self.value("output_cols")
        return TorchModel(model, *names, result["history"], training.run_id, extra, optimizer)


def _for_each(given: Any, labels: list[str], what: str) -> list[Any]:
    """A list with one entry for each label column; a single entry serves all."""
    found = list(given) if isinstance(given, (list, tuple)) else [given]
    found = found * len(labels) if len(found) == 1 else found
    if len(found) != len(labels):
        raise ValueError(f"{len(found)} {what} for {len(labels)} label columns: give one for each, or one for all")
    return found


def _metric_groups(given: Any, labels: list[str]) -> list[dict[str, tuple[Any, int]]]:
    """For each group {name: (function, the label's number)}: a list of groups, each a function or a list of them, by
    Horovod's names; or a dictionary of functions for the first label."""
    if isinstance(given, dict):
        return [{name: (function, 0) for name, function in given.items()}]
    groups = [_for_each(group, labels, "metrics of a group") for group in given or ()]
    return [
        {f"group_{number}_{label}": (function, at) for at, (label, function) in enumerate(zip(labels, group))}
        for number, group in enumerate(groups)
    ]


class TorchModel(HorovodModelBase):
    """The result of TorchEstimator.fit.  Its history is a list: {"epoch", "train": {"loss", "all_metrics"}, "validation"}."""

    def __init__(self, model: Any, features: list[str], labels: list[str], outputs: list[str] | None, history: Any,
                 run_id: str, extra: dict[str, Any], optimizer: Any) -> None:  # fmt: skip
        super().__init__(model, features, labels, outputs, history, run_id, extra)
        self._optimizer = optimizer

    def getOptimizer(self) -> Any:
        """The optimizer of the trained model in its final state, with the learning rate of one rank."""
        return self._optimizer

    def _packed(self) -> bytes:
        import cloudpickle

        return bytes(cloudpickle.dumps(self._model))

    def state(self) -> dict[str, Any]:
        """The state to save.  Model and optimizer are in one object, because they share parameters."""
        import cloudpickle

        return {**super().state(), "packed": bytes(cloudpickle.dumps((self._model, self._optimizer)))}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> TorchModel:
        """The model of an earlier state()."""
        import pickle

        model, optimizer = pickle.loads(state["packed"])
        names = state["features"], state["labels"], state["outputs"]
        return cls(model, *names, state["history"], state["run_id"], state["extra"], optimizer)

    @staticmethod
    def _predictor(packed: bytes, extra: dict[str, Any]) -> Any:
        import pickle

        import torch

        from hvd.spark.ml.torch_training import shaped

        model = pickle.load(io.BytesIO(packed))
        model.eval()

        def forward(inputs: list[Any]) -> list[Any]:
            with torch.no_grad():
                output = model(*shaped([torch.from_numpy(value) for value in inputs], extra["input_shapes"]))
            outputs = output if isinstance(output, (list, tuple)) else [output]
            return [value.detach().cpu().numpy() for value in outputs]

        return forward
