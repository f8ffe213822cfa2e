"""The pages' programs for PyTorch."""

import contextlib
import io
import os
import tempfile

import snippets
import torch

import hvd.torch as hvd

hvd.init()


def train_py(file):
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
        before = os.getcwd()
        os.chdir(folder)
        try:
            after = snippets.run(file, "# train.py", {})
        finally:
            os.chdir(before)
    assert ("loss" in said.getvalue()) == (hvd.rank() == 0)
    same_on_all(after["model"])


def same_on_all(model):
    weights = [weight.tolist() for weight in model.parameters()]
    assert hvd.allgather_object(weights) == [weights] * hvd.size()


def fresh():
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(3, 1)
    return {"hvd": hvd, "model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.01)}


def check_the_quickstart():
    train_py("docs/quickstart.md")


def check_the_manual():
    names = fresh()
    assert isinstance(snippets.run("man/hvd-torch.7", "hvd.DistributedOptimizer", names)["optimizer"], torch.optim.SGD)
    same_on_all(names["model"])


def check_agreement():
    snippets.run("docs/agreement.md", "hvd.agreement.watch", fresh())


def check_an_elastic_state():
    names = fresh() | {"epochs": 2}
    snippets.run("man/hvd-elastic.7", "hvd.elastic.TorchState", names)
    same_on_all(names["model"])


def check_folds_in_one_call():
    calls = []
    names = {"hvd": hvd, "begin_a_model": lambda state: calls.append(0), "train_an_epoch": lambda state: calls.append(1)}
    after = snippets.run("docs/elastic.md", "while state.fold < 5", names)
    after["train"](hvd.elastic.TorchState(fold=0, epoch=0))
    assert calls == ([1] * 10 + [0]) * 5


def shared():
    """Data and model for the same batch on fewer ranks."""
    names = fresh()
    names["optimizer"] = hvd.DistributedOptimizer(names["optimizer"], named_parameters=names["model"].named_parameters())
    generator = torch.Generator().manual_seed(1)
    names["data"] = torch.utils.data.TensorDataset(
        torch.rand(40, 3, generator=generator), torch.rand(40, 1, generator=generator)
    )
    return names | {"loss": torch.nn.functional.mse_loss, "epochs": 2}


def check_the_same_batch():
    names = shared()
    snippets.run("docs/elastic.md", "hvd.elastic.GlobalBatchLoader", names)
    same_on_all(names["model"])
    names = shared()
    sampler = hvd.elastic.ElasticSampler(names["data"])
    loader = hvd.elastic.GlobalBatchLoader(names["data"], batch_size=16, sampler=sampler)
    names["state"] = hvd.elastic.TorchState(names["model"], names["optimizer"], sampler=sampler)

    @hvd.elastic.run(keep_global_batch=True)
    def train(state):
        snippets.run("man/hvd-elastic.7", "for batch in loader", names | {"loader": loader})

    train(names["state"])
    same_on_all(names["model"])
