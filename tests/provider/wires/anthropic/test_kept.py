"""What only the server understands goes back to it as it came: citations, compactions, callers and containers."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import msgspec
import pytest
from tests.provider.wires.anthropic.kit import (
    MODEL,
    begun,
    body_of,
    called,
    delta,
    ended,
    event,
    message_of,
    read,
    said,
    start,
    stop,
)
from tests.rows import each_row

from steersman.context.log import MessageView
from steersman.context.repair import Repairer, repair
from steersman.provider.wires.anthropic.events import OPAQUE
from steersman.provider.wires.anthropic.wire import WIRE
from steersman.testing.servers.anthropic.request import check_request
from steersman.types.content import Content, ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.errors import IncompleteStreamError
from steersman.types.messages import (
    AgentMessage,
    AssistantMessage,
    Message,
    StopReason,
    ToolResultMessage,
    user_message,
)
from steersman.types.model import Model, Request, StreamOptions

# White space and the order of the keys are the server's own.
CITED = b'{"type":"char_location", "cited_text":"Gr\\u00fc\xc3\x9fe. ","end_char_index":7,"document_index":0}'
SOURCE = {"type": "web_search_result_location", "url": "https://example.com", "encrypted_index": "Eo8B"}


def raw_delta(index: int, data: bytes) -> bytes:
    """A delta with bytes of its own."""
    return b'data: {"type":"content_block_delta","index":%d,"delta":%s}\n\n' % (index, data)


def sent(message: AssistantMessage, *after: Message, model: Model = MODEL) -> bytes:
    """The bytes of the request that goes on from an answer."""
    request = Request("", [user_message("Hi"), message, *(after or (user_message("Go on."),))])
    return WIRE.request(model, request, StreamOptions(), "k").body


def results(message: AssistantMessage) -> list[ToolResultMessage]:
    return [
        ToolResultMessage([TextContent("ok")], tool_call_id=call.id, tool_name=call.name) for call in message.tool_calls
    ]


def test_citations_are_kept_and_go_back_byte_for_byte() -> None:
    """failures.md D16: they come before, between and after the words they are about."""
    cited = b'{"type":"citations_delta","citation":' + CITED + b"}"
    stream = (
        begun()
        + start(0, "text", text="", citations=[])
        + raw_delta(0, cited)
        + delta(0, "text_delta", text="It is ")
        + delta(0, "citations_delta", citation=SOURCE)
        + delta(0, "text_delta", text="green.")
        + stop(0)
        + said(1, " And more.")
        + ended()
    )
    message = message_of(stream)
    block = message.content[0]
    assert isinstance(block, TextContent)
    assert (message.text, message.content[1]) == ("It is green. And more.", TextContent(" And more."))
    assert block.citations == [msgspec.json.decode(CITED), SOURCE]
    assert b'"citations":[' + CITED + b"," + msgspec.json.encode(SOURCE) + b"]" in sent(message)


@pytest.mark.parametrize("given", [[SOURCE], None, [], 7])
def test_citations_may_come_with_the_start_of_their_block(given: Any) -> None:
    message = message_of(begun() + start(0, "text", text="Hi", citations=given) + stop(0) + ended())
    block = message.content[0]
    assert isinstance(block, TextContent)
    assert block.citations == ([SOURCE] if given == [SOURCE] else [])
    assert (b"citations" in sent(message)) is (given == [SOURCE])


def test_citations_go_to_no_other_model() -> None:
    """failures.md D7."""
    stream = begun() + start(0, "text", text="") + delta(0, "citations_delta", citation=SOURCE)
    message = message_of(stream + delta(0, "text_delta", text="Hi") + stop(0) + ended())
    other = repair([user_message("Hi"), message, user_message("Go on.")], provider="anthropic", model="other")
    assert other[1].content == [TextContent("Hi")]


@pytest.mark.parametrize("nulls", [True, False])
def test_a_compaction_goes_back_byte_for_byte(nulls: bool) -> None:
    """failures.md D16: its delta holds what its start leaves out."""
    empty = {"content": None, "encrypted_content": None} if nulls else {}
    told = b'{"type":"compaction_delta","content":"All of it \\u2014 in short.", "encrypted_content":"EpwB"}'
    stream = begun() + start(0, "compaction", **empty) + raw_delta(0, told) + stop(0) + said(1, "Hello.") + ended()
    message = message_of(stream)
    whole = b'{"type":"compaction","content":"All of it \\u2014 in short.","encrypted_content":"EpwB"}'
    assert message.content == [ThinkingContent("", whole.decode(), redacted=True, field=OPAQUE), TextContent("Hello.")]
    assert whole in sent(message)


def test_pieces_of_a_block_of_an_unknown_type_are_joined() -> None:
    stream = (
        begun() + start(0, "novelty", text="", at=None) + raw_delta(0, b'{"type":"novelty_delta","text":"a\\n","at":1}')
    )
    message = message_of(stream + delta(0, "novelty_delta", text="b", at=2) + stop(0) + said(1, "Hi") + ended())
    assert b'{"type":"novelty","text":"a\\nb","at":2}' in sent(message)


CALLER = {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}
CONTAINER = {"id": "container_1", "expires_at": "2026-12-20T05:33:35Z"}


def test_the_caller_of_a_programmatic_call_goes_back_and_its_container_is_named() -> None:
    call = start(0, "tool_use", id="toolu_1", name="roll", input={"who": "me"}, caller=CALLER) + stop(0)
    message = message_of(begun() + call + ended("tool_use", container=CONTAINER))
    body = msgspec.json.decode(sent(message, *results(message)))
    assert message.stop_reason == "tool_use"
    assert body["messages"][1]["content"] == [
        {"type": "tool_use", "id": "toolu_1", "name": "roll", "input": {"who": "me"}, "caller": CALLER}
    ]
    assert body["container"] == "container_1"
    later = body_of("Hi", message, *results(message), AssistantMessage([TextContent("Done.")]), "Go on.")
    assert "container" not in later


@pytest.mark.parametrize("caller", [{"type": "direct"}, None])
def test_a_direct_call_goes_back_without_a_caller(caller: Any) -> None:
    call = start(0, "tool_use", id="toolu_1", name="roll", input={}, caller=caller) + stop(0)
    message = message_of(begun() + call + ended("tool_use", container=CONTAINER))
    assert message.content == [ToolCall("toolu_1", "roll")]
    assert "container" not in body_of("Hi", message, *results(message))


def test_an_answer_may_come_whole_in_its_start() -> None:
    """So does the next call of code that goes on with a result."""
    blocks = [
        {"type": "text", "text": "Next."},
        {"type": "tool_use", "id": "toolu_2", "name": "roll", "input": {"who": "you"}, "caller": CALLER},
    ]
    head = {"id": "msg_2", "content": blocks, "stop_reason": "tool_use", "container": CONTAINER}
    begin = event("message_start", message={**head, "usage": {"input_tokens": 0}})
    assert message_of(begin + begin + event("message_stop")) == message_of(begin + event("message_stop"))
    message = message_of(begin + event("message_stop"))
    call = message.content[1]
    assert isinstance(call, ToolCall)
    assert (message.text, call.id, call.arguments) == ("Next.", "toolu_2", {"who": "you"})
    assert (message.stop_reason, message.raw_stop_reason, message.response_id) == ("tool_use", "tool_use", "msg_2")
    body = body_of("Hi", message, *results(message))
    assert (body["messages"][1]["content"], body["container"]) == (blocks, "container_1")


@pytest.mark.parametrize("at", ["after words", "in a call", "after the stop reason"])
def test_a_second_answer_inside_the_first_is_an_error(at: str) -> None:
    """Two generations spliced by a proxy: the calls of one and the thinking of the other must not run together."""
    half = start(1, "tool_use", id="t", name="roll", input={}) + delta(1, "input_json_delta", partial_json='{"a')
    stop_reason = event("message_delta", delta={"stop_reason": "tool_use"})
    before = {"after words": b"", "in a call": half, "after the stop reason": called(1, "t", "roll") + stop_reason}
    second = event("message_start", message={"id": "msg_2", "content": []}) + said(0, "Other.") + ended()
    with pytest.raises(IncompleteStreamError, match="second answer"):
        read(begun() + said(0, "One.") + before[at] + second)


def test_a_start_that_comes_twice_is_no_second_answer() -> None:
    """Before anything was said, or with the same id."""
    other = event("message_start", message={"id": "msg_0", "content": []})
    assert message_of(other + begun() + said(0, "Hi.") + begun() + ended()).text == "Hi."


SEARCH = {"type": "web_search_20250305", "name": "web_search"}
SEARCHES = Model("anthropic", MODEL.id, settings={"cache": False, "extra_body": {"tools": [SEARCH]}})
THOUGHT = ThinkingContent("Hm.", "c2ln")


def opaque(**fields: Any) -> ThinkingContent:
    return ThinkingContent("", msgspec.json.encode(fields).decode(), redacted=True, field=OPAQUE)


def searches(id: str = "srvtoolu_1") -> ThinkingContent:
    """A call to a tool of the server's own."""
    return opaque(type="server_tool_use", id=id, name="web_search", input={"query": "x"})


def found(id: str = "srvtoolu_1") -> ThinkingContent:
    return opaque(type="web_search_tool_result", tool_use_id=id, content=[])


def answered(*content: Content, model: str = MODEL.id, stop_reason: StopReason = "stop") -> AssistantMessage:
    return AssistantMessage(list(content), provider="anthropic", model=model, stop_reason=stop_reason)


def rolled(*content: Content, id: str = "t", is_error: bool = False) -> ToolResultMessage:
    return ToolResultMessage(list(content) or [TextContent("6")], tool_call_id=id, tool_name="roll", is_error=is_error)


def blocks_sent(*messages: AgentMessage) -> list[str]:
    """The types of the blocks of all answers, of a request that the server takes."""
    repaired = repair(messages, provider="anthropic", model=MODEL.id)
    body = msgspec.json.decode(WIRE.request(SEARCHES, Request("", repaired), StreamOptions(), "k").body)
    check_request(body, issued=lambda thinking, signature: True, prefill=False)
    return [block["type"] for turn in body["messages"] if turn["role"] == "assistant" for block in turn["content"]]


ROLL = ToolCall("t", "roll", {})
BOTH = answered(TextContent("Let me see."), searches(), ROLL, stop_reason="tool_use")
HI, GO_ON = user_message("Hi"), user_message("Go on.")


def test_a_search_waits_while_only_results_of_other_tools_follow() -> None:
    """The server runs it when these have arrived, and its next answer begins with what it found."""
    assert blocks_sent(HI, BOTH, rolled()) == ["text", "server_tool_use", "tool_use"]
    rest = answered(found(), TextContent("It is 6."))
    whole = ["text", "server_tool_use", "tool_use", "web_search_tool_result", "text"]
    assert blocks_sent(HI, BOTH, rolled(), rest, GO_ON) == whole
    again = answered(ToolCall("u", "roll", {}), stop_reason="tool_use")
    longer = [HI, BOTH, rolled(), again, rolled(id="u"), rest, GO_ON]
    assert blocks_sent(*longer) == [*whole[:3], "tool_use", *whole[3:]]


@each_row(
    "after",
    [
        [rolled(), user_message("Stop that.")],
        [user_message("The run was cancelled before this.")],
        [rolled(ImageContent("iVBORw0KGgo="), is_error=True)],
        [rolled(), answered(found(), TextContent("It"), stop_reason="aborted"), GO_ON],
        [rolled(), answered(TextContent("It is 6."), model="another"), GO_ON],
        [rolled(), answered(ToolCall("u", "roll", {})), rolled(id="u"), answered(TextContent("6.")), GO_ON],
    ],
)
def test_a_search_that_can_get_no_result_any_more_is_left_out(after: list[AgentMessage]) -> None:
    """The server refuses it for good: the conversation could never go on."""
    assert "server_tool_use" not in blocks_sent(HI, BOTH, *after)


def test_a_search_that_the_limit_on_tokens_cut_is_left_out() -> None:
    cut = answered(TextContent("Let me see."), THOUGHT, searches(), stop_reason="length")
    assert blocks_sent(HI, cut, GO_ON) == ["text"]


def test_what_a_search_found_is_left_out_without_the_search() -> None:
    """As after a compaction between the two."""
    assert blocks_sent(HI, answered(found(), TextContent("It is 6.")), GO_ON) == ["text"]


def test_a_call_of_code_that_is_given_up_has_no_caller() -> None:
    fields = msgspec.json.encode({"caller": CALLER, "container": "container_1"}).decode()
    code = answered(searches(), ToolCall("t", "roll", {}, signature=fields), stop_reason="tool_use")
    request = Request("", [HI, code, rolled(), user_message("Stop that.")])
    body = msgspec.json.decode(WIRE.request(SEARCHES, request, StreamOptions(), "k").body)
    assert body["messages"][1]["content"] == [{"type": "tool_use", "id": "t", "name": "roll", "input": {}}]
    assert "container" not in body


IDS = st.sampled_from(["a", "b"])
CONTENT: st.SearchStrategy[Content] = st.one_of(
    IDS.map(searches), IDS.map(found), IDS.map(lambda id: ToolCall(id, "roll", {})), st.just(THOUGHT),
    st.just(TextContent("Hm.")),
)  # fmt: skip
TALK: st.SearchStrategy[AgentMessage] = st.one_of(
    st.builds(
        answered, st.just(TextContent("So.")), CONTENT, CONTENT, CONTENT, model=st.sampled_from([MODEL.id, "another"])
    ),
    st.builds(rolled, id=IDS),
    st.builds(rolled, st.just(ImageContent("iVBORw0KGgo=")), id=IDS, is_error=st.booleans()),
    st.just(GO_ON),
)


@hypothesis.given(st.lists(TALK, max_size=14), st.integers(1, 4))
def test_every_request_of_a_conversation_with_searches_is_taken(messages: list[AgentMessage], step: int) -> None:
    """Also where the messages were encoded before, and the bytes are the same as if they had not been."""
    repairer = Repairer("anthropic", MODEL.id)
    log: list[AgentMessage] = []
    for at in range(0, len(messages), step):
        log.extend(messages[at : at + step])
        shown = repairer.apply(MessageView(log))
        if shown:
            body = WIRE.request(SEARCHES, Request("", shown), StreamOptions(), None).body
            assert body == WIRE.request(SEARCHES, Request("", list(shown)), StreamOptions(), None).body
            check_request(msgspec.json.decode(body), issued=lambda thinking, signature: True, prefill=False)
