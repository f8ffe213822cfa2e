"""What the files of tests/python/ranks expect to be refused."""


def raises(kind, call, *words):
    """The error, in which all of them are."""
    try:
        call()
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in {error}"
        return error
    raise AssertionError(f"no {kind}")
