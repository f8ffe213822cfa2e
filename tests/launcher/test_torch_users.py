"""accelerate, transformers' Trainer, Lightning, DeepSpeed and torch's @record under hvdrun, as they run under torchrun.

HVD_TEST_TORCH_USERS: an interpreter with these packages (default that of .cache/users, which scripts/setup --nightly makes,
else this one); tests of missing ones are skipped.  DeepSpeed compiles a part of itself at its first use.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from support import hvdrun

pytest.importorskip("torch")
_named = os.environ.get("HVD_TEST_TORCH_USERS", "")
PYTHON = _named if os.access(_named, os.X_OK) else sys.executable

ACCELERATE = """
import torch, torch.distributed as dist
from accelerate import Accelerator
if "BACKEND" != "gloo":
    import hvd.torch
    dist.init_process_group("BACKEND")
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 1)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 4)), batch_size=4)
model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), data)
for (batch,) in data:
    optimizer.zero_grad()
    accelerator.backward(model(batch).pow(2).mean())
    optimizer.step()
print("done", accelerator.process_index, accelerator.num_processes, len(data), dist.get_backend(), flush=True)
"""
TRAINER = """
import torch, torch.distributed as dist
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
data = [{"input_ids": torch.randint(0, 50, (8,)), "labels": torch.tensor(i % 2)} for i in range(32)]
common = dict(per_device_train_batch_size=2, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True)
arguments = TrainingArguments(output_dir="out", max_steps=3, **common)
Trainer(model=BertForSequenceClassification(config), args=arguments, train_dataset=data).train()
print("done", arguments.process_index, arguments.world_size, 3, dist.get_backend(), flush=True)
"""
LIGHTNING = """
import lightning, torch, torch.distributed as dist
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        return self.layer(batch[0]).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
strategy = "auto"
if "BACKEND" != "gloo":
    import hvd.torch
    strategy = lightning.pytorch.strategies.DDPStrategy(process_group_backend="BACKEND")
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 4)), batch_size=4)
quiet = dict(enable_progress_bar=False, logger=False, enable_checkpointing=False, enable_model_summary=False)
trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", devices=2, strategy=strategy, **quiet)
trainer.fit(Model(), data)
print("done", trainer.global_rank, trainer.world_size, trainer.global_step, dist.get_backend(), flush=True)
"""
DEEPSPEED = """
import deepspeed, torch, torch.distributed as dist
deepspeed.init_distributed(dist_backend="BACKEND")
model = torch.nn.Linear(4, 1)
adam = {"type": "Adam", "params": {"lr": 0.1, "torch_adam": True}}
config = {"train_batch_size": 8, "zero_optimization": {"stage": 1}, "optimizer": adam}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for _ in range(3):
    engine.backward(engine(torch.randn(4, 4)).pow(2).mean())
    engine.step()
print("done", dist.get_rank(), dist.get_world_size(), engine.global_steps, dist.get_backend(), flush=True)
"""


def has(package: str) -> bool:
    """Returns whether that interpreter has the package."""
    code = f"import sys; from importlib.util import find_spec; sys.exit(find_spec({package!r}) is None)"
    return subprocess.run([PYTHON, "-c", code], timeout=60).returncode == 0


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("package", "script", "backend", "steps"),
    [
        ("accelerate", ACCELERATE, "gloo", 4),
        ("accelerate", ACCELERATE, "hvd", 4),
        ("transformers", TRAINER, "gloo", 3),
        ("lightning", LIGHTNING, "gloo", 4),
        ("lightning", LIGHTNING, "hvd", 4),
        ("deepspeed", DEEPSPEED, "gloo", 3),
    ],
)
def test_packages(tmp_path: pathlib.Path, package: str, script: str, backend: str, steps: int) -> None:
    if not has(package):
        pytest.skip(f"{PYTHON} has no {package} (HVD_TEST_TORCH_USERS)")
    (tmp_path / "script.py").write_text(script.replace("BACKEND", backend))
    done = hvdrun.run("-np", "2", "--", PYTHON, "script.py", cwd=tmp_path, timeout=250)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert f"[{rank} localhost] done {rank} 2 {steps} {backend}\n" in done.stdout


def test_record_and_local_rank(tmp_path: pathlib.Path) -> None:
    (tmp_path / "script.py").write_text(
        """
import argparse, os
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local-rank", type=int, default=int(os.environ.get("LOCAL_RANK", -1)))
    print("local rank", parser.parse_args().local_rank, flush=True)
    if os.environ["RANK"] == "1":
        raise ValueError("no data in shard 7")
main()
"""
    )
    done = hvdrun.run("-np", "2", *hvdrun.python_args(), "script.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "[1 localhost] local rank 1" in done.stdout
    assert "rank 1 on localhost ended with exit code 1 (ValueError: no data in shard 7)" in done.stderr
