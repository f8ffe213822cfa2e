"""Expected errors for the files of tests/python/ranks."""


def raises(kind, call, *words):
    """The error of the call, which must contain all of these words."""
    try:
        call()
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in {error}"
        return error
    raise AssertionError(f"no {kind}")
