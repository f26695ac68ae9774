"""Numbered events in topic `load` while brokers come and go, and whether all are there in order."""

import threading
from collections import defaultdict

import barco
from barco.errors import BarcoError


class Load(threading.Thread):
    """Writes numbered events of these keys, and notes what was acknowledged."""

    def __init__(self, endpoints, keys, patience_s):
        super().__init__(daemon=True)
        self.endpoints, self.keys, self.patience_s = endpoints, keys, patience_s
        self.acknowledged = defaultdict(list)
        self.failures = []
        self.ended = threading.Event()

    def run(self):
        with barco.Producer(self.endpoints, delivery_timeout_s=self.patience_s) as producer:
            number = 0
            while not self.ended.is_set():
                futures = [(key, number, self._send(producer, key, number)) for key in self.keys]
                for key, sent, future in futures:
                    try:
                        future.result(self.patience_s)
                        self.acknowledged[key].append(sent)
                    except (BarcoError, TimeoutError) as error:
                        self.failures.append((key, sent, error))
                number += 1

    def _send(self, producer, key, number):
        return producer.send("load", b"%d" % number, key=key.encode())

    @property
    def rounds(self):
        return min((len(each) for each in list(self.acknowledged.values())), default=0)


def check_nothing_lost(load, endpoints):
    found = defaultdict(list)
    for event in barco.read("load", endpoints):
        found[event.key.decode()].append(int(event.value))
    assert not load.failures
    for key, numbers in load.acknowledged.items():
        assert found[key] == numbers, key
