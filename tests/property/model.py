"""Reference results of the operations in plain NumPy, without communication: each function takes all ranks' inputs.

Exact for integers and bool.  For floats the sum is formed in float64, with a bound for the error of a right answer. The bound
follows from the roundings that the contract allows: floats of 16 and 8 bits are added in f32 and rounded once, and with
several nodes once more for every node's part.
"""

from __future__ import annotations

import numpy as np

AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT = range(6)
BF16 = "bfloat16"  # NumPy has none: its arrays are uint16 here
COMPLEX = ("complex64", "complex128")
E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"  # NumPy has neither: their arrays are uint8
UNIT = {"float16": 2.0**-11, BF16: 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53, E4M3: 2.0**-4, E5M2: 2.0**-3}
TINY = {"float16": 2.0**-24, BF16: 2.0**-133, "float32": 2.0**-149, "float64": 2.0**-1074, E4M3: 2.0**-9, E5M2: 2.0**-16}
UNIT |= {"complex64": UNIT["float32"], "complex128": UNIT["float64"]}
TINY |= {"complex64": TINY["float32"], "complex128": TINY["float64"]}


def _eights(fraction: int, bias: int, infinity: bool) -> np.ndarray:
    """The values of the 256 codes of an 8-bit float."""
    codes = np.arange(128)
    exponent, rest = codes >> fraction, codes & ((1 << fraction) - 1)
    whole = np.where(exponent > 0, rest + (1 << fraction), rest)
    half = whole * 2.0 ** (np.maximum(exponent, 1) - bias - fraction)
    if infinity:
        half[0x7C:] = [np.inf, np.nan, np.nan, np.nan]
    half[0x7F] = np.nan
    return np.concatenate([half, -half])


EIGHTS = {E4M3: _eights(3, 7, False), E5M2: _eights(2, 15, True)}


def to_eight(values: np.ndarray, dtype: str) -> np.ndarray:
    """The nearest 8-bit floats (ties to even), as uint8; too large values become infinity, or NaN in a type without it."""
    numbers = EIGHTS[dtype][:128]
    last = int(np.flatnonzero(np.isfinite(numbers))[-1])
    numbers = np.append(numbers[: last + 1], 2 * numbers[last] - numbers[last - 1])
    size = np.abs(np.asarray(values, np.float64))
    above = np.minimum(np.searchsorted(numbers, size), last + 1)
    below = np.maximum(above - 1, 0)
    up, down = numbers[above] - size, size - numbers[below]
    code = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
    code = np.where(size >= numbers[-1], last + 1, code)
    code = np.where(np.isnan(size), 0x7F, code) + 128 * np.signbit(values)
    return np.asarray(code).astype(np.uint8).reshape(np.shape(values))


def from_bf16(bits: np.ndarray) -> np.ndarray:
    """uint16 with bfloat16's bits -> float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bf16(values: np.ndarray) -> np.ndarray:
    """float32 -> the nearest bfloat16 (ties to even), as uint16."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded).reshape(np.shape(values))


def is_float(dtype: str) -> bool:
    return dtype in UNIT


def storage(dtype: str) -> str:
    """The NumPy dtype that stores it."""
    return "uint16" if dtype == BF16 else "uint8" if dtype in EIGHTS else dtype


def wide(array: np.ndarray, dtype: str) -> np.ndarray:
    """The values as float64 or complex128."""
    if dtype in EIGHTS:
        return np.asarray(EIGHTS[dtype][array])
    return (from_bf16(array) if dtype == BF16 else array).astype(np.complex128 if dtype in COMPLEX else np.float64)


def reduce(inputs: list[np.ndarray], dtype: str, op: int, before: float, after: float, nodes: int):
    """(result, bound) of an allreduce; the bound is None where the result must be exact.

    inputs: the members' tensors in rank order.  A float result is float64, others have the dtype itself.
    """
    if dtype == "bool":
        return _truth(inputs, op), None
    if not is_float(dtype):
        return _integers(inputs, dtype, op, before, after), None
    with np.errstate(all="ignore"):
        return _floats(inputs, dtype, op, before, after, nodes)


def _truth(inputs, op):
    stack = np.stack(inputs)
    return stack.any(0) if op in (SUM, MAX) else stack.all(0)  # the average truncates: 1 only if all are


def _truncated(values, factor):
    return values if factor == 1 else np.trunc(values.astype(np.float64) * factor).astype(np.int64)


def _integers(inputs, dtype, op, before, after):
    parts = [_truncated(array.astype(np.int64), before) for array in inputs]
    with np.errstate(over="ignore"):
        total = parts[0]
        for part in parts[1:]:
            total = {MIN: np.minimum, MAX: np.maximum, PRODUCT: np.multiply}.get(op, np.add)(total, part)
        count = len(inputs) if op == AVERAGE else 1
        if after != 1:
            total = _truncated(total, after / count)
        elif count > 1:
            total = np.sign(total) * (np.abs(total) // count)  # towards zero
        return total.astype(dtype)


def _floats(inputs, dtype, op, before, after, nodes):
    stack = np.stack([wide(array, dtype) for array in inputs]) * before
    count = len(inputs) if op == AVERAGE else 1
    scale = after / count
    if op in (MIN, MAX):
        result = (stack.min(0) if op == MIN else stack.max(0)) * scale
        size = np.abs(stack).max(0) * abs(scale)
    elif op == PRODUCT:
        result = stack.prod(0) * scale
        size = np.abs(result)
    else:
        result = stack.sum(0) * scale
        size = np.abs(stack).sum(0) * abs(scale)
    inner = UNIT["float64" if dtype in ("float64", "complex128") else "float32"]
    roundings = (2 * len(inputs) + 4) * (2 if dtype in COMPLEX else 1)
    parts = (len(inputs) if op == PRODUCT else 2) if nodes > 1 else 0  # a node's part is rounded to the dtype
    bound = size * (inner * roundings + UNIT[dtype] * (1.0 + parts)) + TINY[dtype] * (1 + nodes * max(abs(after), 1.0))
    return result, bound


def rows_of(rows: int, count: int, place: int) -> slice:
    """The rows of a reducescatter's result for a member: the first (rows mod count) members get one more."""
    each, more = divmod(rows, count)
    begin = place * each + min(place, more)
    return slice(begin, begin + each + (place < more))


def mismatch(got: np.ndarray, want: np.ndarray, bound, dtype: str) -> str | None:
    """Returns None if `got` is right, else one line about the worst element."""
    if got.shape != want.shape:
        return f"shape {got.shape} instead of {want.shape}"
    if got.dtype != np.dtype(storage(dtype)):
        return f"dtype {got.dtype} instead of {dtype}"
    if got.size == 0:
        return None
    if bound is None:
        bad = got != want if got.dtype.kind != "f" else ~((got == want) | ((got != got) & (want != want)))
        shown = got
    else:
        shown = wide(got, dtype)
        with np.errstate(all="ignore"):
            limit = {"float16": 65504.0, BF16: 3.3895e38, "float32": 3.4028e38, E4M3: 448.0, E5M2: 57344.0}.get(dtype, np.inf)
            good = (np.abs(shown - want) <= bound) | (shown == want) | (np.isnan(shown) & np.isnan(want))
            # Beyond the largest number there is infinity; at the edge both are right.
            beyond = np.isnan(shown) if dtype == E4M3 else np.isinf(shown) & (np.sign(shown) == np.sign(want))
            good |= beyond & (np.abs(want) + bound >= limit)
        bad = ~good
    wrong = np.flatnonzero(bad)
    if wrong.size == 0:
        return None
    at = wrong[0]
    allowed = "" if bound is None else f" (± {np.ravel(bound)[at]:.3g})"
    first = f"[{at}] is {np.ravel(shown)[at]} instead of {np.ravel(want)[at]}{allowed}"
    return f"{wrong.size} of {got.size} elements are wrong: {first}"
