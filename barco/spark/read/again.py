"""A DataFrame that is asked again is told to be as old as it is.

Spark keeps the plan of the first query of each DataFrame that was loaded, and asks a source that is
written in Python for no other one (4.2, 4.3): events that came since are not in the answer. Kafka's
source, in Scala, plans each query anew. Nothing here can do that, but a task sees that it belongs
to a later query than the first one, and says what is missing.
"""

import sys
import time

from pyspark import TaskContext

from barco.errors import BarcoError
from barco.spark.base.fetch import Brokers
from barco.spark.base.options import ReadOptions
from barco.spark.read.plan import Frozen

ANSWER_SECONDS = 2.0
PLANS_MAX = 1_000
TOPICS_MAX = 20
"""What one task asks about at most."""

_first: dict[str, str] = {}
"""By plan: the query in which this process met it. Spark's workers live for many tasks."""


def query_of_task() -> str | None:
    """Spark's number of the query that the task is of."""
    context = TaskContext.get()
    found = None if context is None else context.getLocalProperty("spark.sql.execution.id")
    return None if found is None else str(found)


def tell(frozen: Frozen, options: ReadOptions) -> None:
    """A line in the log of the executor, if events came since an earlier query of the plan."""
    query = query_of_task()
    if query is None or _first.setdefault(frozen.plan, query) == query:
        return
    while len(_first) > PLANS_MAX:
        del _first[next(iter(_first))]
    try:
        brokers = Brokers(options.access, ANSWER_SECONDS)
        news = {
            topic: sum(int(each["endOffset"]) for each in brokers.slices(topic)) - end
            for topic, end in list(frozen.ends.items())[:TOPICS_MAX]
        }
    except (BarcoError, OSError, ValueError, KeyError):
        return
    told = ", ".join(f"{count} of {topic}" for topic, count in news.items() if count > 0)
    if told:
        at = time.strftime("%H:%M:%S", time.localtime(frozen.at_s))
        print(
            f"barco: this DataFrame was planned at {at}, by its first query, and Spark keeps the "
            f"plan; it lacks the events that came since: {told}. load() it again to read them.",
            file=sys.stderr,
            flush=True,
        )
