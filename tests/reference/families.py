"""Processes of a broker, as /proc tells them."""

from pathlib import Path

from barco.supervisor.children.forks import COMM


def workers_of(supervisor: int) -> list[int]:
    """Process ids of a broker's workers, oldest first; its fork server is none."""
    found = []
    for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() != COMM:
                found.append(int(pid))
        except OSError:
            continue  # It has ended meanwhile.
    return found
