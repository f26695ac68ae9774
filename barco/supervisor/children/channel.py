"""The channel to a worker: a Unix socket of frames, seen from the supervisor."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

from barco.limits import CHANNEL_BUFFER_BYTES_MAX
from barco.protocol import frame


class Channel:
    """Frames to and from one worker. Sending never waits; the unread is bounded."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, end: socket.socket) -> "Channel":
        """Over the supervisor's end of a socket pair, which it takes over."""
        return cls(*await asyncio.open_connection(sock=end))

    def send(self, message: Mapping[str, Any]) -> bool:
        """Queue one frame; False if the worker has not read for so long that it must be stuck."""
        transport = self._writer.transport
        if transport.is_closing():
            return True  # Its end is known elsewhere; frames to a dead worker are not wanted.
        transport.write(frame.encode(message))
        return transport.get_write_buffer_size() <= CHANNEL_BUFFER_BYTES_MAX

    async def messages(self) -> AsyncIterator[frame.Message]:
        """What the worker sends, until its end closes; ProtocolError if it is not frames."""
        while True:
            try:
                message = await frame.read_async(self._reader)
            except ConnectionError:
                return
            if message is None:
                return
            yield message

    def close(self) -> None:
        """Close; to the worker this is the order to exit."""
        self._writer.transport.abort()
