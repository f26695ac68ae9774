"""An Iceberg table, by pyiceberg: how far it is exported is a property, in the commit of the rows.

Who commits on a table that has changed meanwhile is refused by the catalogue. If the property is
as it was when this one began, it was somebody else's work, a compaction for example, and the same
rows are committed again; else another exporter was faster, and this one ends. Where nobody knows
whether the catalogue has stored a commit (its answer was lost) the property says that too.
"""

import time
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)

from barco.errors import InUseError, OperatorError
from barco.tables import catalogs
from barco.tables.sink import Reached

PROPERTY = "barco.export"
RETRIES = "commit.retry.num-retries"
TRIES = 10
PAUSE_S, PAUSE_MAX_S = 0.2, 5.0
"""Before a catalogue that gave no answer is asked again: some 25 s together."""


class Iceberg:
    """A sink. `name` is namespace.table; `catalogue` a URI as pyiceberg takes it; `token_file` the
    path of what a REST catalogue is shown. What can not be asked there is an OperatorError."""

    def __init__(self, name: str, catalogue: str, warehouse: str, token_file: str = "") -> None:
        if name.count(".") < 1 or not all(name.split(".")):
            raise OperatorError(f"{name!r}: an Iceberg table is named NAMESPACE.TABLE")
        self._name = name
        self._catalogue = catalogue
        self._table: Any = None
        with catalogs.asked(catalogue):
            given = catalogs.properties(catalogue, warehouse, token_file)
            self._catalog = load_catalog("default", **given)
            try:
                self._table = self._catalog.load_table(name)
            except NoSuchTableError:
                pass
        self._progress = self._told()

    def progress(self) -> Reached | None:
        """Those of the last commit."""
        return self._progress

    def kind(self) -> pa.Schema | None:
        """The table's columns."""
        return None if self._table is None else self._table.schema().as_arrow()

    def commit(self, rows: pa.Table, progress: Reached) -> str:
        """A snapshot more."""
        with catalogs.asked(self._catalogue):
            if self._table is None:
                self._make(rows.schema)
            self._commit(rows, progress)
        return f"snapshot {self._table.current_snapshot().snapshot_id}"

    def close(self) -> None:
        """Nothing is held."""

    def _commit(self, rows: pa.Table, progress: Reached) -> None:
        unknown = False
        for left in range(TRIES - 1, -1, -1):
            try:
                self._append(rows, progress)
                break
            except catalogs.UNANSWERED as error:
                unknown = True
                if not self._stored_after(error, progress, left):
                    continue
                break
            except CommitFailedException as error:
                self._table.refresh()
                if unknown and self._told() == progress:
                    break  # One that was not answered was stored after all.
                if self._told() != self._progress:
                    raise InUseError(f"another export writes into {self._name}") from error
        else:
            raise InUseError(f"{self._name} changed {TRIES} times while rows were to be committed")
        self._progress = progress

    def _stored_after(self, error: Exception, progress: Reached, left: int) -> bool:
        """After a commit without an answer: whether it was stored. Raises if nobody says."""
        pause = PAUSE_S * 2 ** (TRIES - 1 - left)
        time.sleep(min(pause, PAUSE_MAX_S))
        try:
            self._table.refresh()
        except catalogs.UNANSWERED:
            if not left:
                raise error from None
            return False
        told = self._told()
        if told not in (progress, self._progress):
            raise InUseError(f"another export writes into {self._name}") from error
        return told == progress

    def _make(self, schema: pa.Schema) -> None:
        """Who may make tables in a namespace need not have the right to make namespaces."""
        try:
            try:
                self._table = self._catalog.create_table(self._name, schema)
            except NoSuchNamespaceError:
                self._make_namespace()
                self._table = self._catalog.create_table(self._name, schema)
        except TableAlreadyExistsError as error:
            raise InUseError(f"another export has just made {self._name}") from error

    def _make_namespace(self) -> None:
        try:
            self._catalog.create_namespace(self._name.rpartition(".")[0])
        except NamespaceAlreadyExistsError:
            pass

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
