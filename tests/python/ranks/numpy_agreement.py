"""hvd.agreement.compare with NumPy's arrays; see agreement_checks.py."""

import collections
import os
import time

import numpy as np
from agreement_checks import RANK, SIZE, STEPS, Patience, error_of, fresh_name, names
from refusals import raises

import hvd.numpy as hvd
from hvd import agreement
from hvd._agreement import exchange
from hvd.exceptions import DivergedAgainError, DivergedError

Pair = collections.namedtuple("Pair", "first second")


def tensors():
    numbers = np.random.default_rng(4)
    arrays = {kind: numbers.standard_normal(5_000).astype(kind) for kind in ("float32", "float64", "float16")}
    layers = [numbers.standard_normal((50, 40), np.float32), numbers.standard_normal((9, 7)).T]
    return {"layers": layers, "more": arrays, "pair": Pair(np.arange(3), None), "step": 5, "name": "x"}


def fresh(**arguments):
    """A step of a new comparison, with its tensors."""
    mine, name = tensors(), fresh_name()
    return mine, lambda: hvd.agreement.compare(mine, **{"name": name, **arguments})


def check_equal_ranks_are_not_reported():
    _, step = fresh()
    for _ in range(10 * STEPS):
        step()
    *_, one = agreement._comparisons.values()
    assert one.found == 0 and one._step == 10 * STEPS and 1 < len(one._layout) <= STEPS, (one._step, len(one._layout))
    parts = [part for window in one._layout for part in window]
    assert {part.name for part in parts} == {
        *("layers.0", "layers.1", "pair.first"),
        *("more.float16", "more.float32", "more.float64"),
    }
    assert sum(part.bytes for part in parts) == 5_000 * 14 + 8_000 + 63 * 8 + 24


def check_flips_are_found_where_they_are():
    for number, (name, of) in enumerate(
        {
            "layers.0": lambda t: t["layers"][0],
            "layers.1": lambda t: t["layers"][1],  # with gaps
            "more.float16": lambda t: t["more"]["float16"],
            "pair.first": lambda t: t["pair"].first,
        }.items()
    ):
        mine, step = fresh()
        for _ in range(number + 1):
            step()
        if number % SIZE == RANK:
            of(mine)[-1] += 3
        names(error_of(step), name, number % SIZE)


def check_excluded_tensors_may_differ():
    mine, step = fresh(exclude=["layers.*", "pair.*"])
    mine["layers"][0][0, 0] = RANK
    mine["pair"].first[0] = RANK
    for _ in range(3 * STEPS):
        step()
    mine["more"]["float32"][7] += RANK == 2
    names(error_of(step), "more.float32", 2)


def check_ranks_may_have_other_trees():
    mine, step = fresh()
    if RANK == 1:
        mine["layers"].append(np.ones(40))
    found = error_of(step)
    assert found.startswith("the list of tensors is not on rank 1 ("), found


def check_a_skipped_step_holds_nobody_up():
    with Patience():
        for skipped in (1, 2):
            mine, step = fresh()
            found = []
            begun = time.monotonic()
            for number in range(14):
                hvd.allreduce(np.ones(3), name="gradient")
                mine["layers"][0] += 1
                if RANK == 1 and number in range(4, 4 + skipped):
                    mine["layers"][0][3, 3] += 1
                    continue
                try:
                    step()
                except DivergedError as error:
                    found.append(str(error))
            assert found and time.monotonic() - begun < 20, found
            names(found[0], "layers.0", 1)
            hvd.barrier()


def check_the_comparison_goes_on_after_a_join():
    mine, step = fresh()
    for _ in range(3 + RANK):
        step()
    hvd.join()
    for _ in range(2 * STEPS):
        step()
    mine["layers"][0][1, 1] += RANK == 1
    names(error_of(step), "layers.0", 1)


def check_a_process_set_compares_for_itself():
    pair = hvd.add_process_set([0, 2])
    mine, step = fresh(process_set=pair)
    mine["layers"][0][0, 0] = RANK == 1  # it is not in the set
    for _ in range(3 * STEPS):
        step()
    mine["layers"][0][0, 0] += RANK == 2
    if RANK != 1:
        assert "layers.0, elements 0-2000, differs between ranks 0 (" in error_of(step)
    hvd.barrier()
    hvd.remove_process_set(pair)


def check_several_trees_have_names():
    mine, others = tensors(), tensors()
    names_of = fresh_name(), fresh_name()
    others["layers"][0][0, 0] += RANK == 2

    def step():
        hvd.agreement.compare(mine, name=names_of[0])
        hvd.agreement.compare(others, name=names_of[1])

    names(error_of(step), "layers.0", 2)
    assert [one.found for one in agreement._comparisons.values()][-2:] == [0, 1]


def check_repair():
    os.environ["HVD_AGREEMENT"] = "repair"
    try:
        exchange._repairs = 0
        mine, step = fresh()
        mine["layers"][1][3, 3] += RANK == 1
        mine["more"]["float32"][9] += RANK == 1
        for _ in range(2 * STEPS):
            step()
        for value in (mine["layers"][1], mine["more"]["float32"]):
            told = hvd.allgather_object(value.tolist())
            assert all(one == told[0] for one in told)
        assert exchange._repairs == (RANK == 1)
        mine["layers"][0][3, 3] += RANK == 1
        try:
            for _ in range(2 * STEPS):
                step()
            raise AssertionError("nothing was found")
        except DivergedAgainError as error:
            assert RANK == 1 and "not on rank 1 (" in str(error), error
        except DivergedError as error:
            assert RANK != 1 and "not on rank 1 (" in str(error), error
        exchange._repairs = 0
        mine, step = fresh()
        mine["more"]["float32"][9] += RANK == 1
        mine["more"]["float32"].flags.writeable = False
        names(error_of(step), "more.float32", 1)  # nothing can be overwritten
    finally:
        os.environ["HVD_AGREEMENT"] = "stop"


def check_off():
    os.environ["HVD_AGREEMENT"] = "off"
    try:
        before = len(agreement._comparisons)
        _, step = fresh()
        step()
        assert len(agreement._comparisons) == before
    finally:
        os.environ["HVD_AGREEMENT"] = "stop"


def check_wrong_arguments():
    raises(TypeError, lambda: hvd.agreement.compare({}, process_set=3), "must be a ProcessSet")
