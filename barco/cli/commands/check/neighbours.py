"""The other brokers of the cluster, as the configuration lists them."""

from collections.abc import Iterator, Mapping
from typing import Any

import barco
from barco.cli.commands.check.finding import FAULT, GOOD, WARNING, Finding
from barco.cli.shared.known import answers, clock_ahead_s
from barco.config import Config
from barco.errors import ConfigError
from barco.protocol import door
from barco.supervisor.secret import read_secret

AREA = "neighbour"
CLOCK_SECONDS = 5.0
"""By so much clocks may differ: what an answer says of its own leaves a second open."""


def look(config: Config) -> Iterator[Finding]:
    """Whether each answers, is of the same cluster, and of the same version."""
    if len(config.cluster.brokers) <= 1:
        return
    try:
        read_secret(config)
        yield Finding("secret", GOOD, config.cluster.secret_file or "none, on loopback only")
    except ConfigError as error:
        yield Finding("secret", FAULT, error.detail)
    for answer in answers(config):
        name = f"broker {answer.ordinal} at {answer.endpoint}"
        yield from _clock(name, clock_ahead_s(config, answer.endpoint))
        if answer.asks_for_token and not config.access.required:
            words = f"{name} asks for a token, and this one would not: set access.required = true"
            yield Finding(AREA, FAULT, words)
        elif answer.told is None:
            words = (
                f"{name} asks for a token, so it was asked nothing: set BARCO_TOKEN_FILE"
                if answer.asks_for_token
                else f"{name} does not answer: start it, or open its ports (from 9250 on) to this"
                f" one ({answer.why})"
            )
            yield Finding(AREA, WARNING, words)
        elif not answer.same_cluster:
            words = f"{name} is of another cluster: correct cluster.uuid or cluster.brokers"
            yield Finding(AREA, FAULT, words)
        elif why := _disagreement(config, answer.told):
            yield Finding(AREA, FAULT, f"{name}: {why}")
        elif (version := str(answer.told.get("version"))) != barco.__version__:
            words = f"{name} has version {version}, this is {barco.__version__}"
            yield Finding(AREA, WARNING, words)
        else:
            yield Finding(AREA, GOOD, f"{name}, version {version}")


def _disagreement(config: Config, told: Mapping[str, Any]) -> str | None:
    """Why a broker with these settings and one whose status says that would refuse each other."""
    between, ours = told.get("mutualTls"), config.cluster
    theirs = {door.TLS: bool(between.get("refusesPlain", True))} if between else {}
    return door.disagreement(theirs, tls=ours.tls_required if ours.ca else None)


def _clock(name: str, ahead_s: float | None) -> Iterator[Finding]:
    if ahead_s is not None and abs(ahead_s) > CLOCK_SECONDS:
        which = "before" if ahead_s > 0 else "behind"
        words = (
            f"{name} has a clock that is {abs(ahead_s):,.0f} s {which} this one: set both (chrony),"
            " or certificates are not believed, and timestamps stand still or jump"
        )
        yield Finding("clock", WARNING, words)
