"""`barco ring`: pictures, words and previews of topologies as brokers tell them."""

import json
import os
import pty
import re
import select
import signal
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from barco.cli import main
from barco.cli.commands.ring import CLEAR, counted, grown, preview, table_of
from barco.cli.commands.ring.svg import plan_svg, ring_svg
from barco.cli.commands.ring.text import BROKERS_MAX, RANGES_MAX, Pen, plan_text, ring_text
from barco.cluster.ring.cut import Cut
from barco.errors import ProtocolError, RequestError
from barco.model.ring_view import CopyState, runs, troubles, verdict, view_of

from .rings import one_down, topology

PEN = Pen(colour=False)


def test_all_is_well() -> None:
    view = view_of(topology())
    assert not troubles(view) and "every copy is in sync" in verdict(view)
    text = ring_text(view, PEN)
    assert text.splitlines()[2].startswith("✓ all is well")
    assert "0-7     3      0       1 in sync, 2 in sync  2 → 3" in text
    bands = [line for line in text.splitlines() if "leads   8" in line]
    assert [re.sub(r"[^█▒ ]", "", band).split() for band in bands] == [
        ["█" * 19, "▒" * 19, "▒" * 19],
        ["▒" * 19, "█" * 19, "▒" * 19],
        ["▒" * 19, "▒" * 19, "█" * 19],
    ]
    assert "\x1b" not in text and max(map(len, text.splitlines())) <= 100


def test_one_broker_down_is_said_first_and_in_words() -> None:
    view = view_of(one_down())
    assert troubles(view) == [
        "broker 1 (b1.test) is down; slices 0-23 have 2 copies of three",
        "broker 2 leads slices 8-15 in the place of broker 1",
    ]
    text = ring_text(view, PEN)
    assert text.splitlines()[2].startswith("✗ broker 1 (b1.test) is down")
    band = next(line for line in text.splitlines() if line.startswith("  broker 1  b1.test"))
    assert band.endswith("leads   0  DOWN") and band.count("×") == 57
    assert "8-15    4      2       1 down, 0 in sync  2 → 3 → 4" in text
    assert "\x1b[31m" in ring_text(view, Pen(colour=True))


def test_since_when_a_broker_is_down_where_that_is_known() -> None:
    told = one_down()
    told["brokers"][1]["since"] = 1_764_338_600_999_999
    told["brokers"][2]["since"] = 1_764_338_600_999_999  # It came: that is no trouble.
    assert troubles(view_of(told))[0] == (
        "broker 1 (b1.test) is down since 2025-11-28 14:03:20 UTC; slices 0-23 have 2 copies of"
        " three"
    )
    told["brokers"][1]["since"] = None
    assert " since " not in troubles(view_of(told))[0]


def test_two_brokers_down_stop_the_writes_and_that_stands_first() -> None:
    """Broker 0 is all that answers: who led last, and is down, leads nothing."""
    told = one_down()
    told["brokers"][2]["state"] = "down"
    told["routes"][0]["followers"][1] |= {"state": "down", "synced": False}
    told["routes"][1]["followers"] = told["routes"][2]["followers"] = None
    view = view_of(told)
    assert troubles(view) == [
        "nobody leads slices 8-23: what they hold can be read, nothing can be written",
        "of slices 0-7 only the leader's copy is up: nothing can be written",
        "broker 1 (b1.test) is down; slices 0-23 have 1 copy of three",
        "broker 2 (b2.test) is down; slices 0-23 have 1 copy of three",
    ]
    assert [view.led_by(each) for each in range(3)] == [8, 0, 0]
    band = next(line for line in ring_text(view, PEN).splitlines() if "b2.test  ×" in line)
    assert band.endswith("leads   0  DOWN") and band.count("×") == 57


def test_other_troubles_in_words() -> None:
    told = topology()
    told["routes"][0]["leader"] = None
    told["routes"][0]["followers"] = None
    late = told["routes"][1]["followers"][1]
    late.update(state="behind", synced=False, groupsBehind=1200)
    told["routes"][2]["followers"] = None
    assert troubles(view_of(told)) == [
        "nobody leads slices 0-7: what they hold can be read, nothing can be written",
        "broker 0 catches up in slices 8-15 (1,200 groups behind)",
        "how broker 0's copies of slices 16-23 are is not known: their leader did not say",
        "how broker 1's copies of slices 16-23 are is not known: their leader did not say",
    ]
    told = topology()
    told["routes"][1]["handed"] = True
    del told["routes"][2]
    told["brokers"][0]["state"] = "suspect"
    told["brokers"][2]["state"] = "unknown"
    found = troubles(view_of(told))
    assert found[:2] == [
        "slices 8-15 were handed over and are not taken in yet: they wait",
        "nothing was heard of slices 16-23",
    ]
    assert found[2].startswith("broker 0 (b0.test) does not answer")
    assert found[3].startswith("broker 2 (b2.test) was never heard of")


def test_a_single_broker() -> None:
    told = topology(size=1)
    view = view_of(told)
    assert not troubles(view) and "the only copy" in verdict(view)
    text = ring_text(view, PEN)
    assert "1 broker, 8 slices, 1 range," in text and "leads   8" in text
    assert ET.fromstring(ring_svg(view)).tag.endswith("svg")
    with pytest.raises(RequestError, match="a single broker does not grow"):
        preview(told, 3, None)


def test_large_rings_are_cut_to_what_can_be_read() -> None:
    told = topology(size=96, slices=8)
    told["brokers"][95]["state"] = "down"
    for each in told["routes"]:
        for copy in each["followers"]:
            copy["synced"] &= copy["ordinal"] != 95
    lines = ring_text(view_of(told), PEN).splitlines()
    assert len(lines) < BROKERS_MAX + RANGES_MAX + 20
    assert any(line.startswith("  broker 95") and line.endswith("DOWN") for line in lines)
    assert any("47 brokers more" in line for line in lines)
    for each in told["brokers"][20:]:
        each["state"] = "down"
    worst = ring_text(view_of(told), PEN).splitlines()[2:15]
    assert worst[0].startswith("✗ nobody leads slices") and worst[2].startswith("✗ broker 20")
    assert "more: barco ring --json" in worst[11]
    assert worst[12] == ""
    for each in told["brokers"][20:95]:
        each["state"] = "alive"
    svg = ring_svg(view_of(told))
    assert "and 82 ranges more" in svg and "broker 95 (b95.test) is down" in svg


def test_a_name_controls_no_terminal_and_breaks_no_picture() -> None:
    told = topology()
    told["brokers"][0]["name"] = "\x1b[2J<b>&'\""
    view = view_of(told)
    assert "\x1b" not in ring_text(view, PEN)
    words = "".join(ET.fromstring(ring_svg(view)).itertext())
    assert "\\x1b[2J<b>&'\"" in words and "\x1b" not in words


def test_a_narrow_terminal_without_unicode() -> None:
    text = ring_text(view_of(one_down()), Pen(colour=False, unicode=False, columns=70))
    assert text.isascii() and "! broker 1" in text and "2 -> 3 -> 4" in text
    assert max(len(line) for line in text.splitlines() if "leads " in line) <= 70


@pytest.mark.parametrize("columns", [57, 40, 36])
def test_in_a_narrower_one_no_line_is_broken_by_the_terminal(columns: int) -> None:
    """The circle was, and every row of the bands."""
    pen = Pen(colour=False, columns=columns)
    view = view_of(one_down())
    found = preview(topology(), 6, 1)
    rounds = [[str(step) for step in steps] for steps in found.rounds]
    plan = plan_text(view, grown(view, found), rounds, counted(found), pen)
    for text in (ring_text(view, pen), plan):
        lines = text.splitlines()
        assert max(map(len, lines)) <= columns, max(lines, key=len)
        (row,) = [line for line in lines if line.endswith("  DOWN")][:1]
        assert row.startswith("  broker 1 ") and "×" * 2 in row and " leads   0" in row


def test_the_picture_says_who_leads_and_what_is_down() -> None:
    words = "\n".join(ET.fromstring(ring_svg(view_of(one_down()))).itertext())
    assert "slices 8-15, epoch 4: broker 2 leads" in words
    assert "2 troubles" in words and "broker 1: down" in words and "broker 1 down" in words
    assert "all is well" in "\n".join(ET.fromstring(ring_svg(view_of(topology()))).itertext())
    assert "url(#none)" in ring_svg(view_of({**topology(), "routes": [
        {**topology()["routes"][0], "leader": None, "followers": None}
    ]}))  # fmt: skip


def test_what_is_no_topology_is_refused() -> None:
    with pytest.raises(ProtocolError, match="older than this command"):
        view_of({"ranges": []})
    for broken in ({"brokers": [{}]}, {"routes": [{}]}, {"shards": 7}, {"ringSize": "x"}):
        with pytest.raises(ProtocolError):
            view_of({**topology(), **broken})
    for broken in ({"first": 24}, {"slices": 25}, {"members": []}, {"version": None}):
        told = topology()
        told["routes"][0] |= broken
        with pytest.raises(ProtocolError):
            table_of(told, Cut(3, 8))
    for broken in ({"first": 24}, {"first": -1}, {"slices": 2**60}, {"slices": 0}):
        told = topology()
        told["routes"][0] |= broken
        with pytest.raises(ProtocolError, match="behind slice 23"):
            view_of(told)
    with pytest.raises(ProtocolError, match="slices"):
        view_of({**topology(), "ringSize": 2**40})


def test_runs_of_slices() -> None:
    assert runs([]) == "" and runs([3]) == "3" and runs([5, 0, 1, 2, 7, 6]) == "0-2, 5-7"


# --- The command ----------------------------------------------------------------------------------


@pytest.fixture
def ring(broker: Any, capfd: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs `barco ring` against a broker that tells a topology: (exit code, stdout, stderr)."""
    asked: list[str] = []

    def tell(document: dict[str, Any]) -> None:
        monkeypatch.setattr(broker, "_topology", lambda: (200, {}, json.dumps(document).encode()))

    def command(document: dict[str, Any], *arguments: str) -> tuple[int, str, str]:
        tell(document)
        code = main(["ring", *arguments, "--endpoint", broker.endpoint])
        return code, *capfd.readouterr()

    command.asked, command.tell = asked, tell  # type: ignore[attr-defined]
    return command


def test_drawn_to_a_pipe_there_are_no_colours(ring: Any) -> None:
    code, out, err = ring(one_down())
    assert (code, err) == (0, "") and "✗ broker 1" in out and "\x1b" not in out


def test_json(ring: Any) -> None:
    code, out, _ = ring(one_down(), "--json")
    told = json.loads(out)
    assert code == 0 and out.count("\n") == 1
    assert told["troubles"][0].startswith("broker 1")
    assert told["ranges"][1]["members"][0] == {"ordinal": 1, "copy": "down"}
    assert told["ranges"][1]["generations"] == [2, 3]
    assert [each["leads"] for each in told["brokers"]] == [8, 0, 16]


def test_svg_to_a_file_and_to_stdout(ring: Any, tmp_path: Path) -> None:
    file = tmp_path / "ring.svg"
    code, out, _ = ring(topology(), "--svg", str(file))
    assert (code, out) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["ring.svg"]
    assert file.read_text() == ring_svg(view_of(topology()))
    code, out, _ = ring(topology(), "--svg", "-")
    assert code == 0 and out == file.read_text()


def test_svg_where_nothing_can_be_written(ring: Any, tmp_path: Path) -> None:
    """Words; and what is no ordinary file (/dev/full of this machine, once) stays what it is."""
    code, _, err = ring(topology(), "--svg", str(tmp_path / "none" / "ring.svg"))
    assert code == 1 and "ring.svg: No such file or directory" in err
    for name in ("", str(tmp_path)):
        code, _, err = ring(topology(), "--svg", name)
        assert code == 2 and "is no name of a file" in err
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    code, _, err = ring(topology(), "--svg", str(pipe))
    assert (code, err) == (0, "") and pipe.is_fifo()
    assert os.read(reader, 1 << 20).startswith(b"<svg")
    os.close(reader)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_preview_has_the_plan_and_says_that_nothing_is_changed(ring: Any, tmp_path: Path) -> None:
    code, out, _ = ring(topology(), "--to", "6")
    assert code == 0 and out.startswith("preview: from 3 to 6 brokers. Nothing is changed\n")
    assert "3 steps (3 splits) in 1 round, at most 1 by one broker; no event is copied" in out
    assert "broker 0: slices 0-7 become 0-3 (0 3 1) and 4-7 (3 1 4)" in out
    assert len(re.findall(r"^\+ broker [345] ", out, re.MULTILINE)) == 3
    code, out, _ = ring(topology(), "--to", "12", "--json")
    told = json.loads(out)
    assert code == 0 and len(told["steps"]) == 9 and len(told["then"]["ranges"]) == 12
    assert {each["kind"] for each in told["steps"]} == {"split"}
    assert [each["new"] for each in told["then"]["brokers"]] == [False] * 3 + [True] * 9
    ring(topology(), "--to", "12", "--svg", str(tmp_path / "a.svg"))
    words = "\n".join(ET.parse(tmp_path / "a.svg").getroot().itertext())
    assert "Nothing is changed." in words and "broker 11 (new)" in words and "9 new" in words
    assert "no steps: the ring is so already" in ring(topology(), "--to", "3")[1]


def test_a_preview_of_other_workers() -> None:
    found = preview(topology(slices=16), 3, 2)
    assert [(route.first, route.slices) for route in found.table] == [
        (0, 8), (8, 8), (16, 8), (24, 8), (32, 8), (40, 8)
    ]  # fmt: skip
    assert (
        plan_svg(view_of(topology()), view_of(topology()), [["a"] * 40], "x").count("and 12") == 1
    )


def test_a_shrink_goes_hand_over_by_hand_over(ring: Any) -> None:
    told = topology(size=6, slices=8, cut=3)
    code, out, _ = ring(told, "--to", "3")
    assert code == 0 and "6 steps (3 hand-overs, 3 joins) in 2 rounds" in out
    assert "broker 3: slices 4-7 go to the left neighbour" in out and "no event" not in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--to", "9" * 20), "a ring has at most 12,288"),
        (("--to", "48"), "24 is the largest number of brokers that goes"),
        (("--to", "2"), "a ring has at least three"),
        (("--to", "6", "--workers", "5"), "broker 0 would have 5 workers for 4 slices"),
        (("--workers", "2"), "--workers belongs to --to"),
        (("--to", "6", "--watch"), "give one of them"),
    ],
)
def test_what_can_not_be_is_refused_in_words(ring: Any, arguments: Any, words: str) -> None:
    code, out, err = ring(topology(), *arguments)
    assert (code, out) == (2, "") and words in err


@pytest.mark.parametrize("arguments", [("--to", "0"), ("--watch", "0.1"), ("--watch", "x")])
def test_wrong_usage(arguments: tuple[str, ...], capfd: Any) -> None:
    assert main(["ring", *arguments]) == 2
    assert "usage: barco ring" in capfd.readouterr().err


def test_no_plan_while_the_ring_is_not_whole(ring: Any) -> None:
    told = topology()
    del told["routes"][1]
    code, _, err = ring(told, "--to", "6")
    assert code == 2 and "no plan while the ring is not whole: nothing was heard of" in err


def test_an_older_broker_and_none_at_all(ring: Any, broker: Any, capfd: Any) -> None:
    code, _, err = ring({"ranges": []})
    assert code == 1 and "tells no routes" in err
    assert main(["ring", "--endpoint", "127.0.0.1:1", "--timeout", "0.2"]) == 1
    assert "barco: " in capfd.readouterr().err


def watched(endpoint: str, *arguments: str, pictures: int, **environment: str) -> tuple[int, bytes]:
    """`barco ring --watch` in a terminal of its own, until so many pictures, then Ctrl-C."""
    command = [sys.executable, "-m", "barco", "ring", "--endpoint", endpoint, *arguments]
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ignored where the tests run in background.
        os.execve(sys.executable, command, {**os.environ, **environment})
    out, until = b"", time.monotonic() + 60
    while out.count(CLEAR.encode()) < pictures:
        assert time.monotonic() < until, out
        if select.select([terminal], [], [], 1)[0]:
            out += os.read(terminal, 65_536)
    os.kill(pid, signal.SIGINT)
    while select.select([terminal], [], [], 60)[0]:
        try:
            more = os.read(terminal, 65_536)
        except OSError:  # Closed at the other end.
            break
        if not more:
            break
        out += more
    else:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    return code, out


def test_watch_draws_again_and_ctrl_c_leaves_a_clean_terminal(ring: Any, broker: Any) -> None:
    ring.tell(topology())
    began = time.monotonic()
    code, out = watched(broker.endpoint, "--watch", "0.2", pictures=4, NO_COLOR="")
    assert code == 130 and time.monotonic() - began > 0.6, "at most five in a second"
    assert out.count(b"\x1b[?25l") == 1 and out.rstrip().endswith(b"\x1b[?25h")
    assert b"Traceback" not in out and b"\x1b[32m" in out
    _, out = watched(broker.endpoint, "--watch", "0.2", pictures=1, NO_COLOR="1")
    assert b"\x1b[32m" not in out


def test_watch_goes_on_while_nobody_answers(ring: Any, broker: Any) -> None:
    ring.tell({"ranges": []})
    _, out = watched(broker.endpoint, "--watch", "0.2", pictures=2)
    assert out.count(b"no answer: this broker tells no routes") == 2


def test_copies_have_words_for_all() -> None:
    assert len({copy.value for copy in CopyState}) == len(CopyState)
