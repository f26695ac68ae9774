"""A stream's position as that of a consumer group (`groupId`), so that whoever watches the lag of
groups sees the query. Only told: the query itself goes by its checkpoint."""

import json
import sys
import time
from collections.abc import Mapping
from urllib.parse import quote

from barco.client.wire.access import Access
from barco.protocol.cursor import Cursor
from barco.spark.write.commit import Shard

ANSWER_SECONDS = 2.0
PAUSE_SECONDS = 30.0
"""After a failure: no query waits for this at each of its batches."""

Places = Mapping[str, Mapping[int, Cursor]]
"""By topic and partition."""


class GroupPositions:
    """Those of one group."""

    def __init__(self, group: str, access: Access) -> None:
        self._path = f"/v1/groups/{quote(group, safe='')}/positions"
        self._group = group
        self._access = access
        self._told: dict[str, dict[int, Cursor]] = {}
        self._not_before = 0.0

    def tell(self, places: Places) -> None:
        """What has changed; if nobody answers, it is left for another time."""
        if time.monotonic() < self._not_before:
            return
        for topic, cursors in places.items():
            before = self._told.get(topic, {})
            news = {n: each for n, each in cursors.items() if before.get(n) != each}
            if not news:
                continue
            said = self._put(topic, news)
            if said:
                self._not_before = time.monotonic() + PAUSE_SECONDS
                print(
                    f"barco: the positions of group {self._group} were not stored: {said}",
                    file=sys.stderr,
                )
                return
            self._told[topic] = dict(cursors)

    def _put(self, topic: str, cursors: Mapping[int, Cursor]) -> str:
        """What went wrong; nothing if nothing did."""
        slices = {str(partition): str(cursor) for partition, cursor in cursors.items()}
        body = json.dumps({"topic": topic, "to": {"slices": slices}}).encode()
        said = ""
        for endpoint in self._access.endpoints:
            shard = Shard(self._access, endpoint, 0, socket_s=ANSWER_SECONDS)
            try:
                answer = shard.once(self._path, body, "application/json")
                if answer.status == 200:
                    return ""
                said = f"{endpoint} answers {answer.words}"
            except OSError as error:
                said = f"{endpoint}: {error or type(error).__name__}"
            finally:
                shard.close()
        return said
