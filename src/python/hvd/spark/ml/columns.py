"""Columns of a Spark table as NumPy arrays: numbers, booleans, arrays of one length, and Spark's vectors."""

from __future__ import annotations

import io
import json
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
    """Looks up the columns.  Errors: ValueError that lists the table's columns, or says why a type is not supported."""
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


def quoted(name: str) -> str:
    """A column's name quoted for Spark SQL, with any characters."""
    return "`" + name.replace("`", "``") + "`"


def cell(df: Any, column: Column) -> Any:
    """The column in the form in which it is written: vectors as arrays, decimals as doubles."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions as f

    value, kind = f.col(quoted(column.name)), dict(df.dtypes)[column.name]
    if kind == "vector":
        value = vector_to_array(value)
    elif kind.startswith("decimal"):
        value = value.cast("double")
    return value.alias(column.name)


class Looks:
    """Properties of a table's cells, gathered while it is written: nulls, and the least and greatest length of arrays."""

    def __init__(self, names: list[str], found: dict[str, list[int | None]] | None = None) -> None:
        self.found = found or {name: [0, 0, None, None] for name in names}

    def add(self, batch: Any) -> None:
        """A pyarrow RecordBatch."""
        import pyarrow.compute as pc

        for name, seen in self.found.items():
            column = batch.column(batch.schema.get_field_index(name))
            seen[0] += column.null_count  # type: ignore[operator]
            if _is_list(column.type):
                seen[1] += column.flatten().null_count  # type: ignore[operator]
                ends = pc.min_max(pc.list_value_length(column)).as_py()
                seen[2] = min(x for x in (seen[2], ends["min"]) if x is not None) if ends["min"] is not None else seen[2]
                seen[3] = max(x for x in (seen[3], ends["max"]) if x is not None) if ends["max"] is not None else seen[3]

    def text(self) -> str:
        """The properties as text, for of()."""
        return json.dumps(self.found)

    @classmethod
    def of(cls, text: str) -> Looks:
        """The properties from text()."""
        return cls([], json.loads(text))

    @staticmethod
    def check(parts: list[Looks], names: list[str]) -> None:
        """ValueError for cells that no model can use."""
        for name in names:
            seen = [part.found[name] for part in parts]
            if nulls := sum(int(one[0] or 0) for one in seen):
                raise ValueError(_has_nulls(name, nulls))
            if any(one[1] for one in seen):
                raise ValueError(_has_inner_nulls(name))
            shortest = [one[2] for one in seen if one[2] is not None]
            longest = [one[3] for one in seen if one[3] is not None]
            if shortest and min(shortest) != max(longest):
                raise ValueError(_has_lengths(name, min(shortest), max(longest)))


def _is_list(kind: Any) -> bool:
    return str(kind).startswith(("list", "large_list", "fixed_size_list"))


def _has_nulls(name: str, count: int) -> str:
    return f"column {name!r} has {count} nulls: drop or fill them first (df.na.drop(), df.na.fill())"


def _has_inner_nulls(name: str) -> str:
    return f"column {name!r} has nulls inside its arrays: fill them first"


def _has_lengths(name: str, shortest: int, longest: int) -> str:
    return f"column {name!r} has arrays of different lengths ({shortest} to {longest}): all rows need the same"


def to_numpy(arrow: Any, name: str) -> Any:
    """A pyarrow column as an array [rows] or [rows, length].  ValueError for nulls and for arrays of different lengths."""
    if arrow.null_count:
        raise ValueError(_has_nulls(name, arrow.null_count))
    if str(arrow.type) in ("binary", "large_binary"):
        return _stacked([_decoded(value, name) for value in arrow.to_pylist()], name)
    if not _is_list(arrow.type):
        return numpy.ascontiguousarray(arrow.to_numpy())
    pieces = [_matrix(chunk, name) for chunk in arrow.chunks if len(chunk)]
    if not pieces:
        return numpy.zeros((0, 0))
    if len({piece.shape[1] for piece in pieces}) > 1:
        shapes = [piece.shape[1] for piece in pieces]
        raise ValueError(_has_lengths(name, min(shapes), max(shapes)))
    return numpy.concatenate(pieces)


def _decoded(value: bytes, name: str) -> Any:
    """A cell of Petastorm's NdarrayCodec (.npy) or CompressedNdarrayCodec (.npz with one array)."""
    if not value.startswith((b"\x93NUMPY", b"PK\x03\x04")):
        kind = "a picture" if value.startswith((b"\x89PNG", b"\xff\xd8")) else "bytes"
        raise ValueError(f"column {name!r} holds {kind}, not NumPy arrays: decode it before (Petastorm's NdarrayCodec is read)")
    found = numpy.load(io.BytesIO(value), allow_pickle=False)
    return found[found.files[0]] if hasattr(found, "files") else found


def _stacked(values: list[Any], name: str) -> Any:
    if len({value.shape for value in values}) > 1:
        raise ValueError(f"column {name!r} has arrays of different shapes: all rows need the same")
    return numpy.stack(values) if values else numpy.zeros((0, 0))


def _matrix(chunk: Any, name: str) -> Any:
    flat = chunk.flatten()
    if flat.null_count:
        raise ValueError(_has_inner_nulls(name))
    lengths = set(chunk.value_lengths().to_pylist()) if hasattr(chunk, "value_lengths") else {chunk.type.list_size}
    if len(lengths) != 1:
        raise ValueError(_has_lengths(name, min(lengths), max(lengths)))
    return flat.to_numpy(zero_copy_only=False).reshape(len(chunk), lengths.pop())


def as_tensor_type(values: Any) -> Any:
    """float32 for real numbers, int64 for whole ones and truth values: types that models accept."""
    return values.astype(numpy.int64 if values.dtype.kind in "iub" else numpy.float32, copy=False)
