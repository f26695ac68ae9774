"""A request at an application, as a worker makes it."""

import asyncio

from barco.workers.http.app import App
from barco.workers.http.base.messages import Call, Response, Soon


async def answered(app: App, call: Call) -> Response:
    """At once where that can be; else as soon as it is stable, or by a task."""
    found = app.at_once(call)
    if isinstance(found, Soon):
        ended = asyncio.Event()
        found.then(ended.set)
        await ended.wait()
        found = found.response if found.good else None
    return await app.handle(call) if found is None else found
