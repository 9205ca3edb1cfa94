"""The chat page in a real browser, against an edge that a test controls."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser.chromium import needs_chromium, running_chromium
from tests.browser.fake_edge import KEY, FakeEdge, Script, running_fake_edge

pytestmark = [
    needs_chromium,
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest.fixture
def edge() -> Iterator[FakeEdge]:
    with running_fake_edge() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with running_chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def blank(browser: Browser) -> AsyncIterator[Page]:
    """A page without a key, nothing stored; a script error on it fails the test."""
    problems: list[str] = []
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    page = await context.new_page()
    page.set_default_timeout(10_000)
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    await context.close()
    assert problems == []


@pytest_asyncio.fixture(loop_scope="module")
async def page(blank: Page, edge: FakeEdge) -> Page:
    """The chat page with a key and its models."""
    await blank.goto(f"{edge.url}/#key={KEY}")
    await expect(blank.locator("#model")).to_be_enabled()
    return blank


async def ask(page: Page, question: str) -> None:
    await page.locator("#question").fill(question)
    await page.keyboard.press("Enter")


async def test_thinking_stands_folded_above_the_answer(page: Page, edge: FakeEdge) -> None:
    edge.script = Script(reasoning=["Let me", " <b>see</b>."], tokens=["Forty", "-two."])
    await ask(page, "How much?")
    answer = page.locator(".turn.answer").last
    await expect(answer.locator(".body")).to_have_text("Forty-two.")
    thinking = answer.locator("details")
    await expect(thinking).not_to_have_attribute("open", re.compile(".*"))
    await expect(thinking.locator("p")).to_have_text("Let me <b>see</b>.")


async def test_a_question_is_answered_with_its_figures_and_ten_stops(page: Page, edge: FakeEdge) -> None:
    edge.script = Script(
        tokens=["A **503** ", "means no seat [1].", "\n\nSources: [1] router.md · Refusals"],
        citations=["router.md · Refusals"],
    )
    await ask(page, "Why a 503?")
    answer = page.get_by_role("article", name="Answer")
    await expect(answer.locator(".body")).to_have_text("A 503 means no seat 1.")
    await expect(answer.locator("strong")).to_have_text("503")
    await expect(answer.locator(".sources li")).to_have_text(["router.md · Refusals"])
    await expect(answer.locator(".meta")).to_contain_text(re.compile(r"TTFT .* ms.*TPOT .* ms.*3 tokens"))
    await expect(answer.locator(".meta")).to_contain_text(edge.request_ids[0])
    await expect(page.locator('.stop[data-state="passed"]')).to_have_count(10)
    await expect(page.locator(".stop .time")).to_have_text(["10.0 ms"] * 10)
    await expect(page.locator("#relay-status")).to_have_text("10 of 10 stops · 90.0 ms")


async def test_code_may_hold_backticks_and_stand_in_a_list(page: Page, edge: FakeEdge) -> None:
    text = (
        "````html\n<pre>\n```\nx\n```\n</pre>\n````\n\n1. Run\n   ```sh title=a\n   ls\n     -l\n   ```\n\n"
    )
    edge.script = Script(tokens=[text, "Type `` `now` `` or `a*b*c`, ```` not this."])
    await ask(page, "How?")
    body = page.locator(".turn.answer .body")
    await expect(body.locator("p code")).to_have_text(["`now`", "a*b*c"])
    blocks = await body.locator("pre").all_text_contents()
    assert blocks == ["<pre>\n```\nx\n```\n</pre>", "ls\n  -l"]
    await expect(body.locator("p")).to_contain_text("```` not this")


async def test_a_table_is_a_table(page: Page, edge: FakeEdge) -> None:
    edge.script = Script(
        tokens=["Codes:\n| Code | When |\n|:--|---|\n", "| 503 | `a` \\| **b** <i> |\n", "\n| not | one |"]
    )
    await ask(page, "Which codes?")
    body = page.locator(".turn.answer .body")
    await expect(body.locator("p").last).to_have_text("| not | one |")
    await expect(body.locator("thead th")).to_have_text(["Code", "When"])
    await expect(body.locator("tbody td")).to_have_text(["503", "a | b <i>"])
    await expect(body.locator("td strong")).to_have_text("b")


async def test_the_conversation_goes_on_under_one_id_until_a_new_one_is_begun(
    page: Page, edge: FakeEdge
) -> None:
    for number, question in enumerate(("First?", "Second?"), start=1):
        await ask(page, question)
        await expect(page.locator(".meta")).to_have_count(number)
    await page.get_by_role("button", name="New chat").click()
    await expect(page.get_by_role("heading", name="Ask a question")).to_be_visible()
    await ask(page, "Third?")
    await expect(page.locator(".meta")).to_have_count(1)
    first, second, third = (asked["conversation_id"] for asked in edge.asked)
    assert first == second != third
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", first)
    assert [asked["messages"] for asked in edge.asked][1] == [{"role": "user", "content": "Second?"}]
    assert len(set(edge.request_ids)) == 3


async def test_after_a_reload_the_conversation_is_there_and_goes_on(page: Page, edge: FakeEdge) -> None:
    await ask(page, "Remember me")
    await expect(page.locator(".meta")).to_have_count(1)
    await page.reload()
    await expect(page.locator(".asked .body")).to_have_text("Remember me")
    await expect(page.locator(".answer .body")).to_have_text("Hello there.")
    await expect(page.locator("#relay-status")).to_have_text("10 of 10 stops · 90.0 ms")
    await ask(page, "And again")
    await expect(page.locator(".meta")).to_have_count(2)
    assert edge.asked[0]["conversation_id"] == edge.asked[1]["conversation_id"]


async def test_the_relay_shows_where_the_question_is(page: Page, edge: FakeEdge) -> None:
    edge.first_token.clear()
    await ask(page, "Where is it?")
    active = page.locator('.stop[data-state="active"] .stop-name')
    await expect(active).to_have_text(["Inference engine"])
    await expect(page.get_by_label("Waiting for the first token")).to_be_visible()
    edge.first_token.set()
    await expect(page.locator('.stop[data-state="passed"]')).to_have_count(10)


@pytest.mark.parametrize("how", ["button", "escape"])
async def test_stop_cancels_the_request_and_keeps_what_was_written(
    page: Page, edge: FakeEdge, how: str
) -> None:
    edge.script = Script(tokens=["Once upon "], endless=True)
    await ask(page, "Tell me everything")
    body = page.locator(".answer .body")
    await expect(body).to_contain_text("Once upon and on")
    if how == "button":
        await page.get_by_role("button", name="Stop").click()
    else:
        await page.keyboard.press("Escape")
    await expect(page.locator(".note")).to_have_text("Stopped. What was written so far is kept.")
    assert edge.client_left.wait(10), "the connection was not closed"
    await expect(body).to_contain_text("Once upon and on")
    await expect(page.get_by_role("button", name="Send")).to_be_visible()


async def test_a_stop_that_reports_late_on_a_stopped_answer_is_waited_for(page: Page, edge: FakeEdge) -> None:
    edge.late_stop = 8
    edge.script = Script(endless=True)
    await ask(page, "Tell me everything")
    await expect(page.locator(".answer .body")).to_contain_text("and on")
    await page.keyboard.press("Escape")
    await expect(page.locator("#waterfall")).to_contain_text("cancelled")
    await expect(page.locator("#relay-status")).to_contain_text("10 of 10 stops")


async def test_a_refusal_is_said_plainly_and_waits_as_long_as_it_was_told(page: Page, edge: FakeEdge) -> None:
    error = {
        "message": "No replica is ready.",
        "type": "service_unavailable_error",
        "param": None,
        "code": "queue_full",
    }
    edge.script = Script(
        status=503, error=error, headers={"retry-after": "1", "x-baton-stop": "inference_router"}
    )
    await page.evaluate("window.originalNow = performance.now.bind(performance); window.shift = 0;"
                        "performance.now = () => originalNow() + shift")  # fmt: skip
    await ask(page, "Now?")
    failure = page.get_by_role("alert").filter(has_text="No replica is ready.")
    await expect(failure).to_contain_text("HTTP 503 · queue_full · at inference_router")
    again = failure.get_by_role("button", name=re.compile("Try again"))
    await expect(again).to_be_disabled()
    await expect(page.locator(".stop").nth(5)).not_to_have_attribute("data-state", "idle")
    edge.script = Script(tokens=["Now it works."])
    await page.evaluate("shift = 1500")
    await again.click()
    await expect(page.locator(".answer .body").last).to_have_text("Now it works.")


async def test_an_answer_that_breaks_off_keeps_its_beginning_and_says_why(page: Page, edge: FakeEdge) -> None:
    edge.script = Script(tokens=["Half an ", "answer"], break_after=1)
    await ask(page, "Go")
    await expect(page.get_by_role("alert").filter(has_text="The engine was lost.")).to_contain_text(
        "stop_lost"
    )
    await expect(page.locator(".answer .body")).to_have_text("Half an")


async def test_what_a_model_writes_stays_text(page: Page, edge: FakeEdge) -> None:
    hostile = "<img src=x onerror=\"document.title='owned'\"> "
    hostile += "<script>document.title='owned'</script> [x](javascript:1)"
    edge.script = Script(tokens=[hostile[:20], hostile[20:]])
    await ask(page, "<b>Attack</b>")
    await expect(page.locator(".meta")).to_be_visible()
    await expect(page.locator(".answer .body")).to_have_text(hostile)
    await expect(page.locator(".asked .body")).to_have_text("<b>Attack</b>")
    assert await page.locator("#log img, #log script, #log b:not(.meta b), #log .body a").count() == 0
    assert await page.title() == "Baton"


async def test_without_a_key_the_page_asks_for_one_and_then_sends_the_question(
    blank: Page, edge: FakeEdge
) -> None:
    await blank.goto(edge.url)
    await ask(blank, "Hello?")
    dialog = blank.get_by_role("dialog", name="API key")
    await expect(dialog).to_be_visible()
    await blank.get_by_label("Key", exact=True).fill("sk-wrong")
    await blank.keyboard.press("Enter")
    await expect(dialog.get_by_role("alert")).to_have_text("This key was not accepted.")
    await blank.get_by_label("Key", exact=True).fill(KEY)
    await blank.keyboard.press("Enter")
    await expect(dialog).to_be_hidden()
    await expect(blank.locator(".answer .body")).to_have_text("Hello there.")
    stored = await blank.evaluate("[sessionStorage.getItem('baton.key'), localStorage.getItem('baton.key')]")
    assert stored == [KEY, None]  # not kept beyond the tab unless asked for


async def test_a_key_in_the_address_is_used_and_taken_out_of_it(page: Page, edge: FakeEdge) -> None:
    assert page.url == f"{edge.url}/"
    await page.reload()
    await expect(page.locator("#model option")).to_have_text(["auto", "smollm2-135m"])


async def test_the_page_can_be_used_by_keyboard_alone(page: Page, edge: FakeEdge) -> None:
    await expect(page.locator("#question")).to_be_focused()
    await page.keyboard.type("Line one")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("line two")
    await page.keyboard.press("Enter")
    await expect(page.locator(".meta")).to_be_visible()
    assert edge.asked[0]["messages"][0]["content"] == "Line one\nline two"
    await expect(page.locator("#waterfall .figures")).to_be_visible()
    await page.locator(".stop summary").nth(6).focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("details[open] .span-table tbody th")).to_have_text(["handle", "prefill"])


async def test_the_trace_page_shows_one_trace_and_the_newest(page: Page, edge: FakeEdge) -> None:
    await ask(page, "Trace me")
    await page.get_by_role("link", name="Open the whole trace").click()
    await expect(page.locator("#one-id")).to_have_text(edge.request_ids[0])
    await expect(page.locator(".stop .time")).to_have_text(["10.0 ms"] * 10)
    await expect(page.locator("#figures")).to_contain_text("71.5 ms")
    widths = "els => els.map(el => parseFloat(el.style.width))"
    before = (await page.locator(".stop:nth-child(3) .bar-span").evaluate_all(widths))[0]
    await page.get_by_role("button", name="To first token").click()
    after = (await page.locator(".stop:nth-child(3) .bar-span").evaluate_all(widths))[0]
    assert (round(before, 1), round(after, 1)) == (10.0, 13.4)  # 10 of 100 ms; 10 of 71.5 ms and a margin
    await page.goto(f"{edge.url}/ui/trace")
    await expect(page.locator("#rows th")).to_have_text([edge.request_ids[0][:8]])


async def test_the_list_of_traces_can_be_of_failures_and_goes_on(page: Page, edge: FakeEdge) -> None:
    await page.goto(f"{edge.url}/ui/trace")
    await expect(page.locator("#rows .badge")).to_have_text(["ok, stop"])
    await page.get_by_role("link", name="Only failures").click()
    await expect(page.get_by_role("heading", name="Newest failures")).to_be_visible()
    await expect(page.locator("#rows .badge")).to_have_text(["error: queue_full at inference_router"])
    await page.get_by_role("link", name="Older").click()
    await expect(page.locator("#rows .badge")).to_have_text(["error: queue_full at inference_router"])
    await expect(page.get_by_role("link", name="Older")).to_be_hidden()
    assert edge.listed == ["limit=50", "limit=50&status=error", "limit=50&status=error&page=77"]


@pytest.mark.parametrize("width", [360, 700, 1280])
async def test_nothing_runs_over_the_edge_of_the_window(page: Page, edge: FakeEdge, width: int) -> None:
    await page.set_viewport_size({"width": width, "height": 740})
    wide = "\n\n```\n" + "y" * 300 + "\n```\n| " + " | ".join("abcdef" * 3) + " |\n|---|\n"
    edge.script = Script(tokens=["x" * 300, wide])
    await ask(page, "z" * 300)
    await expect(page.locator(".meta")).to_be_visible()
    await expect(page.locator('.stop[data-state="passed"]')).to_have_count(10)
    assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert await page.evaluate(
        "document.querySelector('#strip').scrollWidth <= document.querySelector('.relay').clientWidth"
    )
