"""A Lightning estimator's ranks: each trains with a Trainer, whose strategy is DDP over the backend "hvd".

Rank 0 copies checkpoints and logs into the store after each epoch.
"""

from __future__ import annotations

import inspect
import io
import pathlib
import tempfile
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from hvd.spark.ml.lightning_parts import callbacks_of, data_of, plain_module, strategy_of
from hvd.spark.ml.torch_training import device_of, shaped
from hvd.spark.ml.training import Training, begin

CHECKPOINT = "last"  # the checkpoint's name, without its suffix


def package_of(model: Any) -> str | None:
    """The package that a LightningModule belongs to; None for another object."""
    for base in type(model).__mro__:
        if base.__name__ == "LightningModule":
            return "lightning.pytorch" if base.__module__.startswith("lightning.") else "pytorch_lightning"
    return None


def installed() -> str:
    """The package of Lightning to take for a plain module.  Errors: ImportError without any."""
    for top, name in (("lightning", "lightning.pytorch"), ("pytorch_lightning", "pytorch_lightning")):
        if find_spec(top):
            return name
    raise ImportError("LightningEstimator needs Lightning 2 on the ranks: pip install lightning")


def train(training: Training) -> dict[str, Any] | None:
    """One rank's training.  Rank 0 returns the model's state (bytes), the logged metrics and the width of each output."""
    begin(training.settings)
    import torch.distributed as dist

    import hvd.torch as hvd

    hvd.init()
    dist.init_process_group("hvd", init_method="hvd://")
    try:
        with tempfile.TemporaryDirectory(prefix="hvd-lightning-") as folder:
            return _train(training, hvd, pathlib.Path(folder))
    finally:
        dist.destroy_process_group()


def _train(training: Training, hvd: Any, folder: pathlib.Path) -> dict[str, Any] | None:
    import torch

    settings, work = training.settings, training.work
    package = package_of(work["model"]) or installed()
    pl: Any = import_module(package)
    if settings["random_seed"] is not None:
        pl.seed_everything(int(settings["random_seed"]))
    device = device_of(torch, hvd, settings["use_gpu"])
    module = work["model"] if package_of(work["model"]) else plain_module(pl, training, hvd.size())
    saved = folder / f"{CHECKPOINT}.ckpt"
    callbacks, best = callbacks_of(pl, training, hvd, folder, CHECKPOINT)
    resumed = None
    if work["checkpoint"] is not None:
        resumed = folder / "resumed.ckpt"
        resumed.write_bytes(work["checkpoint"])
    arguments = {
        "accelerator": "cpu" if device.type == "cpu" else "cuda",
        "strategy": strategy_of(pl, hvd, device, settings["gradient_compression"]),
        "devices": 1,
        "max_epochs": settings["epochs"],
        "accumulate_grad_batches": settings["backward_passes_per_step"],
        "callbacks": callbacks,
        "logger": _logger(pl, settings["logger"], folder),
        "log_every_n_steps": settings["log_every_n_steps"],
        "num_sanity_val_steps": 0,
        "use_distributed_sampler": False,
        "enable_progress_bar": False,
        "enable_model_summary": settings["verbose"] > 1,
        "profiler": settings["profiler"],
        "default_root_dir": str(folder),
    }
    trainer = pl.Trainer(**{**arguments, **(settings["trainer_args"] or {})})
    # This checkpoint is the store's own, so it can be trusted.  Otherwise Lightning 2.6 loads only weights.
    trust = {"weights_only": False} if "weights_only" in inspect.signature(trainer.fit).parameters else {}
    trainer.fit(module, datamodule=data_of(pl, training, hvd), ckpt_path=resumed and str(resumed), **trust)
    if hvd.rank() != 0:
        return None
    if best is not None and best.best_model_path:
        module.load_state_dict(torch.load(best.best_model_path, map_location="cpu", weights_only=False)["state_dict"])
    elif training.store.saving_runs() and saved.exists():
        training.store.write(training.store.get_checkpoint_path(training.run_id), saved.read_bytes())
    return _result(torch, training, work["model"], trainer, hvd)


def _logger(pl: Any, given: Any, folder: pathlib.Path) -> Any:
    """The user's logger; by default one for TensorBoard if it is installed, else for CSV."""
    if given is not None:
        return given
    kind = pl.loggers.TensorBoardLogger if find_spec("tensorboard") or find_spec("tensorboardX") else pl.loggers.CSVLogger
    return kind(str(folder / "logs"))


def _result(torch: Any, training: Training, model: Any, trainer: Any, hvd: Any) -> dict[str, Any]:
    model.cpu().eval()
    first = training.shards(hvd)[0].first
    inputs = shaped([torch.from_numpy(first[name]) for name in training.features], training.settings["input_shapes"])
    with torch.no_grad():
        outputs = model(*inputs)
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return {
        "state": file.getvalue(),
        "history": {name: float(value) for name, value in trainer.logged_metrics.items()},
        "widths": [int(output[0].numel()) for output in outputs],
    }
