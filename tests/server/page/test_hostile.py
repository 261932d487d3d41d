"""Hostile text from models and tools never becomes markup, runs no script and makes no request (server.md 4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import expect
from tests.server.kit import run_server
from tests.server.page.kit import needs_browser, open_page

from steersman import Agent, Approval, Session, tool
from steersman.session.records import Record, encode
from steersman.testing import ScriptedModel, answer, call, thinking
from steersman.tools import Workspace, write_tool

pytestmark = [pytest.mark.real_time, needs_browser]
ELSEWHERE = "http://127.0.0.1:9/x"
CORPUS = [
    "<script>window.hacked = 1</script>",
    f"<img src={ELSEWHERE}.png onerror='window.hacked=1'>",
    f"<svg onload='window.hacked=1'><use href='{ELSEWHERE}'/></svg>",
    f"<iframe src='{ELSEWHERE}'></iframe><object data='{ELSEWHERE}'></object>",
    f"<style>@import url({ELSEWHERE}); * {{ display: none }}</style>",
    f"<link rel=stylesheet href={ELSEWHERE}><base href={ELSEWHERE}>",
    f"<meta http-equiv=refresh content='0;url={ELSEWHERE}'>",
    "[click](javascript:window.hacked=1) [click]( JaVaScRiPt:window.hacked=1 ) [click](java\tscript:window.hacked=1)",
    "[click](data:text/html,<script>window.hacked=1</script>) [click](vbscript:x) <javascript:window.hacked=1>",
    f"![picture]({ELSEWHERE}.png) ![x](javascript:window.hacked=1) [![inner]({ELSEWHERE}.png)](javascript:alert)",
    f'[link]({ELSEWHERE}/a "title\' onmouseover=window.hacked=1 x=") <{ELSEWHERE}?"onclick=window.hacked=1>',
    "| a | b |\n|---|---|\n| <script>window.hacked=1</script> | [x](javascript:window.hacked=1) |",
    '```html\n<script>window.hacked=1</script>\n```\n\n```"onload=window.hacked=1\nx\n```',
    "# <img src=x onerror=window.hacked=1>\n\n> <b>quote</b>\n\n- <i>item</i>\n\n`<u>code</u>` **<s>bold</s>**",
    "\x1b[31mred\x1b[0m \x1b]8;;javascript:window.hacked=1\x07link\x1b]8;;\x07 \x1b[2J\x1b]0;title\x07 \x00\x08\x7f",
    "file\u202egnp.exe \u2066isolated\u2069 zero\u200bwidth \ufeff \u2028 \U000e0041tag",
    "&lt;script&gt;window.hacked=1&lt;/script&gt; &#60;img src=x onerror=window.hacked=1&#62;",
    "__proto__ constructor toString <template><script>window.hacked=1</script></template>",
    "x" * 300_000,
    "> " * 5_000 + "deep",
    "- " * 3_000 + "deep",
    "*" * 20_000 + "_" * 20_000 + "`" * 5_000 + "[" * 9_000 + "](" * 3_000 + "~~" * 3_000,
    "|" * 5_000 + "\n" + "|-" * 5_000,
    "<!--" * 2_000 + "\\" * 3_000,
]
WATCH_TASKS = """
window.tasks = [];
new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((task) => task.duration))).observe({
  entryTypes: ["longtask"],
});
"""
ALLOWED = """() => [...document.querySelectorAll("*")].flatMap((one) => {
  const wrong = [];
  const own = "link script meta title head html body".split(" ");
  const bad = "iframe object embed base style template portal frame form[action] video audio source use".split(" ");
  if (bad.includes(one.localName)) wrong.push(one.localName);
  if (["script", "link"].includes(one.localName) && !one.closest("head")) wrong.push(one.localName);
  if (one.localName === "img" && !one.src.startsWith(location.origin)) wrong.push(one.outerHTML.slice(0, 200));
  for (const { name, value } of one.attributes) {
    if (name.startsWith("on")) wrong.push(`${one.localName} ${name}`);
    const follows = name === "href" || name === "src" || name === "xlink:href" || name === "action";
    if (follows && /^\\s*(javascript|data|vbscript):/i.test(value)) wrong.push(`${name}=${value.slice(0, 80)}`);
  }
  return wrong;
})"""


@tool
def show(text: str) -> str:
    """Show."""
    return text


async def test_the_corpus_is_only_text() -> None:
    """As text, thinking, arguments and results; in a title, in the tree and in a question."""
    blocks: list[Any] = []
    for text in CORPUS:
        blocks += [thinking(text), text, call("show", text=text)]
    script = ScriptedModel(answer(*blocks, deltas=2), "\n\n".join(CORPUS[:18]))
    async with run_server(lambda: Agent(script.model, tools=[show])) as client, open_page(client) as tab:
        await tab.say("\n".join(CORPUS[:18]))
        await tab.wait_until_idle()
        await expect(tab.answer).to_contain_text("<script>window.hacked = 1</script>")
        await expect(tab.answer).to_contain_text("file⟨U+202E⟩gnp.exe")
        await tab.open_details()
        await expect(tab.find(".tool .output").first).to_contain_text("<script>")
        wrong: list[str] = await tab.page.evaluate(ALLOWED)
        links: list[str] = await tab.page.evaluate(
            "() => [...document.querySelectorAll('.feed a')].map((one) => new URL(one.href).protocol)"
        )
        assert wrong == []
        assert set(links) == {"http:"}
        assert await tab.page.evaluate("() => window.hacked") is None
        origin = urlsplit(client.url).netloc
        assert {urlsplit(url).netloc for url in tab.requests} == {origin}


async def test_a_hostile_question_is_only_text() -> None:
    """The preview of an approval, its tool's name and its reason."""

    @tool(needs_approval=True)
    def deploy(target: str) -> str:
        """Deploy."""
        return target

    text = "<img src=x onerror=window.hacked=1>\u202e\x1b[31m"
    script = ScriptedModel(answer(call("deploy", target=text)), "Done.")
    async with run_server(lambda: Agent(script.model, tools=[deploy])) as client, open_page(client) as tab:
        await tab.say("Deploy.")
        await expect(tab.find(".approval .preview")).to_contain_text("<img src=x onerror=window.hacked=1>")
        assert await tab.page.evaluate(ALLOWED) == []
        await tab.find(".answer-approve").click()
        await tab.wait_until_idle()
        assert await tab.page.evaluate("() => window.hacked") is None


async def test_a_question_about_a_change_hides_nothing_at_the_end_of_a_long_line(tmp_path: Path) -> None:
    """Behind thousands of blanks, or beyond the edge of the card."""
    line = f"total = 1{' ' * 3_000}; import evil"
    script = ScriptedModel(answer(call("write", path="sum.py", content=line)), "Done.")
    tools = [write_tool(Workspace(tmp_path))]
    async with (
        run_server(lambda: Agent(script.model, tools=tools, approval=Approval(workspace=tmp_path))) as client,
        open_page(client) as tab,
    ):
        await tab.say("Sum up.")
        await expect(tab.find(".approval .diff-added")).to_have_text(f"1+{line}")
        widths = "one => [one.scrollWidth, one.clientWidth]"
        needed, shown = await tab.find(".approval .diff").evaluate(widths)
        assert needed <= shown
        await tab.find(".answer-deny").click()
        await tab.wait_until_idle()


@pytest.mark.parametrize("unit", ["1. a\n\n", "```js\n" + '"\\' * 10_000 + "\n```\n", "![a"])
async def test_a_very_long_answer_does_not_hold_up_the_page(unit: str) -> None:
    """The rest of it is shown as it is, a part with each click."""
    text = unit * (1_000_000 // len(unit))
    script = ScriptedModel(answer(thinking(text), text, deltas=2))
    async with run_server(lambda: Agent(script.model)) as client, open_page(client, init=WATCH_TASKS) as tab:
        await tab.say("Go on.")
        await tab.wait_until_idle()
        more = tab.answer.locator(".answer > .prose > div > .more")
        before = await more.text_content()
        await more.click()
        assert before != await more.text_content()
        await expect(tab.answer.locator(".answer > .prose .plain")).to_contain_text(unit[:3])
        tasks: list[float] = await tab.page.evaluate("() => window.tasks")
    assert max(tasks, default=0) < 6_000  # half a second on an idle machine


async def test_a_call_with_thousands_of_arguments_has_a_row_for_some() -> None:
    arguments: dict[str, Any] = {f"name{number}": number for number in range(20_000)}
    script = ScriptedModel(answer(call("show", **arguments)), "Done.")
    async with run_server(lambda: Agent(script.model, tools=[show])) as client, open_page(client) as tab:
        await tab.say("Go on.")
        await tab.wait_until_idle()
        await expect(tab.find(".tool dt").last).to_have_text("19,800 more")
        await expect(tab.find(".tool dt")).to_have_count(201)


async def test_what_waits_in_an_imported_session_waits_for_nobody(tmp_path: Path) -> None:
    """docs/sessions.md: it brings no questions, and its queued messages are not delivered here."""
    words = {"role": "user", "content": [{"type": "text", "text": "Hello."}]}
    broken: list[Any] = [None, {"role": "assistant"}, {"role": "assistant", "content": [None, {"type": "text"}]}]
    asked: dict[str, Any] = {
        "type": "approval_requested",
        "approval_id": "a",
        "tool_call_id": "c",
        "tool_name": "deploy",
        "args": {},
    }
    steps: list[tuple[str, dict[str, Any]]] = [
        ("session", {"format": "1.0", "session_id": "theirs", "created": 1.0}),
        ("run_start", {"loop_id": "l"}),
        ("message", {"message": words}),
        *(("message", {"message": message}) for message in broken),
        ("accepted", {"kind": "steering", "key": "k", "message": words}),
        ("event", {**asked, "reason": "Say yes.", "preview": "{}"}),
    ]
    records = [Record(f"r{seq}", None, seq, kind, 1.0, fields) for seq, (kind, fields) in enumerate(steps, 1)]
    (tmp_path / "s.jsonl").write_bytes(b"".join(encode(record) + b"\n" for record in records))
    Session.import_(tmp_path / "s.jsonl", tmp_path / "s.db").close()
    async with run_server(lambda: Agent("scripted:echo"), store=tmp_path / "s.db") as client, open_page(client) as tab:
        await tab.show("theirs")
        await expect(tab.find(".row")).not_to_have_count(0)
        await expect(tab.find("#status")).to_have_text("")
        await expect(tab.find(".approval, .row-queued")).to_have_count(0)
        await tab.say("And now?")
        await expect(tab.answer).to_contain_text("And now?")


async def test_a_page_without_the_token_shows_how_to_log_in() -> None:
    """Section 6: the URL that the server prints logs the page in."""
    async with run_server() as client, open_page(client) as tab:
        await tab.page.context.clear_cookies()
        await tab.page.reload()
        await expect(tab.find("#login")).to_be_visible()
        await expect(tab.find("#composer")).to_be_hidden()
