"""hvd.spark.torch: a torch model as a stage of a Spark ML pipeline."""

from __future__ import annotations

import io
from typing import Any

from hvd.spark.ml.estimator import HorovodEstimatorBase, HorovodModelBase
from hvd.spark.ml.training import Training

__all__ = ["TorchEstimator", "TorchModel"]


class TorchEstimator(HorovodEstimatorBase):
    """Trains a torch.nn.Module.

    model and optimizer belong together (optimizer = SGD(model.parameters(), …)).  loss: a callable (output, label), or a
    list, one for each label column.  metrics: a list of such callables, or a dict of names.  Each feature column is one
    argument of the model.  The other parameters: hvd.spark.ml.params.
    """

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
        loss, metrics = self.value("loss"), self.value("metrics") or {}
        if loss is None:
            made = self.value("loss_constructors")
            loss = [make() for make in (made if isinstance(made, (list, tuple)) else [made])]
        losses = list(loss) if isinstance(loss, (list, tuple)) else [loss]
        if len(losses) != len(self.value("label_cols")):
            raise ValueError(f"{len(losses)} losses for {len(self.value('label_cols'))} label columns: give one for each")
        if not isinstance(metrics, dict):
            metrics = {getattr(m, "__name__", type(m).__name__): m for m in metrics}
        return {"model": model, "optimizer": optimizer, "losses": losses, "metrics": metrics}

    def _train_function(self) -> Any:
        from hvd.spark.ml.torch_training import train

        return train

    def _model_of(self, result: dict[str, Any], training: Training) -> Any:
        import copy

        model = copy.deepcopy(training.work["model"])
        model.load_state_dict(result["model"])
        model.eval()
        extra = {"widths": result["widths"], "input_shapes": self.value("input_shapes")}
        return TorchModel(
            model, training.features, training.labels, self.value("output_cols"), result["history"], training.run_id, extra
        )


class TorchModel(HorovodModelBase):
    """What TorchEstimator.fit returns."""

    def _packed(self) -> bytes:
        import cloudpickle

        return bytes(cloudpickle.dumps(self._model))

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> TorchModel:
        """From what state() gave."""
        import pickle

        keys = ("features", "labels", "outputs", "history", "run_id", "extra")
        return cls(pickle.loads(state["packed"]), *(state[key] for key in keys))

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
