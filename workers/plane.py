"""The control plane of a worker, put together: shard operations, siblings, HTTP.

The worker feeds it with upcalls of the reactor, views of the supervisor and requests, and needs to
know nothing else about what is inside.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from barco.model.options import WorkerOptions
from barco.workers.http.app import App
from barco.workers.http.messages import Response
from barco.workers.rpc import RpcServer, Siblings, frame_bytes_max
from barco.workers.seams import LogReaderLike, ReactorLike, SupervisorLike
from barco.workers.service import ShardService

_log = logging.getLogger("barco.plane")


def rpc_path(data_dir: str, worker: int) -> str:
    """The Unix socket on which a worker answers its siblings."""
    return str(Path(data_dir) / "run" / f"worker-{worker}.rpc")


class ControlPlane:
    """Everything of a worker that is neither a produce nor storage."""

    def __init__(
        self,
        options: WorkerOptions,
        *,
        reactor: ReactorLike,
        reader: LogReaderLike,
        supervisor: SupervisorLike,
        now_us: Callable[[], int],
    ) -> None:
        self._options = options
        self.service = ShardService(
            options, reactor=reactor, reader=reader, supervisor=supervisor, now_us=now_us
        )
        bytes_max = frame_bytes_max(options.event_bytes_max)
        operation = self.service.operation
        self._server = RpcServer(operation, bytes_max=bytes_max)
        paths = [rpc_path(options.data_dir, worker) for worker in range(options.workers)]
        self.siblings = Siblings(
            worker=options.worker, paths=paths, operation=operation, bytes_max=bytes_max
        )
        self.app = App(self.service, siblings=self.siblings, supervisor=supervisor)

    async def start(self) -> None:
        """Answer siblings and /status, while the shard is still being recovered."""
        path = rpc_path(self._options.data_dir, self._options.worker)
        Path(path).unlink(missing_ok=True)  # A dead predecessor's.
        await self._server.start(path)

    async def open(self, epoch: int, lineage: Callable[[], list[dict[str, Any]]] = list) -> None:
        """The generation is open: serve everything. `lineage`: the shard's generations."""
        self.service.lineage = lineage
        self.service.open(epoch)
        self.app.open()
        taken = await self.service.adopt_topics(self.siblings)
        if taken:
            _log.info("took up %d topic settings from siblings", taken)

    def upcall(self, upcall: Sequence[Any]) -> bool:
        """An upcall of the reactor; false if it is not for the control plane."""
        return self.service.upcall(upcall)

    def view(self, message: Mapping[str, Any]) -> int:
        """A view of the supervisor; returns the version to tell it as seen."""
        self.service.membership.apply(message)
        return self.service.membership.version

    async def handle(
        self,
        method: str,
        path: str,
        query: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
    ) -> Response:
        """A request that is no produce. Cancel the call when the client has gone."""
        return await self.app.handle(method, path, query, headers, body)

    async def close(self) -> None:
        """Stop answering: long polls of siblings end, connections are closed."""
        self.app.close("The worker is stopping.")
        self.service.waiters.wake()
        await self.siblings.close()
        await self._server.close()
