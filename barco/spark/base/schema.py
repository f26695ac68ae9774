"""The columns that events have in Spark, and what of them a user's schema asks for.

Names and types are those of Spark's Kafka source. Spark prunes no columns of a Python source: the
user's schema is the projection, and only what it names is asked of the brokers.
"""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barco.arrow.decode import Projection

_HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)

TYPES: dict[str, tuple[DataType, ...]] = {
    "key": (BinaryType(), StringType()),
    "value": (BinaryType(), StringType()),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "epoch": (LongType(),),
    "offset": (LongType(),),
    "timestamp": (TimestampType(), LongType()),
    "timestampType": (IntegerType(),),
    "token": (LongType(),),
    "slice": (IntegerType(),),
    "headers": (_HEADERS,),
}
"""By column: the type that it has unless the user says otherwise, and what he may say."""

DEFAULT_COLUMNS = ("key", "value", "topic", "partition", "epoch", "offset", "timestamp")
NULLABLE = ("key", "value", "headers")


class SchemaError(ValueError):
    """The schema asks for what events do not have; the message names it."""


def source_schema(columns: Sequence[str] = (), *, headers: bool = False) -> StructType:
    """The schema of a read without one of the user's: the default columns, or those named."""
    names = tuple(columns) or DEFAULT_COLUMNS + ("headers",) * headers
    unknown = [name for name in names if name not in TYPES]
    if unknown:
        raise SchemaError(f"there is no column {unknown[0]!r}; there are: {', '.join(TYPES)}")
    if len(set(names)) != len(names):
        raise SchemaError(f"a column is named twice: {', '.join(names)}")
    return StructType([StructField(name, TYPES[name][0], name in NULLABLE) for name in names])


def projection(schema: StructType, arrow: pa.Schema) -> Projection:
    """What a schema asks for; SchemaError if events do not have it. `arrow` is the same schema as
    Spark converts it: batches have to equal it, nullability included."""
    for field in schema.fields:
        allowed = TYPES.get(field.name)
        if allowed is None:
            raise SchemaError(
                f"there is no column {field.name!r}; there are: {', '.join(TYPES)} "
                "(names are case-sensitive here)"
            )
        if field.dataType not in allowed:
            may = " or ".join(each.simpleString() for each in allowed)
            raise SchemaError(
                f"column {field.name} is {may}, not {field.dataType.simpleString()}: read it as "
                "that, and cast it"
            )
        if field.name in NULLABLE and not field.nullable:
            raise SchemaError(f"column {field.name} can be null: do not say NOT NULL")
    names = tuple(field.name for field in schema.fields)
    if len(set(names)) != len(names):
        raise SchemaError(f"a column is named twice: {', '.join(names)}")
    return Projection(names, arrow)
