"""A commit for which there is not memory enough, as ranks of tests/python/ranks see it."""

from refusals import raises


class Full:
    """A value of which no copy can be made from some moment on."""

    is_full = False

    def __deepcopy__(self, memo):
        if self.is_full:
            raise MemoryError("no room for a copy")
        return self


def keeps_the_commit_before(state, full, fill, told):
    """All of it, no part newer.  The state has a step, and full; fill(x): makes its weights x; told(): what they are."""
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
