"""The chat page against the whole system with real weights (case R18): a question, a stop, a look back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Route, expect

from tests.browser.chromium import needs_chromium, running_chromium
from tests.support.whole_system import has_model
from tests.system.live_system import LiveSystem

pytestmark = [
    needs_chromium,
    pytest.mark.system,
    pytest.mark.real_weights,
    pytest.mark.timeout(420),
    pytest.mark.skipif(not has_model(), reason="smollm2-135m is not pulled (`baton models pull --defaults`)"),
]
SLOW = 120_000
"""Milliseconds: other tests may have the cores."""


@pytest.fixture
def system(tmp_path: Path) -> Iterator[LiveSystem]:
    system = LiveSystem(tmp_path / "home", "--no-large", BATON_ENGINE_KV_MEMORY_MB="256")
    try:
        system.start()
        yield system
        system.stop()
    finally:
        system.kill()


async def endless(route: Route) -> None:
    """A model that is done early can't be stopped: it goes on past its end."""
    body = json.loads(route.request.post_data or "{}") | {"ignore_eos": True, "max_tokens": 4000}
    await route.continue_(post_data=json.dumps(body))


async def test_a_question_crosses_ten_stops_and_a_stopped_answer_is_kept_marked(system: LiveSystem) -> None:
    async with running_chromium() as browser:
        page = await browser.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        await page.route("**/v1/chat/completions", endless)
        await page.goto(f"{system.url}/#key={system.key}")
        await expect(page.locator("#model option").filter(has_text="smollm2-135m")).to_have_count(1)

        await page.locator("#question").fill("What is a KV cache?")
        await page.keyboard.press("Enter")
        answer = page.locator(".answer .body")
        await expect(answer).to_have_text(re.compile(r"\w+\W+\w+"), timeout=SLOW)
        await page.keyboard.press("Escape")

        await expect(page.locator(".note")).to_have_text("Stopped. What was written so far is kept.")
        await expect(page.locator(".meta")).to_contain_text("TTFT")
        await expect(page.locator("#relay-status")).to_contain_text("10 of 10 stops", timeout=SLOW)
        await expect(page.locator("#waterfall")).to_contain_text("cancelled")
        await page.locator(".stop summary").nth(6).click()
        engine = page.locator("details[open] .span-table")
        await expect(engine).to_contain_text("client_disconnected")
        await expect(engine).to_contain_text(re.compile(r"blocks_freed [1-9]"))

        shown = (await answer.inner_text()).split()
        await page.reload()
        await expect(page.locator(".note")).to_have_text("This answer was cut short.", timeout=SLOW)
        kept = (await answer.inner_text()).split()
        assert kept[: len(shown) - 1] == shown[:-1]
        await expect(page.locator("#relay-status")).to_contain_text("10 of 10 stops")
        assert problems == []
