"""Two commits into a REST catalogue, by processes that end at the n-th request of theirs, before
it is sent or after its answer came: `rest_commits.py URI TOKEN_FILE`. Prints a line for each.

It forks before pyarrow and pyiceberg have begun a thread.
"""

import json
import os
import sys
from typing import Any

import pyarrow as pa
import requests

from barco.tables.iceberg import Iceberg
from barco.tables.sink import Reached

ENDED = 9


def main(uri: str, token_file: str) -> None:
    """Until one comes to its end."""
    for after in (False, True):
        for at in range(40):
            name = f"kill{int(after)}.t{at}"
            child = os.fork()
            if child == 0:
                _commit_until(at, after, (name, uri, "", token_file))
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            print(json.dumps({"table": name, "code": code}), flush=True)
            if code == 0:
                break


def _commit_until(left: int, after: bool, given: tuple[str, str, str, str]) -> None:
    """In a child."""
    real = requests.Session.send

    def send(self: Any, request: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0 and not after:
            os._exit(ENDED)
        answer = real(self, request, **options)
        if left < 0:
            os._exit(ENDED)
        return answer

    setattr(requests.Session, "send", send)  # noqa: B010 - mypy takes no other for a method.
    try:
        sink = Iceberg(*given)
        for n in range(2):
            rows = pa.table({"n": [n]})
            sink.commit(rows, Reached("t", "none", {"0.1": f"00000001-{n + 1:016x}"}))
        os._exit(0)
    finally:
        os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
