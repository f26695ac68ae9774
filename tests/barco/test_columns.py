"""Python's lists of an event's columns, held against the core's table: none is left out."""

from barco import _native
from barco.client.wire.codec import Event
from barco.spark.base import schema


def test_sparks_columns_are_those_of_the_table() -> None:
    """Each column that is stored can be asked for in Spark, and is read as it is stored."""
    asked = schema.source_schema(tuple(_native.COLUMNS))
    assert asked.names == list(_native.COLUMNS)


def test_an_event_of_the_client_has_every_column() -> None:
    """What chunk_events() tells of an event is in the client's, under the same name."""
    names = {"timestamp_us" if name == "timestamp" else name for name in _native.EVENT}
    assert names <= set(Event._fields)
    assert set(_native.COLUMNS) | {"offset"} == set(_native.EVENT)
