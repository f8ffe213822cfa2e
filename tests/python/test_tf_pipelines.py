"""The time in which a tf.data pipeline makes an element, from the model of its iterator (hvd._runtime.tf_pipelines)."""

from __future__ import annotations

from types import SimpleNamespace as Model
from typing import Any

from hvd._runtime.tf_pipelines import batch_ns


def node(name: str, elements: int, ns: int, *inputs: int, ratio: float = 1, buffered: int = 0, **parameters: float) -> Any:
    """A stage.  ns: in all."""
    values = [Model(name=key, value=value) for key, value in parameters.items()]
    return Model(
        name=name,
        num_elements=elements,
        buffered_elements=buffered,
        processing_time=ns,
        inputs=inputs,
        ratio=ratio,
        parameters=values,
    )


def pipeline(*nodes: Any) -> Any:
    """The first stage, 1, is the root."""
    return Model(output=1, nodes=dict(enumerate(nodes, 1)))


def test_stages_of_one_thread_add_up_and_batches_need_several_elements() -> None:
    model = pipeline(
        node("Root", 10, 0, 2),
        node("Map", 10, 100, 3),
        node("BatchV2", 10, 20, 4, ratio=8),
        node("Map", 80, 800, 5),
        node("Range", 80, 0, ratio=0),
    )
    assert batch_ns(model) == 10 + 2 + 8 * 10


def test_a_prefetched_stage_works_beside_the_others_and_the_slowest_counts() -> None:
    def prefetched(before: int, after: int) -> Any:
        return pipeline(
            node("Root", 10, 0, 2),
            node("Map", 10, after, 3),
            node("Prefetch", 10, 5000, 4, buffer_size=2),
            node("Map", 12, before),
        )

    assert batch_ns(prefetched(before=240, after=100)) == 20
    assert batch_ns(prefetched(before=12, after=100)) == 10


def test_threads_of_a_stage_share_its_work() -> None:
    model = pipeline(node("Root", 10, 0, 2), node("ParallelMapV2", 12, 1200, 3, parallelism=4), node("Range", 12, 120, ratio=0))
    assert batch_ns(model) == 25


def test_the_inputs_of_an_interleave_work_side_by_side() -> None:
    model = pipeline(
        node("Root", 10, 0, 2),
        node("ParallelInterleaveV4", 10, 900, 3, 4, 5, ratio=0, buffered=2, cycle_length=2, parallelism=2),
        node("Range", 2, 0),
        node("Map", 6, 120),
        node("Map", 6, 120),
    )
    assert batch_ns(model) == 10


def test_a_shuffle_that_fills_its_buffer_has_not_made_batches_yet() -> None:
    model = pipeline(node("Root", 10, 0, 2), node("Shuffle", 10, 100, 3, buffer_size=1000), node("Range", 1010, 2020))
    assert batch_ns(model) == 12


def test_an_iterator_that_has_given_nothing_tells_nothing() -> None:
    assert batch_ns(pipeline(node("Root", 0, 0, 2), node("Map", 1, 50))) == 0
    assert batch_ns(Model(output=1, nodes={})) == 0
