"""GlobalBatches on a fixed set of ranks: values and errors.  No framework but NumPy."""

import copy
import pickle

import numpy as np
from refusals import raises

import hvd.numpy as hvd
from hvd import elastic
from hvd._elastic import shares as _shares
from hvd.elastic import GlobalBatches

hvd.init()


def kept(call):
    """Runs the call in a training function that keeps the batch."""
    state = elastic.ObjectState(elastic.broadcast_from_rank_0, hvd.rank, batches=GlobalBatches(10, 2))
    return elastic.run(keep_global_batch=True)(call)(state)


def check_each_sample_comes_once():
    for drop_last, times in ((False, 10), (True, 10 // (3 * hvd.size()) * 3 * hvd.size())):
        batches = GlobalBatches(10, 3, seed=4, drop_last=drop_last)
        number = len(batches)
        seen = [[one for some in batch for one in some.tolist()] for batch in batches]
        assert len(seen) == number and len(batches) == 0 and batches.processed == times
        both = [one for part in hvd.allgather_object(seen) for some in part for one in some]
        assert len(both) == len(set(both)) == times
    batches.set_epoch(1)
    assert batches.processed == 0 and len(batches) == number
    assert [some.tolist() for some in next(iter(GlobalBatches(9, 1, shuffle=False)))] == [[hvd.rank()]]


def check_trees_of_any_kind():
    def train(state):
        found = []
        for batch in state.batches:
            parts = [({"b": np.float32(some.mean()), "a": [some[:1] * 1.5, None]}, float(some.mean())) for some in batch]
            tree, number = batch.mean(parts)
            assert list(tree) == ["a", "b"] and tree["a"][1] is None and tree["a"][0].shape == (1,)
            assert isinstance(number, float) and abs(number - tree["b"]) < 1e-6
            found.append(number * batch.samples)
        return sum(found)

    assert abs(kept(train) - sum(range(10))) < 1e-9


def check_halves_are_added_up_in_float32():
    def train(state):
        for batch in state.batches:
            mean = batch.mean([np.full(3, 1 + 2**-10 * hvd.rank(), np.float16) for _ in batch])
            return mean.dtype, mean.tolist()

    dtype, values = kept(train)
    assert dtype == np.float16 and values == [float(np.float16(1 + 2**-10 * (hvd.size() - 1) / 2))] * 3


def check_what_is_refused():
    raises(ValueError, lambda: GlobalBatches(0), "samples is 0")
    raises(ValueError, lambda: GlobalBatches(9, 1.5), "batch_size is 1.5")
    raises(RuntimeError, lambda: list(GlobalBatches(10, 2)), "were not gone through")
    batch = next(iter(GlobalBatches(10, 2)))
    list(batch)
    raises(RuntimeError, lambda: list(batch), "come once")
    raises(ValueError, lambda: batch.mean([]), "one for each is needed")
    raises(TypeError, lambda: batch.mean([np.arange(3)]), "no mean")
    raises(TypeError, lambda: batch.mean(["word"]), "takes numbers")


def check_a_reduction_over_ranks_is_refused_while_the_batch_is_kept():
    kept(lambda state: raises(RuntimeError, lambda: _shares.refuse_reduction("this"), "GlobalBatch.mean()"))
    elastic.run(lambda state: _shares.refuse_reduction("this"))(elastic.ObjectState(elastic.broadcast_from_rank_0, hvd.rank))


def check_copies_know_the_shares():
    def train(state):
        batches, shares = state.batches, _shares.count()
        next(iter(batches))
        batches.processed = 4
        stored = pickle.dumps(batches)
        _shares.keep(shares + 1)
        assert pickle.loads(stored).processed == 4 and _shares.count() == shares
        assert copy.deepcopy(batches).__dict__ == batches.__dict__

    kept(train)
