"""A topic as a table: Parquet files in a folder, or an Iceberg table, without Spark.

Each commit has rows and the places behind them in one step, so whoever begins again goes on
exactly there. `columns` is pure, `folder` and `iceberg` keep, `job` reads and decides when.
"""
