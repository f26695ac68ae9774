"""What somebody does with dead letters at the console, in a real browser: choose, look, send again,
drop; and that it is not offered to who may not."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import RunningBroker

import barco

sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: barco[look]")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe: barco[look]")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
ROOT = "barco_root"
MILLISECONDS = 30_000
"""Generous: it only ends what has failed."""

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium (Debian: apt-get install chromium)"
)


@pytest.fixture
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM)
        yield found
        found.close()


def bury(endpoint: str, **given: Any) -> None:
    """Three letters of two topics, as a queue leaves them."""
    with barco.Producer(endpoint, **given) as producer:
        for number, origin in enumerate((b"doors", b"doors", b"gates")):
            told = {"topic": origin, "reason": b"jammed <b>", "group": b"menders", "count": b"2"}
            headers = [(f"barco-dead-{name}", value) for name, value in told.items()]
            value = b'{"door":%d}' % number
            producer.send("doors.dead", value, b"k", headers=[*headers, ("own", b"x")]).result(30)


def opened(browser: Any, endpoint: str, wrong: list[str]) -> Any:
    page = browser.new_page(viewport={"width": 1200, "height": 700})
    page.set_default_timeout(MILLISECONDS)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: wrong.append(asked.url) if endpoint not in asked.url else None)
    page.goto(f"http://{endpoint}/console#topic/doors.dead")
    return page


def boxes(page: Any) -> Any:
    return page.locator("td input[type=checkbox]")


def test_by_hand(broker: RunningBroker, browser: Any, tmp_path: Path) -> None:
    endpoint, wrong = f"127.0.0.1:{broker.port('discovery')}", list[str]()
    bury(endpoint)
    page = opened(browser, endpoint, wrong)
    page.get_by_text("3 of the letters").wait_for()
    again, drop = (page.get_by_role("button", name=name) for name in ("Send again …", "Drop …"))
    assert again.is_disabled() and drop.is_disabled(), "nothing is chosen"
    for number in (0, 1):
        page.locator("tr", has_text=f'"door":{number}').locator("input").check()
    again.click()
    dialog = page.locator("#sure")
    assert "Send 2 letters again?" in dialog.inner_text() and "doors" in dialog.inner_text()
    assert "jammed <b>" in dialog.inner_text(), "no text becomes markup"
    page.screenshot(path=tmp_path / "sure.png")
    assert not axe.Axe().run(page).response["violations"]
    dialog.get_by_role("button", name="Leave it").click()
    assert boxes(page).count() == 3
    with barco.Admin(endpoint) as admin:
        assert [each["topic"] for each in admin.topics()] == ["doors.dead"], "nothing was sent"
    again.click()
    dialog.get_by_role("button", name="Send again").click()
    page.get_by_text("2 letters are on stable storage in doors.").wait_for()
    page.get_by_text("1 of the letters").wait_for()
    sent = sorted((each.value, each.headers) for each in barco.read("doors", endpoint))
    assert sent == [(b'{"door":%d}' % number, (("own", b"x"),)) for number in (0, 1)]
    # The one of another topic is dropped; then all that was done is shown if that is asked for.
    boxes(page).check()
    drop.click()
    assert "Drop 1 letter?" in dialog.inner_text()
    dialog.get_by_role("button", name="Drop").click()
    page.get_by_text("1 letter is dropped.").wait_for()
    page.get_by_text("No dead letters here.").wait_for()
    page.get_by_label("those done with, too").check()
    page.get_by_text("3 of the letters").wait_for()
    assert page.locator("td", has_text="resent").count() == 2
    assert page.locator("td", has_text="dropped").count() == 1 and boxes(page).count() == 0
    page.screenshot(path=tmp_path / "done.png")
    assert not axe.Axe().run(page).response["violations"]
    assert not wrong


def test_it_is_not_offered_to_who_may_not(tmp_path: Path, browser: Any) -> None:
    closed = RunningBroker.closed(tmp_path / "data", ROOT)
    closed.start()
    try:
        endpoint, wrong = f"127.0.0.1:{closed.port('discovery')}", list[str]()
        with barco.Admin(endpoint, token=ROOT) as root:
            looks = ["consume:doors.dead", "metrics"]
            root.set_user("looks", token="looks-token", grants=looks)
            root.set_user("mends", token="mends-token", grants=[*looks, "produce:doors"])
        bury(endpoint, token=ROOT)
        for user, offered in (("looks", False), ("mends", True)):
            closed.knows(f"Bearer {user}-token")
            page = opened(browser, endpoint, wrong)
            page.locator("#token").fill(f"{user}-token")
            page.get_by_role("button", name="Use it").click()
            page.get_by_text("3 of the letters").wait_for()
            assert page.get_by_role("button", name="Send again …").is_visible() is offered
            assert not page.get_by_role("button", name="Drop …").is_visible()
            assert not page.get_by_text("Produce an event").is_visible()
            page.close()
        assert not wrong
    finally:
        closed.end()
