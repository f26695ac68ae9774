"""What `format("barco")` is where barco cannot be imported."""

from pyspark.sql.datasource import DataSource


def broken_source(error: ImportError) -> type[DataSource]:
    """A source that says why there is none."""
    why = (
        f'format("barco") cannot be used here: {error} '
        "(it needs PySpark 4.2 or later and pyarrow: pip install 'barco[spark]')"
    )

    class BrokenSource(DataSource):
        def __init__(self, options: dict[str, str]) -> None:
            raise ImportError(why)

        @classmethod
        def name(cls) -> str:
            return "barco"

    return BrokenSource
