"""A queue `q` of the topic `t` at a broker in memory: the calls of who takes part."""

import json
from typing import Any

from twin import Answer, Broker

LEASE = "/v1/queue/q/lease"


async def made(**settings: Any) -> Broker:
    broker = Broker(workers=1)
    query = {"type": "queue", "topic": "t", **settings}
    assert (await broker.request("PUT", "/v1/groups/q", query)).status == 200
    return broker


async def lease(broker: Broker, **query: Any) -> list[dict[str, Any]]:
    answer = await broker.request("POST", LEASE, {"topic": "t", **query})
    assert answer.status in (200, 204), answer
    return [json.loads(line) for line in answer.body.splitlines()]


async def tell(broker: Broker, what: str, *ids: str, **more: Any) -> Answer:
    body = json.dumps({"events": ids, **more}).encode()
    return await broker.request("POST", f"/v1/queue/q/{what}", {"topic": "t"}, body=body)


async def direct(broker: Broker, op: str, *ids: str, **more: Any) -> Any:
    """At the leader itself, which does not wait for a next one."""
    runs = [
        (int(i), int(e), int(o), int(o) + 1, int(n)) for i, e, o, n in (x.split(".") for x in ids)
    ]
    service = broker.services[0]
    assert service is not None
    args = {"group": "q", "topic": "t", "runs": [list(each) for each in runs], **more}
    return await service.operation(op, args)
