"""The answers of the mock server as events of each protocol, and the checks of what a client sends."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bench.peers.jobs import split_text

Json = dict[str, Any]
Call = tuple[str, str, Sequence[str]]
"""The id of a call, the name of its tool, and the fragments of its arguments."""


def plan_answer(script: dict[str, int], turn: int) -> tuple[list[str], list[Call]]:
    """The pieces of text and the tool calls of an answer."""
    if turn >= script["t"]:
        return split_text("FINAL", script["d"]), []
    calls: list[Call] = []
    for number in range(script["k"]):
        if script["a"]:
            name, arguments = "note", ['{"text":"', *split_text("words", script["a"]), '"}']
        else:
            name, arguments = "add", ['{"a":', str(turn), ',"b":', f"{number}}}"]
        calls.append((f"call_{turn}_{number}", name, arguments))
    return split_text("think", script["d"]), calls


def encode(value: Any) -> bytes:
    """The value as compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def write_chat(pieces: list[str], calls: list[Call], turn: int) -> list[bytes]:
    """OpenAI Chat Completions."""
    base = {
        "id": f"chatcmpl-bench{turn}",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "bench",
        "service_tier": "default",
        "system_fingerprint": "fp_bench00000",
    }

    def chunk(delta: Json, finish: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**base, "choices": [choice], "usage": None}

    out = [chunk({"role": "assistant", "content": "", "refusal": None})]
    out += [chunk({"content": piece}) for piece in pieces]
    for index, (id, name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": ""}
        out.append(chunk({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}))
        out += [chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]}) for part in arguments]
    out.append(chunk({}, "tool_calls" if calls else "stop"))
    usage = {"prompt_tokens": 10, "completion_tokens": len(out), "total_tokens": 10 + len(out)}
    out.append({**base, "choices": [], "usage": usage})
    return [*[b"data: " + encode(event) + b"\n\n" for event in out], b"data: [DONE]\n\n"]


def write_messages(pieces: list[str], calls: list[Call], turn: int) -> list[bytes]:
    """Anthropic Messages."""
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
    message: Json = {
        "id": f"msg_bench{turn}", "type": "message", "role": "assistant", "model": "bench", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    out: list[Json] = [{"type": "message_start", "message": message}]

    def add_block(index: int, start: Json, deltas: list[Json]) -> None:
        out.append({"type": "content_block_start", "index": index, "content_block": start})
        out.extend({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        out.append({"type": "content_block_stop", "index": index})

    add_block(0, {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces])
    for index, (id, name, arguments) in enumerate(calls, 1):
        parts = [{"type": "input_json_delta", "partial_json": part} for part in arguments]
        add_block(index, {"type": "tool_use", "id": id, "name": name, "input": {}}, parts)
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    out += [{"type": "message_delta", "delta": stop, "usage": {"output_tokens": len(out)}}, {"type": "message_stop"}]
    return [_name_event(event) for event in out]


def write_responses(pieces: list[str], calls: list[Call], turn: int) -> list[bytes]:
    """OpenAI Responses."""
    response: Json = {"id": f"resp_bench{turn}", "object": "response", "status": "in_progress", "model": "bench"}
    out: list[Json] = [{"type": f"response.{name}", "response": response} for name in ("created", "in_progress")]
    text = "".join(pieces)
    part: Json = {"type": "output_text", "text": text, "annotations": []}
    message: Json = {"id": f"msg_{turn}", "type": "message", "role": "assistant", "status": "completed"}
    at: Json = {"output_index": 0, "item_id": message["id"], "content_index": 0}
    opened: Json = {**message, "status": "in_progress", "content": []}
    out.append({"type": "response.output_item.added", "output_index": 0, "item": opened})
    out.append({"type": "response.content_part.added", **at, "part": {**part, "text": ""}})
    out += [{"type": "response.output_text.delta", **at, "delta": piece} for piece in pieces]
    out.append({"type": "response.output_text.done", **at, "text": text})
    out.append({"type": "response.content_part.done", **at, "part": part})
    items: list[Json] = [{**message, "content": [part]}]
    out.append({"type": "response.output_item.done", "output_index": 0, "item": items[0]})
    for index, (id, name, arguments) in enumerate(calls, 1):
        whole = "".join(arguments)
        item: Json = {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "status": "completed"}
        where: Json = {"output_index": index, "item_id": item["id"]}
        opened = {**item, "status": "in_progress", "arguments": ""}
        out.append({"type": "response.output_item.added", "output_index": index, "item": opened})
        out += [{"type": "response.function_call_arguments.delta", **where, "delta": part} for part in arguments]
        out.append({"type": "response.function_call_arguments.done", **where, "arguments": whole})
        items.append({**item, "arguments": whole})
        out.append({"type": "response.output_item.done", "output_index": index, "item": items[-1]})
    usage: Json = {"input_tokens": 10, "output_tokens": len(out), "total_tokens": 10 + len(out)}
    done = {**response, "status": "completed", "output": items, "usage": usage}
    out.append({"type": "response.completed", "response": done})
    return [_name_event({**event, "sequence_number": number}) for number, event in enumerate(out)]


def write_gemini(pieces: list[str], calls: list[Call], turn: int) -> list[bytes]:
    """Google's Gemini, which sends each call whole, so that its fragments are joined."""
    parts: list[Json] = [{"text": piece} for piece in pieces]
    parts += [
        {"functionCall": {"id": id, "name": name, "args": json.loads("".join(arguments))}}
        for id, name, arguments in calls
    ]
    usage = {"promptTokenCount": 10, "candidatesTokenCount": len(parts), "totalTokenCount": 10 + len(parts)}
    events: list[bytes] = []
    for number, part in enumerate(parts, 1):
        candidate: Json = {"content": {"parts": [part], "role": "model"}, "index": 0}
        if number == len(parts):
            candidate["finishReason"] = "STOP"
        event = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "bench", "responseId": f"r{turn}"}
        events.append(b"data: " + encode(event) + b"\r\n\r\n")
    return events


def _name_event(event: Json) -> bytes:
    return b"event: " + event["type"].encode() + b"\ndata: " + encode(event) + b"\n\n"


def read_chat(body: Json) -> tuple[Json, Json]:
    """The arguments of the calls and the results in a request, by call id; raises `AssertionError` if it is wrong."""
    calls: Json = {}
    results: Json = {}
    for message in body["messages"]:
        for call in message.get("tool_calls") or ():
            calls[call["id"]] = json.loads(call["function"]["arguments"])
        if message["role"] == "tool":
            results[message["tool_call_id"]] = message["content"]
    _check_tools(tool["function"]["name"] for tool in body["tools"])
    return calls, results


def read_messages(body: Json) -> tuple[Json, Json]:
    """The same for Anthropic Messages."""
    calls: Json = {}
    results: Json = {}
    for message in body["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_use":
                calls[block["id"]] = block["input"]
            elif block["type"] == "tool_result":
                results[block["tool_use_id"]] = block["content"]
    _check_tools(tool["name"] for tool in body["tools"])
    return calls, results


def read_responses(body: Json) -> tuple[Json, Json]:
    """The same for OpenAI Responses."""
    items: list[Json] = body["input"]
    calls = {item["call_id"]: json.loads(item["arguments"]) for item in items if item.get("type") == "function_call"}
    results = {item["call_id"]: item["output"] for item in items if item.get("type") == "function_call_output"}
    _check_tools(tool["name"] for tool in body["tools"])
    return calls, results


def read_gemini(body: Json) -> tuple[Json, Json]:
    """The same for Gemini, whose requests may leave out the ids: calls and results are in the same order."""
    parts = [part for content in body["contents"] for part in content["parts"]]
    calls = [part["functionCall"]["args"] for part in parts if "functionCall" in part]
    results = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
    _check_tools(tool["name"] for tool in body["tools"][0]["functionDeclarations"])
    return dict(enumerate(calls)), dict(enumerate(results))  # pyright: ignore[reportReturnType]  # numbers in place of ids


def _check_tools(names: Any) -> None:
    found = set(names)
    assert {"add", "note"} <= found, found


def check_request(protocol: Protocol, body: Json, script: dict[str, int]) -> None:
    """Raise `AssertionError` unless every call of the history is as it was sent, and answered rightly."""
    calls, results = protocol.read(body)
    assert list(calls) == list(results), (calls, results)
    for number, (id, arguments) in enumerate(calls.items()):
        if script["a"]:
            text = "".join(split_text("words", script["a"]))
            expected, result = {"text": text}, len(text)
        else:
            turn, place = divmod(number, script["k"])
            expected, result = {"a": turn, "b": place}, turn + place
        assert arguments == expected, (id, arguments)
        assert str(result) in json.dumps(results[id]), (id, results[id])


class Protocol(NamedTuple):
    """How a protocol writes an answer and reads a request; `mark` occurs once for each tool result of a request."""

    write: Callable[[list[str], list[Call], int], list[bytes]]
    read: Callable[[Json], tuple[Json, Json]]
    mark: bytes


PROTOCOLS = {
    b"/chat/completions": Protocol(write_chat, read_chat, b'"tool_call_id"'),
    b"/messages": Protocol(write_messages, read_messages, b'"tool_use_id"'),
    b"/responses": Protocol(write_responses, read_responses, b'"function_call_output"'),
    b":streamGenerateContent": Protocol(write_gemini, read_gemini, b'"functionResponse"'),
}
"""By the end of the path."""
