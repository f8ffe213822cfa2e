"""A commit without enough memory, for ranks of tests/python/ranks."""

from refusals import raises


class Full:
    """A value that cannot be copied from some moment on."""

    is_full = False

    def __deepcopy__(self, memo):
        if self.is_full:
            raise MemoryError("no room for a copy")
        return self


def keeps_the_commit_before(state, full, fill, told):
    """Checks that a commit that runs out of memory leaves the earlier commit whole. `full.is_full`: allocations fail. fill(x)
    sets the state's weights to x; told() returns them."""
    fill(1.0)
    state.step = 1
    state.save()
    fill(2.0)
    state.step = 2
    full.is_full = True
    raises(MemoryError, state.save)
    full.is_full = False
    state.restore()
    assert (told(), state.step) == (1.0, 1)
