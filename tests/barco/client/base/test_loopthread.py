"""The loop of a synchronous client ends properly, wherever it is closed."""

import asyncio

import pytest

from barco.client.base.errors import ClosedError
from barco.client.base.loopthread import LoopThread


def test_it_is_closed_where_another_loop_runs() -> None:
    """As in the cell of a notebook."""

    async def main() -> None:
        thread = LoopThread("t")
        ended: list[str] = []

        async def waits() -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append("cancelled")

        waiting = thread.start(waits())
        thread.run(asyncio.sleep(0))
        thread.close()
        thread.close()
        assert thread.closed and ended == ["cancelled"] and waiting.done()
        with pytest.raises(ClosedError):
            thread.run(asyncio.sleep(0))

    asyncio.run(main())
