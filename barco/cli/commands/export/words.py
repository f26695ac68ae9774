"""What `barco export --help` says."""

from barco.cli.shared import talk

DESCRIPTION = """\
Write a topic as a table: Parquet files in a directory, or an Iceberg table. Each file, or snapshot,
has the events and how far the topic is exported in one step. So run it again, after it was killed
or an hour later: it goes on exactly there, and no event is missing or there twice. The first run
takes what the topic has from its beginning.

Without --columns a row has key and value as they are, and topic, token, slice, epoch, offset,
timestamp and headers. With --columns auto the fields of JSON objects are columns, by their types
as they are met, and new fields become new columns; those of the event are named with a _ before
(_key, _offset, ...). Or name them: --columns 'tailnum:string,delay:double,tags:string[]'; types
are string, long, double, boolean and timestamp. An event that does not fit, because it is no
JSON object or a field has another type than its column, is not bent: its columns are null, and it
is kept whole in _value. Keys and values that are no UTF-8 are {"base64":"..."}, as in JSON answers.
"""

EPILOG = f"""\
{talk.ENDPOINT_HELP}
Needs:
  pyarrow, and for Iceberg pyiceberg: pip install 'barco[export]'.

Examples:
  barco export flights --to flights.parquet.d --columns auto
  barco export flights --to flights.parquet.d --follow --every 300
  barco export flights --to iceberg:raw.flights --catalog https://catalog:8181 \\
      --warehouse lake --catalog-token-file catalog.token
  barco export flights --to iceberg:raw.flights --catalog sqlite:///lake.db --warehouse lake
  duckdb -c "select count(*) from read_parquet('flights.parquet.d/*.parquet', union_by_name=true)"

Progress goes to stderr; --json prints a line of JSON on stdout: topic, to, events, commits,
keptWhole, notText, gone, seconds. Events that retention took before they were exported are told,
and it goes on behind them.

{talk.EXIT_CODES}"""
