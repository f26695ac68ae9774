"""Group offsets that nobody has needed for a long time are forgotten, as Kafka does it.

A group that has members keeps its offsets for ever: they are stored anew now and then, so that
their age is the time without members, and a restart does not forget it.
"""

from barco.limits import POSITION_IDLE_DAYS
from barco.workers.groups.consumption import Consumption
from barco.workers.groups.views import GroupView

IDLE_US = POSITION_IDLE_DAYS * 86_400 * 1_000_000


async def expire(consumption: Consumption, membership: GroupView, now_us: int) -> int:
    """Forget what was last stored so long ago by groups without members; how many there were.

    To be called only when consumers had time to register again after a start. Raises BarcoError
    when the log takes nothing now.
    """
    live = membership.groups()
    for name in consumption.stored_before(now_us - IDLE_US // 2):
        if name[0] in live:
            consumption.store_again(name)
    idle = consumption.stored_before(now_us - IDLE_US)
    return await consumption.drop([name for name in idle if name[0] not in live])
