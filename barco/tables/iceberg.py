"""An Iceberg table, by pyiceberg: how far it is exported is a property, in the commit of the rows.

Who commits on a table that has changed meanwhile is refused by the catalogue. If the property is
as it was when this one began, it was somebody else's work, a compaction for example, and the same
rows are committed again; else another exporter was faster, and this one ends.
"""

import os
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
)

from barco.errors import InUseError, OperatorError
from barco.tables.sink import Reached

PROPERTY = "barco.export"
RETRIES = "commit.retry.num-retries"
TRIES = 10


class Iceberg:
    """A sink. `name` is namespace.table; `catalogue` a URI as pyiceberg takes it."""

    def __init__(self, name: str, catalogue: str, warehouse: str) -> None:
        if name.count(".") < 1 or not all(name.split(".")):
            raise OperatorError(f"{name!r}: an Iceberg table is named NAMESPACE.TABLE")
        self._name = name
        self._catalog = load_catalog("default", **_properties(catalogue, warehouse))
        try:
            self._table: Any = self._catalog.load_table(name)
        except NoSuchTableError:
            self._table = None
        self._progress = self._told()

    def progress(self) -> Reached | None:
        """Those of the last commit."""
        return self._progress

    def kind(self) -> pa.Schema | None:
        """The table's columns."""
        return None if self._table is None else self._table.schema().as_arrow()

    def commit(self, rows: pa.Table, progress: Reached) -> str:
        """A snapshot more."""
        if self._table is None:
            self._make(rows.schema)
        for _ in range(TRIES):
            try:
                self._append(rows, progress)
            except CommitFailedException as error:
                self._table.refresh()
                if self._told() != self._progress:
                    raise InUseError(f"another export writes into {self._name}") from error
                continue
            self._progress = progress
            return f"snapshot {self._table.current_snapshot().snapshot_id}"
        raise InUseError(f"{self._name} changed {TRIES} times while rows were to be committed")

    def close(self) -> None:
        """Nothing is held."""

    def _make(self, schema: pa.Schema) -> None:
        try:
            self._catalog.create_namespace(self._name.rpartition(".")[0])
        except NamespaceAlreadyExistsError:
            pass
        self._table = self._catalog.create_table(self._name, schema)

    def _append(self, rows: pa.Table, progress: Reached) -> None:
        self._once()
        with self._table.transaction() as change:
            with change.update_schema() as columns:
                columns.union_by_name(rows.schema)
            change.set_properties({PROPERTY: progress.to_text()})
            change.append(rows)

    def _once(self) -> None:
        """pyiceberg commits again by itself what was refused, on top of whatever came between:
        another exporter's rows as well. It reads how often from the table as it was loaded, so
        that is said there and nowhere else."""
        properties = {**self._table.metadata.properties, RETRIES: "0"}
        self._table.metadata = self._table.metadata.model_copy(update={"properties": properties})

    def _told(self) -> Reached | None:
        text = None if self._table is None else self._table.properties.get(PROPERTY)
        return None if text is None else Reached.from_text(text, self._name)


def _properties(catalogue: str, warehouse: str) -> dict[str, str]:
    kind = "rest" if catalogue.startswith(("http://", "https://")) else "sql"
    given = {"type": kind, "uri": catalogue}
    if warehouse:
        given["warehouse"] = (
            warehouse if "://" in warehouse else f"file://{os.path.abspath(warehouse)}"
        )
    return given
