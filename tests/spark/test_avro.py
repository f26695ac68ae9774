"""Avro with schemas of the registry, by Spark's own module, which comes from Maven."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import barco

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
JARS = "org.apache.spark:spark-avro_2.13:4.2.0"
FIELDS = [{"name": "km", "type": "double"}, {"name": "to", "type": ["null", "string"]}]
FEE = {"name": "fee", "type": "int", "default": 7}
CONTEXT = SerializationContext("trips", MessageField.VALUE)


def trip(*more: Any) -> str:
    return json.dumps({"type": "record", "name": "Trip", "fields": [*FIELDS, *more]})


def read(endpoint: str, path: Path) -> "subprocess.CompletedProcess[str]":
    settings = SETTINGS | {"spark.local.dir": str(path / "local")}
    command = [sys.executable, str(Path(__file__).with_name("avro_read.py")), endpoint, JARS]
    done = subprocess.run(
        [*command, json.dumps(settings)], capture_output=True, text=True, timeout=600, check=False
    )
    if "unresolved dependenc" in done.stdout + done.stderr:
        pytest.skip(f"{JARS} cannot be had from Maven here")
    return done


@pytest.mark.chaos  # Spark's own jars come from Maven: 70 s.
def test_each_event_is_read_with_the_schema_of_its_id(
    start_broker: Callable[..., Any], tmp_path: Path
) -> None:
    endpoint = f"127.0.0.1:{start_broker().port('discovery')}"
    registry = SchemaRegistryClient({"url": f"http://{endpoint}/registry"})
    first, second = (AvroSerializer(registry, trip(*more)) for more in ((), (FEE,)))
    values = [first({"km": each / 2, "to": "x"}, CONTEXT) for each in range(3)]
    values += [second({"km": 9.5, "to": None, "fee": each}, CONTEXT) for each in range(3)]
    assert {value[4] for value in values} == {1, 2}
    with barco.Producer(endpoint) as producer:
        producer.send_many("trips", values).result(60)
        producer.send("trips", None, key=b"gone").result(60)
    done = read(endpoint, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [{"km": each / 2, "to": "x", "fee": 7} for each in range(3)]
    rows += [{"km": 9.5, "to": None, "fee": each} for each in range(3)]
    assert json.loads(done.stdout.splitlines()[-1]) == sorted([*rows, None], key=str)
    with barco.Producer(endpoint) as producer:  # Of no version of the subject.
        producer.send("trips", b"\0\0\0\0\x63" + values[0][5:]).result(60)
    done = read(endpoint, tmp_path)
    assert done.returncode != 0 and "no version of trips-value has the id 99" in done.stderr
