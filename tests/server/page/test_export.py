"""The HTML export of a conversation in a real browser: hostile text runs no script and makes no request."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from tests.server.page.kit import SLOWLY, current_browser, needs_browser
from tests.server.page.test_hostile import CORPUS, ELSEWHERE

from steersman.context.log import Log
from steersman.session.html_page import export_html
from steersman.types.content import ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.messages import AssistantMessage, ToolResultMessage, UserMessage

pytestmark = [pytest.mark.real_time, needs_browser]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SVG = base64.b64encode(b"<svg xmlns='http://www.w3.org/2000/svg' onload='window.hacked=1'/>").decode()
FOUND = """() => [...document.querySelectorAll("*")].flatMap((one) => [
  ...("script iframe object embed base link form a svg template video audio".split(" ").includes(one.localName)
    ? [one.localName] : []),
  ...[...one.attributes].filter(({ name }) => name.startsWith("on") || name === "href").map(({ name }) => name),
])"""


async def test_the_corpus_is_only_text_in_the_exported_page(tmp_path: Path) -> None:
    """As a prompt, thinking, text, the name and arguments of a call, a result, an error and the kind of an image."""
    log = Log()
    images = [ImageContent(PIXEL), ImageContent(SVG, "image/svg+xml"), ImageContent(f'x" onerror="{ELSEWHERE}')]
    log.append(UserMessage([TextContent("\n".join(CORPUS[:18])), *images]))
    for number, text in enumerate(CORPUS):
        call = ToolCall(f"c{number}", f"show{text[:60]}", {"text": text, text[:200]: 1})
        log.append(
            AssistantMessage(
                [ThinkingContent(text), TextContent(text), call], model=text[:80], error_message=text[:500]
            )
        )
        result = ToolResultMessage([TextContent(text)], tool_call_id=call.id, tool_name=text[:80], is_error=True)
        log.append(result)
    file = tmp_path / "page.html"
    file.write_text(export_html(CORPUS[0], log.entries), encoding="utf-8")
    context = await current_browser.get().new_context()
    try:
        page = await context.new_page()
        page.set_default_timeout(SLOWLY)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(file.as_uri())
        shown = await page.inner_text("body")
        assert await page.evaluate(FOUND) == []
        assert await page.evaluate("() => window.hacked") is None
        assert await page.evaluate("() => getComputedStyle(document.body).display") == "block"
        assert [url for url in asked if not url.startswith("data:image/png;")] == [file.as_uri()]
        assert await page.evaluate("() => [...document.images].map((one) => one.naturalWidth)") == [1]
        for text in CORPUS[:7]:
            assert text in shown
        assert "file\\u{202e}gnp.exe" in shown
    finally:
        await context.close()
