"""Names of calls that torch matches by their order: equal on all ranks, and repeated in every round of a loop."""

import itertools

import pytest

pytest.importorskip("torch")

from hvd.torch._c10d.call_names import CallNames


def texts(names: CallNames, calls: "itertools.chain[str] | list[str]") -> list[bytes]:
    return [names.next((call,)).text for call in calls]


def test_two_ranks_give_the_same_names() -> None:
    calls = ["a", "b", "a", "c"] * 40
    assert texts(CallNames("x"), calls) == texts(CallNames("x"), calls)


def test_ranks_that_disagree_meet_under_one_name() -> None:
    one, other = CallNames("x"), CallNames("x")
    texts(one, ["a", "b"] * 5)
    texts(other, ["a", "b"] * 5)
    assert one.next(("a",)).text == other.next(("d",)).text


def test_a_loop_has_as_many_names_as_calls_can_be_under_way() -> None:
    names = CallNames("x")
    loop = ["a", "b", "c", "b", "d", "d"]
    first = set(texts(names, loop * 100))
    assert set(texts(names, loop * 100)) <= first
    assert len(first) < 100


def test_a_name_comes_again_with_the_same_call() -> None:
    names = CallNames("x")
    loop = ["a", "b", "c", "b", "d", "d"]
    texts(names, loop * 3)
    meant: dict[bytes, str] = {}
    for call in loop * 100:
        assert meant.setdefault(names.next((call,)).text, call) == call


def test_no_name_comes_again_at_once() -> None:
    names = CallNames("x")
    assert len(set(texts(names, ["a"] * 30))) == 30


def test_a_program_without_a_loop_needs_no_more_and_more_memory() -> None:
    names = CallNames("x")
    texts(names, [str(number) for number in range(20000)])
    assert len(names._places) <= 513


def test_restart() -> None:
    one, other = CallNames("x"), CallNames("x")
    texts(one, ["a", "b"])
    texts(other, ["a", "c", "d", "e"])
    one.restart()
    other.restart()
    assert texts(one, ["a"]) == texts(other, ["a"]) == [b"x.1 #1"]
