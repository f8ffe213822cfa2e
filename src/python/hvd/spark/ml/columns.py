"""Columns of a Spark table as NumPy arrays: numbers, booleans, arrays of one length, and Spark's vectors."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy

_INTEGERS = {"tinyint", "smallint", "int", "bigint", "boolean"}
_FLOATS = {"float", "double"}


@dataclass(frozen=True)
class Column:
    """One column, as it is written.  array: cells are arrays of numbers; integral: they are whole numbers."""

    name: str
    array: bool
    integral: bool


def describe(df: Any, names: list[str], role: str) -> list[Column]:
    """Looks the columns up.  Errors: ValueError that lists the table's columns, or says why a type does not serve."""
    types = dict(df.dtypes)
    found = []
    for name in names:
        if name not in types:
            raise ValueError(f"{role} column {name!r} is not in the table; it has {', '.join(types)}")
        kind = types[name]
        inner = kind[6:-1] if kind.startswith("array<") else kind
        inner = "double" if inner.startswith("decimal") or kind == "vector" else inner
        if inner not in _INTEGERS | _FLOATS:
            raise ValueError(f"{role} column {name!r} is of type {kind}: it must hold numbers, arrays of numbers or vectors")
        found.append(Column(name, kind.startswith("array<") or kind == "vector", inner in _INTEGERS))
    return found


def cell(df: Any, column: Column) -> Any:
    """The column as it is written: vectors as arrays, decimals as doubles."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions as f

    value, kind = f.col(f"`{column.name}`"), dict(df.dtypes)[column.name]
    if kind == "vector":
        value = vector_to_array(value)
    elif kind.startswith("decimal"):
        value = value.cast("double")
    return value.alias(column.name)


def to_numpy(arrow: Any, name: str) -> Any:
    """A pyarrow column as an array [rows] or [rows, length].  ValueError for nulls and for arrays of different lengths."""
    if arrow.null_count:
        raise ValueError(f"column {name!r} has {arrow.null_count} nulls: drop or fill them first (df.na.drop(), df.na.fill())")
    values = arrow.to_pylist() if str(arrow.type) in ("binary", "large_binary") else None
    if values is not None:  # as Petastorm writes NumPy arrays
        return numpy.stack([numpy.load(io.BytesIO(value), allow_pickle=False) for value in values])
    if not str(arrow.type).startswith(("list", "large_list", "fixed_size_list")):
        return numpy.ascontiguousarray(arrow.to_numpy())
    pieces = [_matrix(chunk, name) for chunk in arrow.chunks if len(chunk)]
    if not pieces:
        return numpy.zeros((0, 0))
    if len({piece.shape[1] for piece in pieces}) > 1:
        raise ValueError(f"column {name!r} has arrays of different lengths: all rows need the same")
    return numpy.concatenate(pieces)


def _matrix(chunk: Any, name: str) -> Any:
    flat = chunk.flatten()
    if flat.null_count:
        raise ValueError(f"column {name!r} has nulls inside its arrays: fill them first")
    lengths = set(chunk.value_lengths().to_pylist()) if hasattr(chunk, "value_lengths") else {chunk.type.list_size}
    if len(lengths) != 1:
        raise ValueError(f"column {name!r} has arrays of different lengths ({min(lengths)} to {max(lengths)})")
    return flat.to_numpy(zero_copy_only=False).reshape(len(chunk), lengths.pop())


def as_tensor_type(values: Any) -> Any:
    """float32 for real numbers, int64 for whole ones and truth values: what models take."""
    return values.astype(numpy.int64 if values.dtype.kind in "iub" else numpy.float32, copy=False)
