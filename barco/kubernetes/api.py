"""The API server, by the `kubernetes` client: one StatefulSet is read, and watched.

The client blocks, so it has a thread of its own, which ends with the process.
"""

import asyncio
import importlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from barco.errors import ConfigError, NotReadyError
from barco.kubernetes.pods import FIRST, Pod, StatefulSet

log = logging.getLogger("barco.kubernetes")

CONNECT_SECONDS = 5.0
READ_SECONDS = 15.0
STRANGE = (ValueError, TypeError, KeyError, AttributeError)
"""An answer that is none of the API: of a proxy, say. The client does not look."""
BACKOFF_SECONDS_MAX = 30.0
WATCH_SECONDS = 240
"""Then it begins anew, so that one whose connection has died unheard is noticed."""


class Api:
    """One StatefulSet, as the API server has it."""

    def __init__(self, pod: Pod) -> None:
        """ConfigError: there is no client, or neither a pod's credentials nor a kubeconfig."""
        try:
            self._client: Any = importlib.import_module("kubernetes.client")
            self._watch: Any = importlib.import_module("kubernetes.watch")
            config: Any = importlib.import_module("kubernetes.config")
            http: Any = importlib.import_module("urllib3.exceptions")
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"--kubernetes needs the client of Kubernetes ({error.name} is not installed): pip"
                " install 'barco[kubernetes]'"
            ) from None
        try:
            try:
                config.load_incluster_config()
            except config.ConfigException:
                config.load_kube_config()  # $KUBECONFIG or ~/.kube/config: to try it out.
        except config.ConfigException as error:
            raise ConfigError(
                f"--kubernetes: this is no pod with a service account (set serviceAccountName, and"
                f" leave automountServiceAccountToken on), and there is no kubeconfig: {error}"
            ) from None
        self._failed = (self._client.ApiException, http.HTTPError, OSError)
        self._pod = pod
        self._apps = self._client.AppsV1Api()

    def read(self) -> StatefulSet:
        """As it is now. NotReadyError: no answer, or a refusal that may pass; ConfigError: none of
        that name, no permission, or one that brokers can not be pods of."""
        pod = self._pod
        timeout = (CONNECT_SECONDS, READ_SECONDS)
        try:
            found = self._apps.read_namespaced_stateful_set(
                pod.owner, pod.namespace, _request_timeout=timeout
            )
        except self._client.ApiException as error:
            what = f"the StatefulSet {pod.namespace}/{pod.owner}: {error.status} {error.reason}"
            if error.status in (401, 403, 404):
                raise ConfigError(f"{what}: see packaging/kubernetes for its Role") from None
            raise NotReadyError(what) from None
        except (*self._failed, *STRANGE) as error:
            raise NotReadyError(
                f"the API server of Kubernetes does not answer: {_line(error)}"
            ) from None
        return _checked(found)

    def follow(self, tell: Callable[[StatefulSet], None]) -> None:
        """Call `tell` with what it is, and at each change, for ever; in a thread."""
        failures = 0
        while True:
            try:
                for each in self._changes():
                    failures = 0
                    tell(each)
            except ConfigError as error:
                log.error("%s", error.detail)
                failures += 1
            except (*self._failed, *STRANGE) as error:
                failures += 1
                if failures == 2:  # A connection that ends is nothing to be told of.
                    log.warning("the API server of Kubernetes is not reached: %s", _line(error))
            time.sleep(min(2**failures / 2, BACKOFF_SECONDS_MAX))

    def _changes(self) -> Any:
        """One watch, to its end. It begins with how things are, so none is missed in between."""
        pod = self._pod
        events = self._watch.Watch().stream(
            self._apps.list_namespaced_stateful_set,
            pod.namespace,
            field_selector=f"metadata.name={pod.owner}",
            timeout_seconds=WATCH_SECONDS,
            _request_timeout=(CONNECT_SECONDS, WATCH_SECONDS + READ_SECONDS),
        )
        for event in events:
            if event["type"] in ("ADDED", "MODIFIED"):
                yield _checked(event["object"])

    async def changes(self) -> "asyncio.Queue[StatefulSet]":
        """A queue of what it is now and becomes."""
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[StatefulSet] = asyncio.Queue()

        def tell(found: StatefulSet) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, found)

        threading.Thread(target=self.follow, args=(tell,), daemon=True, name="kubernetes").start()
        return queue


def _line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def _checked(found: Any) -> StatefulSet:
    spec = found.spec
    start = spec.ordinals.start if spec.ordinals is not None else 0
    if start:
        raise ConfigError(f"spec.ordinals.start = {start}: brokers are counted from 0")
    replicas = 1 if spec.replicas is None else int(spec.replicas)
    if replicas < FIRST and not found.metadata.deletion_timestamp:
        raise ConfigError(f"spec.replicas = {replicas}: a cluster has at least {FIRST} brokers")
    return StatefulSet(replicas=replicas, service=str(spec.service_name or ""))
