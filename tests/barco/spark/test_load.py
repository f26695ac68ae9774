"""What `barco spark-load` tells, without Spark."""

import pytest

pytest.importorskip("pyspark", reason="no pyspark: pip install 'barco[spark]'")

from barco.spark.load import Job, LoadError, Progress, telling_line


def job_of(
    monkeypatch: pytest.MonkeyPatch,
    rings: list[dict[str, tuple[str, ...]]],
    told: dict[tuple[str, str], int],
) -> Job:
    """One that sees these rings, one after the other and then the last; by shard and who is asked
    what that one says."""
    job, left = Job.__new__(Job), list(rings)

    def ask(shard: str, holder: str, seconds: float) -> Progress | None:
        stored = told.get((shard, holder))
        return None if stored is None else Progress(shard, 0, 0, stored)

    monkeypatch.setattr(job, "_ask", ask)
    monkeypatch.setattr(job, "_shards", lambda _: left.pop(0) if len(left) > 1 else left[0])
    return job


def test_what_is_stored_is_told_by_another_holder_where_the_leader_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ring = {"a": ("a", "b", "c"), "d": ("d", "a", "b"), "f": ("e", "f", "g")}
    told = {("a", "b"): 30, ("a", "c"): 0, ("d", "d"): 5, ("d", "a"): 0, ("f", "f"): 7}
    job = job_of(monkeypatch, [ring], told)
    assert job.result() == {"events": 42, "shards": {"a": 30, "d": 5, "f": 7}}


def test_what_a_ring_has_that_grows_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice's events are told by who leads it: b, which came while a was asked, has some of a's.
    As the ring was when the load began, these were not counted at all."""
    grown = {"a": ("a", "b"), "b": ("b", "a")}
    job = job_of(monkeypatch, [{"a": ("a",)}, grown], {("a", "a"): 30, ("b", "b"): 12})
    assert job.result() == {"events": 42, "shards": {"a": 30, "b": 12}}
    assert [each.stored for each in job.progress()] == [30, 12]
    assert job.before() == {"events": 42, "laterBatch": None}


def test_a_wrong_name_of_a_writer_is_told_in_words() -> None:
    with pytest.raises(LoadError, match="option writerId: 1 to 128"):
        Job({"endpoints": "127.0.0.1:9250"}, "t", "not a name")


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
