"""--agreement with MXNet's DistributedTrainer; see agreement_checks.py."""

import os

import mxnet as mx
from agreement_checks import RANK, SIZE, STEPS, error_of, flip_in, found_so_far, names

import hvd.mxnet as hvd
from hvd._agreement import exchange


class Training:
    """A model, and its trainer."""

    def __init__(self):
        self.net = mx.gluon.nn.HybridSequential()
        self.net.add(mx.gluon.nn.Dense(40, in_units=30), mx.gluon.nn.BatchNorm(), mx.gluon.nn.Dense(4, in_units=40))
        mx.random.seed(3)
        self.net.initialize(mx.init.Normal(0.1))
        self.net(mx.nd.ones((2, 30)))
        hvd.broadcast_parameters(self.net.collect_params(), root_rank=0)
        self.trainer = hvd.DistributedTrainer(self.net.collect_params(), "adam", {"learning_rate": 0.01})
        mx.random.seed(RANK)

    def step(self):
        with mx.autograd.record():
            loss = (self.net(mx.nd.random.normal(shape=(4, 30))) ** 2).mean()
        loss.backward()
        self.trainer.step(4)


def check_equal_ranks_are_not_reported():
    training = Training()
    for _ in range(10 * STEPS):
        training.step()
    assert found_so_far() == 0 and training.trainer._comparison._step == 10 * STEPS


def check_flips_are_found_where_they_are():
    for culprit, (pattern, choose) in enumerate(
        (
            (r"parameter \S*weight", lambda t: t.net[0].weight.data()),
            (
                r"(optimizer state \d of|parameter) \S*weight",
                lambda t: t.trainer._updaters[0].states[t.trainer._param2idx[t.net[0].weight.name]][0],
            ),
        )
    ):
        training = Training()
        for _ in range(3):
            training.step()
        mx.nd.waitall()
        if culprit == RANK:
            flip_in(choose(training), 33)
        names(error_of(training.step), pattern, culprit)


def check_repair():
    os.environ["HVD_AGREEMENT"] = "repair"
    try:
        exchange._repairs = 0
        training = Training()
        training.net[2].weight.data()[1, 1] += RANK == 1
        for _ in range(2 * STEPS):
            training.step()
        told = hvd.allgather_object(training.net[2].weight.data().asnumpy().tolist())
        assert all(one == told[0] for one in told) and len(told) == SIZE
        assert exchange._repairs == (RANK == 1)
    finally:
        os.environ["HVD_AGREEMENT"] = "stop"
