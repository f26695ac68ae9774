"""Columns of events that were written with schemas of the registry: a 0, the id, and Avro.

Spark's own `from_avro` decodes them (the module spark-avro has to be there). It knows one writer's
schema; here each event is read with that of its id, as the schema of one version has it.
"""

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro

from barco.client.base.names import DEFAULT_ENDPOINT
from barco.client.schemas import LATEST, Schemas
from barco.client.wire.access import Access
from barco.errors import NotFoundError, RequestError

MAGIC = b"\0"
HEAD_BYTES = 5
"""The 0, and four bytes of the id."""


def from_registry(
    column: str | Column,
    subject: str,
    endpoints: str = DEFAULT_ENDPOINT,
    *,
    version: str = LATEST,
    token: str = "",
    ca: str = "",
    certificate: str = "",
) -> Column:
    """What the column's events say, as the schema of a version has it; null where it is null.

    The versions are those of now: a stream that meets a later one ends, and goes on when it is
    started again. An event of no version of the subject ends its task, and the error names its id.
    """
    with Schemas(Access.of(endpoints, token, ca=ca, certificate=certificate)) as schemas:
        known = schemas.versions(subject)
        if not known:
            raise NotFoundError(f"There is no subject {subject}.")
        reader = schemas.version(subject, version)
    for each in (*known, reader):
        if each.get("schemaType", "AVRO") != "AVRO" or each.get("references"):
            raise RequestError(
                f"Version {each['version']} of {subject} is not Avro, or refers to other schemas,"
                " which Spark's from_avro does not know."
            )
    value = f.col(column) if isinstance(column, str) else column
    id = f.conv(f.hex(value.substr(2, HEAD_BYTES - 1)), 16, 10).cast("long")
    body = value.substr(f.lit(HEAD_BYTES + 1), f.length(value))
    magic = value.substr(1, 1) == f.lit(MAGIC)
    found = f.when(value.isNull(), f.lit(None))
    for number, text in {int(each["id"]): str(each["schema"]) for each in known}.items():
        decoded = from_avro(body, text, {"avroSchema": str(reader["schema"])})
        found = found.when(magic & (id == number), decoded)
    return found.otherwise(
        f.raise_error(f.concat(f.lit(f"no version of {subject} has the id "), id.cast("string")))
    )
