"""What `barco spark-load` tells, without Spark."""

import pytest

pytest.importorskip("pyspark", reason="no pyspark: pip install 'barco[spark]'")

from barco.spark.load import Job, LoadError, Progress, telling_line


def test_what_is_stored_is_told_by_whoever_leads_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers that led shards when the load began have died before its end. One is back."""
    job = Job.__new__(Job)
    job._holders = {"a": ("a", "b", "c"), "d": ("d", "a", "b"), "e": ("e", "f", "g")}
    told = {("a", "b"): 30, ("a", "c"): 0, ("d", "d"): 5, ("d", "a"): 0, ("d", "b"): 0}
    told |= {("e", "e"): 0, ("e", "f"): 7}

    def ask(shard: str, holder: str, seconds: float) -> Progress | None:
        stored = told.get((shard, holder))
        return None if stored is None else Progress(shard, 0, 0, stored)

    monkeypatch.setattr(job, "_ask", ask)
    monkeypatch.setattr(job, "_leaders", lambda: {("e", "f", "g"): "f"})
    assert job.result() == {"events": 42, "shards": {"a": 30, "d": 5, "e": 7}}


def test_a_wrong_name_of_a_writer_is_told_in_words() -> None:
    with pytest.raises(LoadError, match="option writerId: 1 to 128"):
        Job("127.0.0.1:9250", "t", "not a name")


def test_the_line_that_says_what_is_wrong() -> None:
    ours = 'Traceback\n  File "x"\nbarco.spark.write.stage.StageError: too large\n\tat org.apache'
    assert telling_line(ours) == "barco.spark.write.stage.StageError: too large"
    files = (
        "An error occurred while calling o7.parquet.\n: org.apache.spark.SparkException: "
        "[FAILED_READ_FILE] Encountered error while reading file a.csv.\n\tat x\n"
        "Caused by: java.lang.RuntimeException: a.csv is not a Parquet file\n"
    )
    assert "a.csv is not a Parquet file" in telling_line(files)
    assert telling_line("") == "Spark failed, and does not say why"
