"""The ids of tool calls: a server gets back those that it made, and of others only what it takes."""

from __future__ import annotations

import re

from tests.provider.wires.protocols import READINGS
from tests.provider.wires.speech import Call, ids_in, items_in, spoken
from tests.rows import each_row

from steersman.types.content import TextContent, ToolCall
from steersman.types.messages import AssistantMessage, ToolResultMessage
from steersman.types.model import Model

NAMES = ("anthropic", "google", "openai", "responses")
# As Kimi K2, vLLM and others make them: signs that OpenAI and Anthropic refuse, and more characters.
MADE = ("functions.bash:0", "chatcmpl-tool-0123456789abcdef0123456789abcdef", "call|x y/" + "z" * 90, "a" * 80)
ELSEWHERE = "http://127.0.0.1:8000/v1"
LEGAL = re.compile(r"[a-zA-Z0-9_-]{1,64}")
FORTY = re.compile(r"[a-zA-Z0-9_-]{1,40}")
NINE = re.compile(r"[a-zA-Z0-9]{9}")


def asked_again(name: str, id: str, model: Model, maker: str, by: str = "m") -> tuple[str, str]:
    """The id of a call and that of its result, in the request that goes on from it."""
    call = AssistantMessage([ToolCall(id, "bash", {"a": 1})], provider=maker, model=by, stop_reason="tool_use")
    result = ToolResultMessage([TextContent("ok")], tool_call_id=id, tool_name="bash")
    body = READINGS[name].body_of("Hi", call, result, model=model)
    for item in items_in(name, body):
        match item:
            case {"type": "tool_result", "tool_use_id": answered}:
                return ids_in(name, body)[0], answered
            case {"role": "tool", "tool_call_id": answered} | {"type": "function_call_output", "call_id": answered}:
                return ids_in(name, body)[0], answered
            case {"functionResponse": {"id": answered}}:
                return ids_in(name, body)[0], answered
            case _:
                pass
    raise AssertionError("Expected a result in the request.")


@each_row("id", MADE)
@each_row("name", NAMES)
def test_an_id_goes_back_unchanged_to_the_server_that_made_it(name: str, id: str) -> None:
    """failures.md A9: Kimi K2 finds its calls by them."""
    model = Model(READINGS[name].model.provider, "m", base_url=ELSEWHERE)
    message = READINGS[name].message_of(spoken(name, Call(name="bash", id=id)), model=model)
    assert message.tool_calls[0].id == id
    assert asked_again(name, id, model, message.provider) == (id, id)


# Servers that are known by their name or their host to refuse ids, and what they take.
STRICT = {
    "anthropic": ("anthropic", Model("anthropic", "m"), LEGAL),
    "anthropic by host": ("anthropic", Model("anthropic", "m", base_url="https://api.anthropic.com/v1"), LEGAL),
    "anthropic for chat": ("openai", Model("openai-chat", "m", base_url="https://api.anthropic.com/v1"), FORTY),
    "openai": ("responses", Model("openai", "m"), LEGAL),
    "openai by host": ("responses", Model("openai", "m", base_url="https://eu.api.openai.com/v1"), LEGAL),
    "openai for chat": ("openai", Model("openai-chat", "m"), FORTY),
    "mistral": ("openai", Model("mistral", "m"), NINE),
    "mistral elsewhere": ("openai", Model("mistral", "m", base_url=ELSEWHERE), NINE),
    "mistral by host": ("openai", Model("openai-chat", "m", base_url="https://api.mistral.ai/v1"), NINE),
    "mistral by settings": ("openai", Model("openai-chat", "m", settings={"call_ids": "nine"}), NINE),
}


@each_row("maker", ["its own", "another"])
@each_row("id", MADE)
@each_row("case", STRICT)
def test_a_server_that_refuses_an_id_gets_another_one(case: str, id: str, maker: str) -> None:
    """wire.md 3.1, 3.2: at most 64 characters for Anthropic, nine letters and digits for Mistral."""
    name, model, legal = STRICT[case]
    call, result = asked_again(name, id, model, model.provider if maker == "its own" else "vllm")
    assert call == result
    assert legal.fullmatch(call)
    assert (call == id) is (legal.fullmatch(id) is not None)


@each_row("id", MADE)
@each_row("name", ["anthropic", "openai", "responses"])
def test_an_id_of_another_server_is_made_legal(name: str, id: str) -> None:
    """Whatever the server takes of its own ids."""
    model = Model(READINGS[name].model.provider, "m", base_url=ELSEWHERE)
    call, result = asked_again(name, id, model, "moonshot")
    assert call == result
    assert LEGAL.fullmatch(call)


@each_row("id", MADE)
@each_row("name", ["anthropic", "openai", "responses"])
def test_an_id_of_another_model_behind_the_same_gateway_is_made_legal(name: str, id: str) -> None:
    """failures.md A9: a gateway passes ids on, and another model may be on a server that refuses them."""
    model = Model(READINGS[name].model.provider, "m", base_url=ELSEWHERE)
    call, result = asked_again(name, id, model, model.provider, by="another")
    assert call == result
    assert (FORTY if name == "openai" else LEGAL).fullmatch(call)


@each_row("maker", ["its own", "another"])
@each_row("name", NAMES)
def test_a_legal_id_stays_as_it_is(name: str, maker: str) -> None:
    model = READINGS[name].model
    assert asked_again(name, "call_1", model, model.provider if maker == "its own" else "vllm") == ("call_1", "call_1")
