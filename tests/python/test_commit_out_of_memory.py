"""A commit for which there is not memory enough leaves the copy of the one before, whole: no part of it is newer."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("hvd.numpy", reason="hvd is not installed here")


class Full:
    """A value of which no copy can be made from some moment on."""

    is_full = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Full:
        if self.is_full:
            raise MemoryError("no room for a copy")
        return self


@pytest.fixture(params=["torch", "tensorflow", "keras"])
def made(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A state with a `step` and a `full`, and its one weight: a function that sets it, or tells of it without a value."""
    full = Full()
    if request.param == "torch":
        torch = pytest.importorskip("torch", reason="no torch here")
        from hvd.torch.elastic import TorchState

        model = torch.nn.Linear(1, 1, bias=False)

        def of_torch(value: float | None = None) -> float:
            if value is not None:
                torch.nn.init.constant_(model.weight, value)
            return model.weight.item()

        return TorchState(model, torch.optim.SGD(model.parameters(), lr=0.1), step=0, full=full), of_torch
    tensorflow = pytest.importorskip("tensorflow", reason="no TensorFlow here")
    if request.param == "tensorflow":
        from hvd.tensorflow.elastic import TensorFlowState

        variable = tensorflow.Variable(0.0)
        state: Any = TensorFlowState([variable], step=0, full=full)
    else:
        keras = pytest.importorskip("keras", reason="no Keras here")
        from hvd.keras.elastic import KerasState

        network = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        network.compile(optimizer="sgd", loss="mse")
        variable = network.weights[0]
        state = KerasState(network, step=0, full=full)

    def of_variable(value: float | None = None) -> float:
        if value is not None:
            variable.assign(tensorflow.fill(variable.shape, value))
        return float(variable.numpy().ravel()[0])

    return state, of_variable


def test_the_copy_is_whole(made: tuple[Any, Any]) -> None:
    state, weight = made
    weight(1.0)
    state.step = 1
    state.save()
    weight(2.0)
    state.step = 2
    state.full.is_full = True
    with pytest.raises(MemoryError):
        state.save()
    state.full.is_full = False
    state.restore()
    assert (weight(), state.step) == (1.0, 1)
