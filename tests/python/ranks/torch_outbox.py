"""DistributedOptimizer submits many gradients at a time, and loses none, even if a backward pass fails."""

import threading

import torch
from refusals import raises
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch_models import RANK, SIZE

import horovod.torch as hvd
from hvd._runtime import requests as _requests
from hvd._runtime import world as _world
from hvd._runtime.submission import before_waiting

IN_C = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None) is not None  # torch 2.10 and later
MEAN = sum(range(1, SIZE + 1)) / SIZE  # of RANK + 1


class Counted:
    """Counts an optimizer's submissions while it is entered."""

    def __init__(self, optimizer):
        self.outbox = optimizer._hvd._outbox

    def __enter__(self):
        self.before = self.outbox.calls, self.outbox.tensors
        return self

    def __exit__(self, *_):
        pass

    @property
    def calls(self):
        return self.outbox.calls - self.before[0]

    @property
    def tensors(self):
        return self.outbox.tensors - self.before[1]


class Fails(torch.autograd.Function):
    """Raises in backward() while `now` is true."""

    now = False

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if Fails.now:
            raise ArithmeticError("planted")
        return gradient


def layers(count, label, lr=1.0, **options):
    torch.manual_seed(3)
    model = nn.ModuleList([nn.Linear(2, 2, bias=False) for _ in range(count)])
    for layer in model:
        nn.init.eye_(layer.weight)
    named = [(f"{label}.{name}", p) for name, p in model.named_parameters()]
    return model, hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=lr), named, **options)


def apply(model, x, fails_before=None):
    for at, layer in enumerate(model):
        if at == fails_before:
            x = Fails.apply(x)
        x = layer(x)
    return x.sum()


def step_once(model, optimizer):
    """Makes one step: afterwards all gradients have names, and the hooks submit them."""
    optimizer.zero_grad()
    apply(model, torch.ones(1, 2)).backward()
    with optimizer.skip_synchronize():
        optimizer.synchronize()
    optimizer.zero_grad()


def waiting(optimizer):
    return optimizer._hvd._outbox.waiting


def check_few_submissions():
    model, optimizer = layers(100, "few")
    step_once(model, optimizer)
    with Counted(optimizer) as seen:
        apply(model, torch.full((1, 2), RANK + 1.0)).backward()
        assert waiting(optimizer) == 0
        assert seen.tensors == 100 and seen.calls <= 5, (seen.tensors, seen.calls)
    optimizer.synchronize()
    mean = sum(range(1, SIZE + 1)) / SIZE
    for layer in model:
        torch.testing.assert_close(layer.weight.grad, torch.full((2, 2), mean))


def check_many_bytes_leave_early():
    model, optimizer = layers(3, "bytes")
    step_once(model, optimizer)
    for entry in optimizer._hvd.entries.values():
        entry.bytes = 30 << 20  # as if
    with Counted(optimizer) as seen:
        apply(model, torch.ones(1, 2)).backward()
        assert seen.calls == 3, seen.calls
    optimizer.synchronize()


def check_hooks_only_note_gradients():
    """The batch is read at its submission."""
    model, optimizer = layers(5, "noted", lr=0.0)
    for _ in range(2):  # the first names the gradients, the second finds their layout
        step_once(model, optimizer)
    entries = optimizer._hvd.entries
    seen = []

    def see(parameter):
        entry = entries[id(parameter)]
        seen.append((entry.waits, entry.gradient is None, waiting(optimizer)))

    for layer in model:
        layer.weight.register_post_accumulate_grad_hook(see)  # runs after the optimizer's
    apply(model, torch.full((1, 2), RANK + 1.0)).backward()
    assert seen == [(IN_C, IN_C, n) for n in range(1, 6)], seen
    for entry in entries.values():
        assert not entry.waits and entry.gradient is entry.parameter.grad and entry.handle
    optimizer.synchronize()
    for layer in model:
        torch.testing.assert_close(layer.weight.grad, torch.full((2, 2), MEAN))


def check_gradients_that_are_cleared_or_change_while_they_wait():
    """A later hook clears or replaces a gradient. A cleared gradient counts as missing; Python submits an unusual gradient."""
    if not IN_C:
        return  # each was read in its hook
    model, optimizer = layers(6, "whileWaiting", lr=0.0)
    for _ in range(2):  # the first names the gradients, the second finds their layout
        step_once(model, optimizer)

    def change(parameter):
        at = next(at for at, layer in enumerate(model) if layer.weight is parameter)
        if at == 0 or (at == 1 and RANK == 0):
            parameter.grad = None
        elif at == 2:
            parameter.grad = parameter.grad.t().contiguous().t()
        elif at == 3:
            parameter.grad = parameter.grad.to_sparse()
        elif at == 4:
            parameter.grad = 2 * parameter.grad

    for layer in model:
        layer.weight.register_post_accumulate_grad_hook(change)
    for _ in range(3):
        optimizer.zero_grad()
        apply(model, torch.full((1, 2), RANK + 1.0)).backward()
        assert waiting(optimizer) == 0
        optimizer.synchronize()
        assert model[0].weight.grad is None
        for at, mean in ((1, MEAN - 1 / SIZE), (2, MEAN), (3, MEAN), (4, 2 * MEAN), (5, MEAN)):
            torch.testing.assert_close(model[at].weight.grad.to_dense(), torch.full((2, 2), mean))


def check_without_a_step():
    """backward() alone submits all gradients, so other ranks do not wait for this rank's step()."""
    model, optimizer = layers(12, "stepless")
    step_once(model, optimizer)
    apply(model, torch.ones(1, 2)).backward()
    assert all(entry.handle for entry in optimizer._hvd.entries.values())
    optimizer.synchronize()


def fail_on_the_last_rank(model, optimizer):
    """Runs a backward pass that fails half-way on the last rank."""
    Fails.now = SIZE - 1 == RANK
    try:
        loss = apply(model, torch.ones(1, 2), fails_before=6)
        if Fails.now:
            raises(ArithmeticError, loss.backward)
        else:
            loss.backward()
    finally:
        failed, Fails.now = Fails.now, False
    assert waiting(optimizer) == (6 if failed else 0)


def check_a_backward_pass_that_fails():
    """The next step reduces the gradients that the failed pass has computed. Missing gradients count as zero."""
    model, optimizer = layers(12, "failing", lr=0.0)
    step_once(model, optimizer)
    for _ in range(2):
        fail_on_the_last_rank(model, optimizer)
        optimizer.step()
        assert waiting(optimizer) == 0
        for at, layer in enumerate(model):
            expected = 1.0 if at >= 6 else (SIZE - 1) / SIZE
            torch.testing.assert_close(layer.weight.grad, torch.full((2, 2), expected))
        optimizer.zero_grad()


def check_a_wait_hands_over():
    """Each kind of wait submits the gradients of a failed pass."""
    model, optimizer = layers(12, "waits", lr=0.0)
    step_once(model, optimizer)

    def join():
        """Calls hvd.join() without submitting its request: only the hand-over before it is tested."""
        plain, _requests.join = _requests.join, lambda process_set: 0
        after, _world.when_joined = _world.when_joined, []
        try:
            hvd.join()
        finally:
            _requests.join, _world.when_joined = plain, after

    for wait in (hvd.barrier, lambda: hvd.allreduce(torch.ones(1), name="waits"), join):
        fail_on_the_last_rank(model, optimizer)
        wait()
        assert waiting(optimizer) == 0
        optimizer.step()
        optimizer.zero_grad()


def check_another_pass_hands_over():
    """The end of the next backward pass also submits the gradients of a failed one, and adds to them."""
    model, optimizer = layers(12, "again", lr=0.0)
    step_once(model, optimizer)
    fail_on_the_last_rank(model, optimizer)
    apply(model, torch.ones(1, 2)).backward()
    assert waiting(optimizer) == 0
    assert not before_waiting
    optimizer.synchronize()
    for at, layer in enumerate(model):
        expected = 2.0 if at >= 6 else (2.0 * (SIZE - 1) + 1) / SIZE
        torch.testing.assert_close(layer.weight.grad, torch.full((2, 2), expected))


def check_orders_that_differ():
    """Each rank's hooks run in a different order, and some wait for other ranks."""
    torch.manual_seed(5)
    model = nn.ModuleList([nn.Linear(2, 1, bias=False) for _ in range(30)])
    named = [(f"orders.{name}", p) for name, p in model.named_parameters()]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), named)
    seen = []
    for at in (3, 17, 29):
        weight = model[at].weight
        weight.register_hook(
            lambda gradient, at=at: seen.append(hvd.allreduce(torch.ones(1), op=hvd.Sum, name=f"in hook {at}"))
        )
    for step in range(3):
        optimizer.zero_grad()
        x = torch.full((1, 2), RANK + step + 1.0)
        for at in range(30):
            # 3, 17 and 29 keep their order on all ranks, because hooks wait there.
            x = Keep.apply(x, model[at if at in (3, 17, 29) else _place(at)].weight)
        x.sum().backward()
        optimizer.synchronize()
        mean = sum(r + step + 1.0 for r in range(SIZE)) / SIZE
        for layer in model:
            torch.testing.assert_close(layer.weight.grad, torch.full((1, 2), mean))
    assert len(seen) == 9 and all(float(one) == SIZE for one in seen)


def _place(at):
    others = [i for i in range(30) if i not in (3, 17, 29)]
    return others[(others.index(at) + 7 * RANK) % len(others)]


class Keep(torch.autograd.Function):
    """x; the weight's gradient is x."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x)
        return x + 0 * weight.sum()

    @staticmethod
    def backward(ctx, gradient):
        return gradient, ctx.saved_tensors[0].detach()


def check_backward_in_backward():
    """Reentrant checkpoints: separate backward passes, of parameters that occur again later."""
    model, optimizer = layers(4, "reentrant", lr=0.0)
    step_once(model, optimizer)
    for _ in range(2):
        x = torch.ones(1, 2, requires_grad=True)
        for _ in range(2):
            x = checkpoint(lambda x: model[1](model[0](x)), x, use_reentrant=True)
        apply(model[2:], x).backward()
        optimizer.step()
        for at, layer in enumerate(model):
            torch.testing.assert_close(layer.weight.grad, torch.full((2, 2), 2.0 if at < 2 else 1.0))
        optimizer.zero_grad()


def check_outside_of_backward():
    """A hook that other code calls holds nothing back."""
    model, optimizer = layers(2, "outside", lr=0.0)
    step_once(model, optimizer)
    for in_python, layer in enumerate(model):
        layer.weight.grad = torch.ones(2, 2)
        entry = optimizer._hvd.entries[id(layer.weight)]
        optimizer._hvd._ready(entry) if in_python else entry.make_hooks()[1](layer.weight)
        assert entry.handle and waiting(optimizer) == 0
    optimizer.step()


def check_a_refused_submission():
    """An operation that the runtime has refused is submitted again before the step."""
    model, optimizer = layers(12, "refused", lr=0.0)
    step_once(model, optimizer)
    outbox = optimizer._hvd._outbox

    def refuse():
        del outbox.current_operation
        raise ConnectionError("planted")

    outbox.current_operation = refuse  # asked for it, a submission fails
    raises(ConnectionError, apply(model, torch.full((1, 2), RANK + 1.0)).backward)
    optimizer.synchronize()
    assert waiting(optimizer) == 0
    for at, layer in enumerate(model):
        if at < 4:  # the pass ended with the error, in the same place on all ranks
            assert layer.weight.grad is None
        else:
            torch.testing.assert_close(layer.weight.grad, torch.full((2, 2), sum(range(1, SIZE + 1)) / SIZE))


def check_a_refused_group():
    model, optimizer = layers(12, "refusedgroup", lr=0.0, groups=3)
    step_once(model, optimizer)
    outbox = optimizer._hvd._outbox
    operation, asked = outbox.current_operation, []

    def refuse():
        asked.append(1)
        if len(asked) == 2:  # of the first group's four
            raise ConnectionError("planted")
        return operation()

    outbox.current_operation = refuse
    raises(ConnectionError, apply(model, torch.full((1, 2), RANK + 1.0)).backward)
    assert all(entry.gradient is None for entry in optimizer._hvd._ordered)
    for layer in model:
        layer.weight.grad = torch.full((2, 2), RANK + 1.0)
    optimizer.synchronize()
    for layer in model:
        torch.testing.assert_close(layer.weight.grad, torch.full((2, 2), sum(range(1, SIZE + 1)) / SIZE))


def check_compressed_and_passes():
    for options in ({"compression": hvd.Compression.fp16}, {"backward_passes_per_step": 2}, {"groups": 3}):
        model, optimizer = layers(20, "options" + next(iter(options)), lr=0.0, **options)
        for _ in range(3):
            optimizer.zero_grad()
            passes = options.get("backward_passes_per_step", 1)
            for _ in range(passes):
                apply(model, torch.full((1, 2), RANK + 1.0)).backward()
            optimizer.step()
            mean = passes * sum(range(1, SIZE + 1)) / SIZE
            for layer in model:
                torch.testing.assert_close(layer.weight.grad, torch.full((2, 2), mean))


def check_two_threads():
    """Two models, each in a thread of its own, while a third thread waits for other ranks."""
    pairs = [layers(30, f"thread{i}", lr=0.0) for i in range(2)]
    for pair in pairs:
        step_once(*pair)
    errors = []

    def trains(model):
        try:
            apply(model, torch.full((1, 2), RANK + 1.0)).backward()
        except BaseException as error:
            errors.append(error)

    for _ in range(20):
        threads = [threading.Thread(target=trains, args=(model,)) for model, _ in pairs]
        for thread in threads:
            thread.start()
        hvd.barrier()
        for thread in threads:
            thread.join()
        assert not errors, errors
        for model, optimizer in pairs:
            optimizer.step()
            for layer in model:
                torch.testing.assert_close(layer.weight.grad, torch.full((2, 2), sum(range(1, SIZE + 1)) / SIZE))
            optimizer.zero_grad()
