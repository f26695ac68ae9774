"""The registry as Avro's users meet it: confluent-kafka's client and serializers, unchanged, and
fastavro, against a real broker; the command; what is left after a restart."""

import base64
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.timestamp_pb2 import Timestamp
from running import RunningBroker

import barco
from barco.model.access import hash_of
from barco.supervisor.files.first_users import NAME, add

TRIP: dict[str, Any] = {
    "type": "record",
    "name": "Trip",
    "namespace": "n",
    "fields": [{"name": "km", "type": "double"}, {"name": "to", "type": ["null", "string"]}],
}
FEE = {"name": "fee", "type": "int", "default": 7}
LATER = TRIP | {"fields": [*TRIP["fields"], FEE]}
OTHER = TRIP | {"fields": [{"name": "km", "type": "string"}]}
CONTEXT = SerializationContext("trips", MessageField.VALUE)


def address(broker: RunningBroker) -> str:
    return f"http://127.0.0.1:{broker.port('discovery')}/registry"


def client(broker: RunningBroker, **more: Any) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": address(broker)} | more)


def avro(schema: Any) -> Schema:
    return Schema(json.dumps(schema), "AVRO")


def test_avro_through_a_topic(broker: RunningBroker) -> None:
    registry, endpoint = client(broker), f"127.0.0.1:{broker.port('discovery')}"
    trips = [{"km": each / 2, "to": None if each % 3 else "x"} for each in range(100)]
    write = AvroSerializer(registry, json.dumps(TRIP))
    with barco.Producer(endpoint) as producer:
        values = [write(each, CONTEXT) for each in trips]
        assert all(value[:5] == b"\0\0\0\0\1" for value in values)
        producer.send_many("trips", values, [b"k"] * len(values)).result(60)
    read = AvroDeserializer(client(broker))
    events = list(barco.read("trips", endpoint))
    assert [read(event.value, CONTEXT) for event in events] == trips
    # And without that client: the id names the writer's schema, fastavro does the rest.
    told = broker.request("GET", "/registry/schemas/ids/1").json
    for event, trip in zip(events, trips, strict=True):
        body = io.BytesIO(event.value[5:])
        assert fastavro.schemaless_reader(body, json.loads(told["schema"]), LATER) == trip | {
            "fee": 7
        }


def test_every_call_of_the_client(broker: RunningBroker) -> None:
    registry = client(broker)
    subject = "trips-value"
    assert registry.register_schema(subject, avro(TRIP)) == 1
    assert registry.register_schema(subject, avro(TRIP), normalize_schemas=True) == 1
    assert registry.test_compatibility(subject, avro(LATER))
    assert not registry.test_compatibility(subject, avro(OTHER))
    with pytest.raises(SchemaRegistryError) as caught:
        registry.register_schema(subject, avro(OTHER))
    assert (caught.value.http_status_code, caught.value.error_code) == (409, 409)
    assert registry.register_schema(subject, avro(LATER)) == 2
    assert registry.get_subjects() == [subject]
    assert registry.get_versions(subject) == [1, 2]
    assert registry.get_latest_version(subject).schema_id == 2
    assert registry.get_version(subject, 1).schema_id == 1
    assert json.loads(str(registry.get_schema(1).schema_str)) == TRIP
    fresh = client(broker)
    assert fresh.lookup_schema(subject, avro(TRIP)).version == 1
    fields = [{"name": "one", "type": "n.Trip"}]
    named = [SchemaReference("n.Trip", subject, 1)]
    outer = Schema(json.dumps(TRIP | {"name": "Two", "fields": fields}), "AVRO", named)
    assert registry.register_schema("two", outer) == 3
    assert fresh.get_schema(3).references[0].subject == subject
    assert registry.get_compatibility() == "BACKWARD"
    registry.set_compatibility(subject, "FULL")
    assert registry.get_compatibility(subject) == "FULL"
    assert registry.delete_subject("two") == registry.delete_subject("two", permanent=True) == [1]
    registry.delete_version(subject, 2)
    assert client(broker).get_versions(subject) == [1]
    with pytest.raises(SchemaRegistryError) as caught:
        client(broker).get_latest_version("nothing")
    assert (caught.value.http_status_code, caught.value.error_code) == (404, 40401)


def test_json_and_protobuf(broker: RunningBroker) -> None:
    registry = client(broker)
    text = json.dumps({"title": "T", "type": "object", "properties": {"a": {"type": "integer"}}})
    write, read = JSONSerializer(text, registry), JSONDeserializer(text)
    assert read(write({"a": 1}, CONTEXT), CONTEXT) == {"a": 1}
    context = SerializationContext("times", MessageField.VALUE)
    told = ProtobufSerializer(Timestamp, registry)(Timestamp(seconds=7), context)
    decoded = ProtobufDeserializer(Timestamp, {"use.deprecated.format": False})(told, context)
    assert decoded.seconds == 7
    kept = broker.request("GET", "/registry/subjects/times-value/versions/latest").json
    assert kept["schemaType"] == "PROTOBUF" and base64.b64decode(kept["schema"])


def test_a_schema_may_be_large(broker: RunningBroker) -> None:
    """As large as docs/schemas.md says, over HTTP as well."""
    fields = [{"name": f"f{n}", "type": "long", "doc": "d" * 900} for n in range(210)]
    schema = {"type": "record", "name": "R", "fields": fields}
    assert len(json.dumps(schema)) > 190 * 1024
    assert client(broker).register_schema("large-value", avro(schema)) == 1


def test_what_was_answered_is_there_after_a_kill(broker: RunningBroker) -> None:
    registry = client(broker)
    for number in range(20):
        schema = {"type": "fixed", "name": f"F{number}", "size": 1 + number}
        assert registry.register_schema(f"s{number}", avro(schema)) == 1 + number
    registry.delete_subject("s19")
    registry.delete_subject("s19", permanent=True)
    broker.kill()
    broker.restart()
    again = client(broker)
    assert again.get_subjects() == sorted(f"s{number}" for number in range(19))
    assert again.register_schema("t", avro("string")) == 21
    assert (
        again.lookup_schema("s7", avro({"type": "fixed", "name": "F7", "size": 8})).schema_id == 8
    )


def test_the_command(broker: RunningBroker, tmp_path: Path) -> None:
    endpoint = f"127.0.0.1:{broker.port('discovery')}"

    def run(*words: str, given: str = "") -> tuple[int, str, str]:
        command = [sys.executable, "-P", "-m", "barco", "schemas", *words, "--endpoint", endpoint]
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout, done.stderr

    file = tmp_path / "trip.avsc"
    file.write_text(json.dumps(TRIP))
    assert run("add", "trips-value", str(file)) == (0, "", "trips-value version 1, id 1\n")
    assert run("check", "trips-value", "-", given=json.dumps(LATER))[0] == 0
    code, _, said = run("check", "trips-value", "-", given=json.dumps(OTHER))
    assert code == 1 and "/km" in said
    code, _, said = run("add", "trips-value", "-", given=json.dumps(OTHER))
    assert code == 1 and "incompatible" in said and "/km" in said
    used = json.dumps(TRIP | {"name": "Two", "fields": [{"name": "one", "type": "n.Trip"}]})
    assert run("add", "two", "-", "--reference", "n.Trip=trips-value:1", given=used)[0] == 0
    code, told, _ = run("show", "trips-value")
    assert code == 0 and json.loads(told) == TRIP
    code, told, _ = run("list", "--json")
    assert code == 0 and [each["subject"] for each in json.loads(told)] == ["trips-value", "two"]
    assert "trips-value" in run("list")[1] and "nothing" in run("show", "nothing")[2]


def test_a_closed_broker(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir(mode=0o700)
    add(data_dir / NAME, "root", hash_of("barco_root").hex())
    broker = RunningBroker(data_dir, access_required=True)
    broker.start()
    try:
        with barco.Admin(f"127.0.0.1:{broker.port('discovery')}", token="barco_root") as root:
            root.set_user("writes", token="w-token", grants=["produce:trips"])
            root.set_user("reads", token="r-token", grants=["consume:trips"])
        for token in ("w-token", "r-token"):
            broker.knows(f"Bearer {token}")

        def shown(token: str) -> SchemaRegistryClient:
            return client(
                broker,
                **{
                    "bearer.auth.credentials.source": "STATIC_TOKEN",
                    "bearer.auth.token": token,
                    "bearer.auth.logical.cluster": "-",
                    "bearer.auth.identity.pool.id": "-",
                    "max.retries": 0,
                },
            )

        def refused(status: int, call: Any, *args: Any) -> None:
            with pytest.raises(SchemaRegistryError) as caught:
                call(*args)
            assert caught.value.http_status_code == status

        def named(user: str) -> SchemaRegistryClient:
            given = {"basic.auth.user.info": user, "max.retries": 0}
            return client(broker, **given)

        refused(401, client(broker).get_subjects)
        refused(401, named("reads:w-token").get_subjects)
        refused(401, named("reads:r").get_subjects)
        write = AvroSerializer(shown("w-token"), json.dumps(TRIP))
        value = write({"km": 1.0, "to": None}, CONTEXT)
        for reads in (shown("r-token"), named("reads:r-token")):
            assert AvroDeserializer(reads)(value, CONTEXT)["km"] == 1.0
        refused(403, named("reads:r-token").register_schema, "trips-value", avro(LATER))
        refused(403, shown("r-token").register_schema, "trips-value", avro(LATER))
        refused(403, shown("w-token").register_schema, "other-value", avro(TRIP))
        refused(403, shown("w-token").delete_subject, "trips-value")
    finally:
        broker.end()
