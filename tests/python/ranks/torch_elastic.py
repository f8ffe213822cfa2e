"""hvd.elastic on a fixed set of ranks: stored state, restored state, and the continuation after an error."""

import torch
from full_memory import Full, keeps_the_commit_before
from refusals import raises
from torch import nn

import horovod.torch as hvd
from horovod.common.elastic import ObjectState
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.torch.elastic import ElasticSampler, TorchState, run
from horovod.torch.elastic.state import StateHandler, get_handler_registry, set_handler_registry
from hvd._elastic import holders as _holders
from hvd.torch import ShardedOptimizer

hvd.init()


def everyone(value):
    return hvd.allgather_object(value)


def disagree():
    hvd.allreduce(torch.ones(2 + hvd.rank()), name="sizes.differ")


def new_state(**values):
    torch.manual_seed(hvd.rank())
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (hvd.rank() + 1), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    return TorchState(model, optimizer, **values)


def train_a_step(state):
    state.optimizer.zero_grad()
    state.model(torch.ones(4, 3) * (hvd.rank() + 1)).sum().backward()
    state.optimizer.step()


def check_an_object_state():
    state = ObjectState(lambda value: hvd.broadcast_object(value, 0), hvd.rank, epoch=hvd.rank(), seen=[])
    state.sync()
    assert state.epoch == 0
    state.seen.append(1)
    state.commit()
    state.seen.append(2)
    state.epoch = 7
    state.restore()
    assert (state.epoch, state.seen) == (0, [1])
    state.seen.append(3)  # not in the copy
    state.restore()
    assert state.seen == [1]


def check_a_torch_state():
    state = new_state(epoch=hvd.rank() + 5, sampler=ElasticSampler(range(12)))
    state.sync()
    weights = everyone(state.model.weight.detach().numpy().tolist())
    assert all(other == weights[0] for other in weights)
    assert state.epoch == 5 and state.optimizer.param_groups[0]["lr"] == 0.1
    train_a_step(state)
    state.sampler.record_batch(0, 2)
    state.commit()
    kept = state.model.weight.detach().clone()
    momentum = state.optimizer.state[state.model.weight]["momentum_buffer"].clone()
    for _ in range(2):
        train_a_step(state)
        state.sampler.record_batch(0, 2)
        state.epoch = 9
        state.restore()
        assert torch.equal(state.model.weight, kept) and state.epoch == 5
        assert torch.equal(state.optimizer.state[state.model.weight]["momentum_buffer"], momentum)
        assert state.sampler.processed_num == 2 * hvd.size()
    other = nn.Linear(3, 1)
    state.model = other
    with torch.no_grad():
        before = other.weight.clone()
        other.weight.zero_()
    state.restore()
    assert state.model is other and torch.equal(other.weight, before)


class Counting(nn.Linear):
    """A module with extra state, which it changes in place."""

    seen = None

    def get_extra_state(self):
        return self.seen

    def set_extra_state(self, seen):
        self.seen = seen


def check_the_extra_state_of_a_module():
    model = nn.Sequential(Counting(2, 2), nn.BatchNorm1d(2))
    model[0].seen = {"n": 100 + hvd.rank(), "scale": torch.ones(hvd.rank() + 1)}
    state = TorchState(model)
    state.sync()
    assert model[0].seen["n"] == 100 and len(model[0].seen["scale"]) == 1
    model[0].seen["n"] += 1
    state.commit()
    for _ in range(2):
        model[0].seen["n"] += 50
        state.restore()
        assert model[0].seen["n"] == 101
    sharded = ShardedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    raises(ValueError, lambda: TorchState(model, sharded), "ShardedOptimizer", "DistributedOptimizer")


class Averages:
    """A value with a state_dict, and a reference to another value."""

    def __init__(self, model):
        self.model, self.seen = model, [hvd.rank()]

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


def check_objects_with_a_state_dict_stay_the_same_objects():
    state = new_state(epoch=0)
    schedules = torch.optim.lr_scheduler
    state = TorchState(
        state.model,
        state.optimizer,
        schedule=schedules.StepLR(state.optimizer, 1, gamma=0.5),
        plateau=schedules.ReduceLROnPlateau(state.optimizer, patience=3),
        averages=Averages(state.model),
        epoch=0,
    )
    before = (state.schedule, state.plateau, state.averages)
    state.sync()
    for _ in range(2):
        train_a_step(state)
        state.schedule.step()
        state.plateau.step(1.0)
    state.averages.seen.append(7)
    state.commit()
    for _ in range(2):
        train_a_step(state)
        state.schedule.step()
        state.plateau.step(2.0)
        state.averages.seen.append(8)
        state.restore()
        assert (state.schedule.last_epoch, state.schedule.get_last_lr()) == (2, [0.025])
        assert state.optimizer.param_groups[0]["lr"] == 0.025
        assert (state.plateau.last_epoch, state.plateau.best, state.plateau.num_bad_epochs) == (2, 1.0, 1)
        assert state.averages.seen == [0, 7]
    assert before == (state.schedule, state.plateau, state.averages)
    assert state.schedule.optimizer is state.plateau.optimizer is state.optimizer
    assert state.averages.model is state.model
    assert TorchState(kind=Averages).kind is Averages
    train_a_step(state)
    state.schedule.step()
    assert state.optimizer.param_groups[0]["lr"] == 0.0125
    other = TorchState(state.model, state.optimizer, **{name: getattr(state, name) for name in ("schedule", "plateau")})
    kept = {**state.saved_copy(), "values": {}}
    kept["kept"].pop("averages")
    other.use_saved_copy(kept)
    other.restore()
    assert state.schedule.last_epoch == 2


class Schedule:
    """A value without state_dict(): ScheduleHandler saves and restores it."""

    def __init__(self, step):
        self.step = step


class ScheduleHandler(StateHandler):
    def save(self):
        self.kept = self.value.step

    def restore(self):
        self.value.step = self.kept

    def sync(self):
        self.value.step = hvd.broadcast_object(self.value.step, 0)


def check_a_handler_of_the_users_own():
    before = list(get_handler_registry())
    set_handler_registry([(Schedule, ScheduleHandler), *before])
    try:
        state = TorchState(nn.Linear(1, 1), schedule=Schedule(hvd.rank() + 3), epoch=0)
        state.sync()
        assert state.schedule.step == 3
        state.schedule.step = 8
        state.commit()
        state.schedule.step = 9
        state.restore()
        assert state.schedule.step == 8
        state.schedule = Schedule(5)
        state.schedule.step = 6
        state.restore()
        assert state.schedule.step == 5
        raises(NotImplementedError, state.saved_copy, "schedule: --state-dir and a new rank 0 need a copy")
    finally:
        set_handler_registry(before)
    assert get_handler_registry() == before


def check_a_commit_without_memory_for_it():
    model, full = nn.Linear(1, 1, bias=False), Full()
    state = TorchState(model, torch.optim.SGD(model.parameters(), lr=0.1), step=0, full=full)
    keeps_the_commit_before(state, full, lambda x: nn.init.constant_(model.weight, x), lambda: model.weight.item())


def check_the_sampler():
    sampler = ElasticSampler(range(11), shuffle=False)
    mine = list(sampler)
    assert len(mine) == len(sampler) == -(-11 // hvd.size())
    assert {index for part in everyone(mine) for index in part} == set(range(11))
    sampler.record_batch(0, 1)
    saved = sampler.state_dict()
    assert list(sampler) == mine  # a running iteration does not change
    sampler.load_state_dict(saved)
    left = everyone(list(sampler))
    assert {index for part in left for index in part} == set(range(hvd.size(), 11))
    shuffled = ElasticSampler(range(40), seed=3)
    first = everyone(list(shuffled))
    assert sorted({index for part in first for index in part}) == list(range(40))
    shuffled.set_epoch(1)
    assert everyone(list(shuffled)) != first
    sampler.record_batch(0, 100)
    sampler.reset()
    assert list(sampler) == [] and len(sampler) == 0


def check_ranks_that_disagree_go_on_from_the_commit():
    state = new_state(batch=0, resets=0)
    calls = []
    state.register_reset_callbacks([lambda: calls.append(hvd.size())])

    @run
    def train(state, steps):
        while state.batch < steps:
            train_a_step(state)
            if state.batch == 3 and not calls:
                disagree()
            state.batch += 1
            if state.batch % 2 == 0:
                state.commit()
        return state.model.weight.detach().clone()

    weight = train(state, 6)
    assert calls == [hvd.size()] and state.batch == 6
    weights = everyone(weight.numpy().tolist())
    assert all(other == weights[0] for other in weights)
    plain = new_state()
    plain.sync()
    for _ in range(6):
        train_a_step(plain)
    assert torch.equal(plain.model.weight, weight)


def check_one_rank_alone_fails_and_all_come_back():
    state = new_state(batch=0)
    calls = []
    state.register_reset_callbacks([lambda: calls.append(1)])

    @run
    def train(state):
        while state.batch < 4:
            if state.batch == 2 and not calls and hvd.rank() == hvd.size() - 1:
                raise hvd.HorovodInternalError("this rank alone has had enough")
            train_a_step(state)
            state.batch += 1
            state.commit()
        return state.batch

    assert train(state) == 4 and calls == [1]
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def check_news_of_hosts_lose_no_work():
    state = new_state(batch=0)
    batches = []

    @run
    def train(state):
        while state.batch < 4:
            state.batch += 1
            batches.append(state.batch)
            if state.batch == 2 and hvd.rank() == 0:
                state.on_hosts_updated(1.0, 2)
            state.check_host_updates()
        return state.batch

    assert train(state) == 4
    assert batches == [1, 2, 3, 4]
    if hvd.rank() == 0:
        state.on_hosts_updated(2.0, 1)
    try:
        state.commit()
    except HostsUpdatedInterrupt as news:
        assert news.skip_sync  # hosts went, none came: no rank needs our state
    else:
        raise AssertionError("no interrupt")


def object_state(kind=ObjectState):
    return kind(lambda value: hvd.broadcast_object(value, 0), hvd.rank, epoch=hvd.rank())


def check_all_ranks_of_a_world_sync_or_none_does():
    state, is_last = object_state(), hvd.rank() == hvd.size() - 1

    def syncs(synchronized):
        has_it, none_need = _holders.give_to_rank_0(state, True, synchronized)
        assert has_it
        return not none_need

    assert syncs(False)  # the job's first world
    assert not syncs(True)
    assert syncs(not is_last)  # one has restored its commit
    assert not syncs(True)
    if hvd.size() > 1 and is_last:
        _holders._world_mark = b"another"  # one was in another world last
    assert syncs(True) == (hvd.size() > 1)
    assert not syncs(True)


def check_a_new_rank_0_gets_the_state():
    state, last = object_state(), hvd.size() - 1
    state.epoch += 10
    state.save()
    has_it, none_need = _holders.give_to_rank_0(state, hvd.rank() == last, False)
    assert has_it == (hvd.rank() in (0, last)) and not none_need
    assert state.epoch == 10 + (last if hvd.rank() == 0 else hvd.rank())


class KeptByItself(ObjectState):
    def save(self):
        super().save()


def check_a_state_that_cannot_be_given_is_named():
    state, last = object_state(KeptByItself), hvd.size() - 1
    if last == 0:
        return

    def give():
        return _holders.give_to_rank_0(state, hvd.rank() == last, False)

    if hvd.rank() == 0:
        raises(RuntimeError, give, f"state of rank {last}, which cannot give it: KeptByItself has a save() of its own")
    else:
        assert give() == (hvd.rank() == last, False)


def check_what_always_fails_ends():
    state = new_state(batch=0)
    tried = []

    @run
    def train(state):
        tried.append(1)
        state.batch += 1
        disagree()

    try:
        train(state)
    except hvd.HorovodInternalError as error:
        assert "failed 3 times" in str(error), error
    else:
        raise AssertionError("no error")
    assert len(tried) == 3 and state.batch == 0
