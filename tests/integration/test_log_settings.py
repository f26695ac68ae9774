"""Level and form of the log, taken up by SIGHUP in the supervisor and in its workers."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import barco
from barco.model.access import hash_of
from barco.supervisor.files.first_users import NAME, add
from barco.supervisor.tied import start_tied

SECONDS = 60.0
TOKEN = "root-0123456789abcdef0123456789abcdef"
"""Of a user: what is changed then is told in the log of the worker that was asked."""


class Logged:
    """A broker with a file of settings, and what it has said since somebody looked."""

    def __init__(self, root: Path) -> None:
        self.config, self.log = root / "barco.toml", root / "log"
        self.read = 0
        data = root / "data"
        data.mkdir(mode=0o700)
        add(data / NAME, "root", hash_of(TOKEN).hex())
        self.say("warning", "auto")
        command = [sys.executable, "-P", "-m", "barco", "serve", "--json", "--ports-from", "0"]
        command += ["--config", str(self.config), "--data-dir", str(data)]
        with self.log.open("ab") as log:
            self.process = start_tied(command, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        port = json.loads(line)["ports"]["discovery"]
        self.admin = barco.Admin(f"127.0.0.1:{port}", token=TOKEN)

    def say(self, level: str, form: str) -> None:
        text = "[broker]\nworkers = 1\n[access]\nrequired = true\n"
        self.config.write_text(text + f'[log]\nlevel = "{level}"\nformat = "{form}"\n')

    def reload(self, level: str, form: str) -> None:
        self.say(level, form)
        self.process.send_signal(signal.SIGHUP)

    def lines(self) -> list[str]:
        """New ones."""
        text = self.log.read_text()
        new, self.read = text[self.read :], len(text)
        return new.splitlines()

    def until(self, word: str) -> str:
        """The new line that has it, and forgets those before."""
        end = time.monotonic() + SECONDS
        found: list[str] = []
        while True:
            found += self.lines()
            for line in found:
                if word in line:
                    return line
            assert time.monotonic() < end, (word, found)
            time.sleep(0.05)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Logged]:
    made = Logged(tmp_path)
    yield made
    made.admin.close()
    made.process.terminate()
    made.process.wait(SECONDS)


def test_level_and_form_by_reload(broker: Logged) -> None:
    broker.admin.create_topic("quiet")
    said = [json.loads(line) for line in broker.lines()]
    assert all(each["level"] in ("warning", "error") for each in said), said
    broker.reload("info", "text")
    line = broker.until("configuration read again")
    assert "log.level is info; log.format is text" in line and not line.startswith("{")
    broker.admin.create_topic("told")
    line = broker.until("administered")
    assert "path=/v1/topics/told" in line and "worker=0" in line and not line.startswith("{")
    broker.reload("info", "json")
    said = json.loads(broker.until("configuration read again"))
    assert said["level"] == "info" and "log.format is json" in said["message"]
    broker.admin.create_topic("json")
    assert json.loads(broker.until("administered"))["path"] == "/v1/topics/json"


def test_what_is_no_level_is_refused_and_nothing_changes(broker: Logged) -> None:
    broker.reload("loud", "auto")
    line = broker.until("reload refused")
    assert "log.level" in line and "debug, info, warning, error" in line
    broker.admin.create_topic("t")
    assert not any("administered" in line for line in broker.lines())
