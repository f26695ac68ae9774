"""The configuration: one frozen value, read once from a TOML file and the environment.

Every key has a default that suits developer mode, and can be set in three places; the later wins:
the TOML file (`[section]` and `key`), the environment (`BARCO_SECTION_KEY`), the command line.
tuning.md explains each knob. This is the only module that reads the environment.
"""

import difflib
import hashlib
import os
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from barco import limits, settings_file
from barco.addresses import bind_in_cluster, check_address, check_advertise, check_hosts
from barco.errors import ConfigError
from barco.model.options import COMPRESSIONS, ENGINES, LINE_FORMATS, LINE_LEVELS, TLS_KERNEL
from barco.sections import (
    PER_PROCESS,
    PORT_NAMES,
    AccessSection,
    BrokerSection,
    ClientsSection,
    ClusterSection,
    DrainSection,
    LimitsSection,
    LogSection,
    PortsSection,
    StorageSection,
    TlsSection,
    TopicsSection,
    TraceSection,
)


@dataclass(frozen=True, slots=True)
class Config:
    """All settings, checked: a Config that exists can be run."""

    broker: BrokerSection = field(default_factory=BrokerSection)
    cluster: ClusterSection = field(default_factory=ClusterSection)
    ports: PortsSection = field(default_factory=PortsSection)
    clients: ClientsSection = field(default_factory=ClientsSection)
    access: AccessSection = field(default_factory=AccessSection)
    tls: TlsSection = field(default_factory=TlsSection)
    topics: TopicsSection = field(default_factory=TopicsSection)
    limits: LimitsSection = field(default_factory=LimitsSection)
    storage: StorageSection = field(default_factory=StorageSection)
    drain: DrainSection = field(default_factory=DrainSection)
    log: LogSection = field(default_factory=LogSection)
    trace: TraceSection = field(default_factory=TraceSection)

    def __post_init__(self) -> None:
        _check_broker(self)
        check_hosts(self.clients.hosts)
        _check_ports(self)
        _check_storage(self)
        _check_sizes(self)
        _check_access(self)
        _check_trace(self)

    def override(self, section: str, **values: Any) -> "Config":
        """A copy with some keys of one section changed, as the command line does."""
        return replace(self, **{section: replace(getattr(self, section), **values)})


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the configuration, for documentation and for refusing what is not one."""

    section: str
    name: str
    default: Any
    doc: str

    @property
    def dotted(self) -> str:
        """As messages name it: section.key."""
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"BARCO_{self.section}_{self.name}".upper()


def all_keys() -> Iterator[Key]:
    """Every key there is, in the order of the file."""
    for section in fields(Config):
        for item in fields(getattr(Config(), section.name)):
            yield Key(section.name, item.name, item.default, item.metadata["doc"])


def load(path: Path | None, environment: Mapping[str, str] | None = None) -> Config:
    """Read the file, if there is one, and the environment (the process's unless given)."""
    known = {key.dotted: key for key in all_keys()}
    values: dict[str, Any] = {}
    if path is not None:
        values |= _from_file(path, known)
    values |= _from_environment(os.environ if environment is None else environment, known)
    sections: dict[str, dict[str, Any]] = {}
    for dotted, value in values.items():
        sections.setdefault(known[dotted].section, {})[known[dotted].name] = value
    kinds = {item.name: type(getattr(Config(), item.name)) for item in fields(Config)}
    return Config(**{name: kinds[name](**given) for name, given in sections.items()})


def unknown_keys(path: Path | None, environment: Mapping[str, str] | None = None) -> list[str]:
    """A line for each key that is none, of the file and of the environment; `load` refuses the
    first of them. ConfigError: the file is no TOML."""
    environment = os.environ if environment is None else environment
    known = {key.dotted: key for key in all_keys()}
    sections, variables = {key.section for key in known.values()}, _variables(known)
    said = []
    for section, table in (settings_file.document(path) if path is not None else {}).items():
        if section not in sections:
            said.append(f"{path}: unknown section [{section}]{_closest(section, sections)}")
        elif isinstance(table, dict):
            names = [f"{section}.{name}" for name in table]
            said += [
                f"{path}: unknown key {each}{_closest(each, known)}"
                for each in names
                if each not in known
            ]
    prefixes = _prefixes(known)
    strangers = [each for each in environment if each.startswith(prefixes)]
    return said + [
        f"unknown variable {each}{_closest(each, variables)}"
        for each in strangers
        if each not in variables
    ]


def data_dir_default(environment: Mapping[str, str] | None = None) -> Path:
    """Where the log goes when nobody said: systemd's state directory, the user's, or here."""
    environment = os.environ if environment is None else environment
    if state := environment.get("STATE_DIRECTORY"):
        return Path(state.split(":")[0])
    if state := environment.get("XDG_STATE_HOME"):
        return Path(state) / "barco"
    return Path("barco-data")


def endpoint_default(environment: Mapping[str, str] | None = None) -> str:
    """Where commands look for a broker when nobody said: $BARCO_ENDPOINT, else this machine."""
    environment = os.environ if environment is None else environment
    return environment.get("BARCO_ENDPOINT") or f"127.0.0.1:{Config().ports.discovery}"


def ca_default(environment: Mapping[str, str] | None = None) -> str:
    """File of whom commands trust when nobody said: $BARCO_CA; empty: whom the system trusts."""
    return (os.environ if environment is None else environment).get("BARCO_CA", "")


def certificate_default(environment: Mapping[str, str] | None = None) -> str:
    """File of the certificate that commands show when nobody said: $BARCO_CERTIFICATE, or none."""
    return (os.environ if environment is None else environment).get("BARCO_CERTIFICATE", "")


def ordinal(config: Config, host_name: str | None = None) -> int:
    """This broker's ordinal: as configured, or from a host name such as `barco-2`, or 0."""
    if config.broker.ordinal >= 0:
        return config.broker.ordinal
    if not config.cluster.brokers:
        return 0
    name = (host_name or socket.gethostname()).split(".")[0]
    match = re.fullmatch(r".*-(\d{1,6})", name)
    if match is None and len(config.cluster.brokers) > 1:
        raise ConfigError(
            f"broker.ordinal is not set, and host name {name!r} does not end in -N: say which of"
            " cluster.brokers this broker is"
        )
    return int(match[1]) if match else 0


def resolved(config: Config, host_name: str | None = None) -> Config:
    """With the ordinal filled in and, in a cluster, the address that belongs to it."""
    number, brokers = ordinal(config, host_name), config.cluster.brokers
    if len(brokers) <= 1:
        return config.override("broker", ordinal=number)
    if number >= len(brokers):
        raise ConfigError(
            f"broker.ordinal = {number}: cluster.brokers has {len(brokers)} addresses, so ordinals"
            f" go to {len(brokers) - 1}"
        )
    broker = config.broker
    bind = bind_in_cluster(broker.bind, broker.advertise, brokers[number], BrokerSection().bind)
    return config.override("broker", ordinal=number, bind=bind)


def cluster_uuid(config: Config) -> str:
    """The cluster's identity as configured, or as its first three addresses give it.

    Empty for a single broker: its data directory gets one of its own.
    """
    if config.cluster.uuid:
        return config.cluster.uuid
    if len(config.cluster.brokers) <= 1:
        return ""
    # The first three stay when a ring grows.
    name = " ".join(("barco", *config.cluster.brokers[:3]))
    return hashlib.sha256(name.encode()).hexdigest()[:32]


# --- Sources ----------------------------------------------------------------------------------


def _from_file(path: Path, known: Mapping[str, Key]) -> dict[str, Any]:
    values = {}
    sections = {key.section for key in known.values()}
    for section, table in settings_file.document(path).items():
        if section not in sections:
            raise ConfigError(f"{path}: unknown section [{section}]{_closest(section, sections)}")
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: {section} is a section: write [{section}]")
        for name, value in table.items():
            key = known.get(dotted := f"{section}.{name}")
            if key is None:
                raise ConfigError(f"{path}: unknown key {dotted}{_closest(dotted, known)}")
            values[dotted] = _typed(value, key, f"{path}: {dotted}")
    return values


def _from_environment(environment: Mapping[str, str], known: Mapping[str, Key]) -> dict[str, Any]:
    variables, prefixes = _variables(known), _prefixes(known)
    values = {}
    for variable, text in environment.items():
        key = variables.get(variable)
        if key is not None:
            values[key.dotted] = _typed(_parsed(text, key, variable), key, variable)
        elif variable.startswith(prefixes):
            raise ConfigError(f"unknown variable {variable}{_closest(variable, variables)}")
    return values


def _variables(known: Mapping[str, Key]) -> dict[str, Key]:
    return {key.variable: key for key in known.values()}


def _prefixes(known: Mapping[str, Key]) -> tuple[str, ...]:
    return tuple({f"BARCO_{key.section}_".upper() for key in known.values()})


def _closest(name: str, known: Any) -> str:
    """ " (did you mean x?)", the same key elsewhere first; the whole list when nothing is near."""
    moved = [key for key in known if "." in name and key.split(".")[1:] == name.split(".")[1:]]
    near = moved or difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]}?)" if near else f" (there are: {', '.join(sorted(known))})"


def _parsed(text: str, key: Key, source: str) -> Any:
    """A variable's text as the type of its key."""
    if isinstance(key.default, bool):
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if text.strip().lower() not in words:
            raise ConfigError(f"{source} = {text!r} is not true or false")
        return words[text.strip().lower()]
    if isinstance(key.default, int):
        if not re.fullmatch(r"-?[0-9]{1,18}", text.strip()):
            raise ConfigError(f"{source} = {text!r} is not a whole number")
        return int(text)
    if isinstance(key.default, tuple):
        return [item.strip() for item in text.split(",") if item.strip()]
    return text


def _typed(value: Any, key: Key, source: str) -> Any:
    """The value, if it has the type of its key; a bool is not a number here."""
    if isinstance(key.default, tuple):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{source} = {_shown(value)} is not a list of addresses")
        return tuple(value)
    whole = type(value) is not int or value.bit_length() < 64
    if type(value) is not type(key.default) or not whole:
        words = {bool: "true or false", int: "a whole number", str: "text"}
        raise ConfigError(f"{source} = {_shown(value)} is not {words[type(key.default)]}")
    if isinstance(value, str) and re.search(r"[\x00-\x1f\x7f]", value):
        raise ConfigError(f"{source} = {value!r} has control characters")
    return value


def _shown(value: Any) -> str:
    """As a message has it: Python does not print numbers of more than some thousand digits."""
    try:
        return repr(value)
    except ValueError:
        return "a number with thousands of digits"


# --- Checks -----------------------------------------------------------------------------------


def _require(condition: bool, dotted: str, value: object, rule: str) -> None:
    if not condition:
        raise ConfigError(f"{dotted} = {value!r}: {rule}")


def _check_broker(config: Config) -> None:
    broker, cluster = config.broker, config.cluster
    check_address(broker.bind, "broker.bind")
    check_advertise(broker.advertise)
    for address in cluster.brokers:
        check_address(address, "cluster.brokers")
    distinct = len(set(cluster.brokers)) == len(cluster.brokers)
    _require(distinct, "cluster.brokers", list(cluster.brokers), "an address is there twice")
    most = limits.BROKERS_MAX - 1
    fits = -1 <= broker.ordinal <= most
    _require(fits, "broker.ordinal", broker.ordinal, f"must be from 0 to {most}")
    fits = len(cluster.brokers) in (0, 1) or 3 <= len(cluster.brokers) <= limits.BROKERS_MAX
    rule = "a cluster has three brokers at least"
    _require(fits, "cluster.brokers", list(cluster.brokers), rule)
    fits = not cluster.uuid or re.fullmatch("[0-9a-f]{32}", cluster.uuid) is not None
    _require(fits, "cluster.uuid", cluster.uuid, "must be 32 hexadecimal digits, lower case")
    slices = cluster.slices_per_range
    _require(
        1 <= slices <= limits.SLICES_PER_RANGE_MAX and slices.bit_count() == 1,
        "cluster.slices_per_range",
        slices,
        f"must be a power of two up to {limits.SLICES_PER_RANGE_MAX}",
    )
    most = min(limits.WORKERS_MAX, slices)
    _require(
        0 <= broker.workers <= most,
        "broker.workers",
        broker.workers,
        f"must be between 0 (one for each core) and {most}: a worker needs a slice of its own"
        " (cluster.slices_per_range)",
    )
    _require(-20 <= broker.nice <= 19, "broker.nice", broker.nice, "must be from -20 to 19")
    _require(
        broker.engine in ENGINES, "broker.engine", broker.engine, f"must be {', '.join(ENGINES)}"
    )
    kernel = config.tls.kernel
    _require(kernel in TLS_KERNEL, "tls.kernel", kernel, f"must be {', '.join(TLS_KERNEL)}")


def _check_ports(config: Config) -> None:
    used: dict[int, str] = {}
    for name in PORT_NAMES:
        port = getattr(config.ports, name)
        _require(0 <= port <= limits.PORT_MAX, f"ports.{name}", port, "must be from 0 to 65535")
        if port:
            other = used.setdefault(port, name)
            _require(other == name, f"ports.{name}", port, f"is taken by ports.{other}")


def check_cluster_ports(config: Config, processes: int) -> None:
    """In a cluster ports are the same everywhere, and two of them are the first of many.

    processes: how many numbers of processes have ports of their own.
    """
    spans = {name: range(getattr(config.ports, name), getattr(config.ports, name) + 1)
             for name in PORT_NAMES}  # fmt: skip
    for name in PER_PROCESS:
        first = spans[name].start
        spans[name] = range(first, first + processes)
    for name, span in spans.items():
        _require(span.start > 0, f"ports.{name}", 0, "a cluster has no free choice of ports")
        _require(
            span.stop - 1 <= limits.PORT_MAX,
            f"ports.{name}",
            span.start,
            f"the last of {len(span)} ports would be over {limits.PORT_MAX}",
        )
        for other, taken in spans.items():
            if other != name and span.start < taken.stop and taken.start < span.stop:
                raise ConfigError(
                    f"ports.{name} = {span.start}: {len(span)} ports from there on meet"
                    f" ports.{other} ({taken.start} to {taken.stop - 1}); each of"
                    f" {processes} processes needs one"
                )


def _check_storage(config: Config) -> None:
    for key, wanted, known in (
        ("storage.compression", config.storage.compression, COMPRESSIONS),
        ("log.level", config.log.level, LINE_LEVELS),
        ("log.format", config.log.format, LINE_FORMATS),
    ):
        _require(wanted in known, key, wanted, f"must be one of {', '.join(known)}")


def _check_access(config: Config) -> None:
    access, rule = config.access, "needs access.required = true, and tls.client_ca"
    good = not access.certificates or (access.required and bool(config.tls.client_ca))
    _require(good, "access.certificates", access.certificates, rule)


def _check_trace(config: Config) -> None:
    endpoint, one_in = config.trace.endpoint, config.trace.one_in
    host = r"[A-Za-z0-9_.-]+|\[[0-9a-fA-F:]+\]"
    whole = re.fullmatch(rf"https?://({host})(:[0-9]{{1,5}})?(/[!-~]*)?", endpoint)
    port = int((whole[2] or ":1")[1:]) if whole else 0
    good = not endpoint or 0 < port <= limits.PORT_MAX
    _require(good, "trace.endpoint", endpoint, "must be http://HOST:PORT/PATH, or https")
    _require(one_in >= 0, "trace.one_in", one_in, "must be 0 or more")


def _check_sizes(config: Config) -> None:
    for key, low, high in (
        ("limits.event_bytes_max", limits.EVENT_BYTES_MAX_FLOOR, limits.EVENT_BYTES_MAX_CEILING),
        (
            "limits.request_bytes_max",
            limits.REQUEST_BYTES_MAX_FLOOR,
            limits.REQUEST_BYTES_MAX_CEILING,
        ),
        ("limits.memory_bytes", limits.MEMORY_BYTES_FLOOR, limits.MEMORY_BYTES_CEILING),
        ("storage.segment_bytes", limits.SEGMENT_BYTES_FLOOR, limits.SEGMENT_BYTES_CEILING),
        ("tls.handshakes_per_second", 1, limits.TLS_HANDSHAKES_PER_SECOND_MAX),
        ("topics.retention_hours", 0, limits.RETENTION_HOURS_MAX),
        ("topics.retention_bytes", 0, 2**62),
        ("drain.bytes_per_second", limits.DRAIN_BYTES_PER_SECOND_FLOOR, 2**40),
    ):
        section, name = key.split(".")
        value = getattr(getattr(config, section), name)
        _require(low <= value <= high, key, value, f"must be between {low} and {high}")
    _check_relations(config)


def _check_relations(config: Config) -> None:
    sizes, segment = config.limits, config.storage.segment_bytes
    request = sizes.request_bytes_max
    _require(
        sizes.event_bytes_max <= request,
        "limits.request_bytes_max",
        request,
        f"must be at least limits.event_bytes_max ({sizes.event_bytes_max})",
    )
    _require(
        limits.MEMORY_REQUESTS_MIN * request <= sizes.memory_bytes,
        "limits.memory_bytes",
        sizes.memory_bytes,
        f"must be at least twice limits.request_bytes_max ({request})",
    )
    _require(
        limits.SEGMENT_REQUESTS_MIN * request <= segment and segment % limits.PAGE_BYTES == 0,
        "storage.segment_bytes",
        segment,
        f"must be a multiple of 4096 and at least twice limits.request_bytes_max ({request})",
    )
