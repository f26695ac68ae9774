"""What somebody looks for and looks at in the console, in a real browser: events by conditions,
one that is sent again, jobs, the audit; on a phone and in the dark."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import RunningBroker
from test_console_letters import CHROMIUM, MILLISECONDS, axe, sync_api

import barco

ROOT = "barco_root"
EVENTS = 3000

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium (Debian: apt-get install chromium)"
)


@pytest.fixture
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM)
        yield found
        found.close()


def opened(browser: Any, endpoint: str, place: str, wrong: list[str], **given: Any) -> Any:
    page = browser.new_page(**({"viewport": {"width": 1200, "height": 700}} | given))
    page.set_default_timeout(MILLISECONDS)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: wrong.append(asked.url) if endpoint not in asked.url else None)
    page.goto(f"http://{endpoint}/console#{place}")
    return page


def is_sound(page: Any, picture: Path) -> None:
    page.screenshot(path=picture)
    assert not axe.Axe().run(page).response["violations"]
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_events_are_looked_for_where_they_are(
    broker: RunningBroker, browser: Any, tmp_path: Path
) -> None:
    endpoint, wrong = f"127.0.0.1:{broker.port('discovery')}", list[str]()
    with barco.Producer(endpoint) as producer:
        for n in range(EVENTS):
            value = json.dumps({"n": n, "pad": "x" * 300}).encode()
            headers = {"gate": "Nord" if n == 77 else "Süd"}
            producer.send("doors", value, b"k%d" % (n % 50), headers=headers)
    asked: list[str] = []
    page = opened(browser, endpoint, "topic/doors?where=%24.n%3E%3D10+and+%24.n%3C13", wrong)
    page.on("request", lambda one: asked.append(one.url) if "where=" in one.url else None)
    page.get_by_text(f"3 events, of {EVENTS:,} that were looked at").wait_for()
    assert page.locator("tbody tr", has_text='"n":1').count() == 3
    where = page.locator("#where")
    asked.clear()
    where.fill("header.gate=Nord and key~K2")
    where.press("Enter")
    page.get_by_text("1 event, of").wait_for()
    assert "where=header.gate" in page.url and "77" in page.locator("tbody").first.inner_text()
    assert asked and all("header.gate%3DNord&where=key%7EK2" in each for each in asked)
    is_sound(page, tmp_path / "where.png")
    # What is no condition is said in words, and nothing is shown for it.
    where.fill("$.n[=1")
    where.press("Enter")
    page.get_by_text("is no condition").wait_for()
    where.fill("$.n=77")
    where.press("Enter")
    page.get_by_text("1 event, of").wait_for()
    again = page.get_by_role("button", name="Send offset")
    again.click()
    dialog = page.locator("#sure")
    assert "Send this event again?" in dialog.inner_text() and '"n":77' in dialog.inner_text()
    is_sound(page, tmp_path / "again.png")
    dialog.get_by_role("button", name="Leave it").click()
    again.click()
    dialog.get_by_role("button", name="Send again").click()
    page.get_by_text("1 event is on stable storage in doors again.").wait_for()
    page.get_by_role("button", name="Show").click()
    page.get_by_text(f"2 events, of {EVENTS + 1:,}").wait_for()
    assert not wrong


def test_jobs_and_audit(tmp_path: Path, browser: Any) -> None:
    closed = RunningBroker.closed(tmp_path / "data", ROOT)
    closed.start()
    try:
        endpoint, wrong = f"127.0.0.1:{closed.port('discovery')}", list[str]()
        with barco.Admin(endpoint, token=ROOT) as root:
            root.set_user("looks", token="looks-token", grants=["metrics"])
            root.create_topic("t")
        closed.knows("Bearer looks-token")
        shown = {"Authorization": f"Bearer {ROOT}", "Content-Type": "application/x-ndjson"}
        query = {"attempt": "a", "topic": "t", "slice": 0, "seq": 0}
        path = "/v1/writes/trips-query/41/staged"
        assert (
            closed.request("PUT", path, query, body=b"1\n2\n", headers=shown, shard=0).status == 200
        )
        for token, sees in ((ROOT, True), ("looks-token", False)):
            page = opened(browser, endpoint, "jobs", wrong)
            page.locator("#token").fill(token)
            page.get_by_role("button", name="Use it").click()
            page.get_by_text("trips-query").wait_for()
            row = page.locator("tr", has_text="trips-query").inner_text()
            assert "41" in row and "is writing" in row
            is_sound(page, tmp_path / "jobs.png")
            assert page.get_by_role("link", name="Audit").is_visible() is sees
            if sees:
                page.get_by_role("link", name="Audit").click()
                page.get_by_text("/v1/users/looks").first.wait_for()
                is_sound(page, tmp_path / "audit.png")
                page.locator("#filter").fill("nothing like it")
                page.get_by_text("0 of the last").wait_for()
                page.get_by_role("link", name="Users").click()
                page.get_by_text("This broker speaks without TLS").wait_for()
            page.close()
        phone = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}
        page = opened(browser, endpoint, "audit", wrong, **phone)
        page.locator("#token").fill(ROOT)
        page.get_by_role("button", name="Use it").click()
        page.get_by_text("/v1/users/looks").first.wait_for()
        is_sound(page, tmp_path / "phone.png")
        assert not [each for each in wrong if "401" not in each]
    finally:
        closed.end()


def test_the_last_hour_lags_and_settings(
    broker: RunningBroker, browser: Any, tmp_path: Path
) -> None:
    """What was before a page was opened is on it: of brokers as told, of a topic by times."""
    endpoint, wrong = f"127.0.0.1:{broker.port('discovery')}", list[str]()
    now = time.time_ns() // 1000
    with barco.Producer(endpoint) as producer:
        for n in range(900):
            producer.send("trips", b"%d" % n, b"k%d" % (n % 9), timestamp_us=now - 1_700_000_000)
    with barco.Consumer("trips", group="readers", start="earliest", endpoint=endpoint) as consumer:
        consumer.poll(5.0)
    steps = [now - seconds * 1_000_000 for seconds in (3000, 1500, 900)]
    told = {
        "stepSeconds": 30, "silent": 0, "at": steps,
        "figures": {"events": [0, 4321, 0], "process_resident_bytes": [1, 2, 3 * 2**40]},
        "stages": {"write": [None, 0.75, None]},
    }  # fmt: skip
    page = browser.new_page(viewport={"width": 1200, "height": 700})
    page.set_default_timeout(MILLISECONDS)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.route("**/v1/figures/hour*", lambda route: route.fulfill(json=told))
    page.goto(f"http://{endpoint}/console#ring")
    page.get_by_text("at most 4,321, in 50 min").wait_for()
    page.get_by_text("at most 3.0\u00a0TiB, in 50 min").wait_for()
    page.get_by_text("at most 750\u00a0ms").wait_for()
    with page.expect_request("**/v1/figures/hour?broker=0"):
        page.locator("#whose").select_option("broker 0")
    page.get_by_text("at most 4,321, in 50 min").wait_for()
    is_sound(page, tmp_path / "ring.png")
    page.goto(f"http://{endpoint}/console#topic/trips")
    page.get_by_text("at most 3.0, in 55 min").wait_for()  # 900 within a step of five minutes.
    page.get_by_text("900 events are there").wait_for()
    settings = page.get_by_text("as it is stored").inner_text()
    assert "KiB" in settings and settings.endswith("values not checked")
    is_sound(page, tmp_path / "topic.png")
    page.goto(f"http://{endpoint}/console#group/readers")
    page.locator("td .spark path").first.wait_for(state="attached")  # A line that is flat.
    is_sound(page, tmp_path / "group.png")
    assert not wrong


def test_a_broker_tells_its_last_hour(broker: RunningBroker) -> None:
    """A real one: its processes look when a step ends, and know nothing before the first."""
    told = broker.request("GET", "/v1/figures/hour").json
    assert told["stepSeconds"] * 120 == 3600 and told["silent"] == 0
    assert len(told["at"]) == len(told["figures"]["events"]) == len(told["stages"]["write"])
    assert broker.request("GET", "/v1/figures/hour", {"broker": 7}).status == 404
