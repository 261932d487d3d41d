"""The names of spans, attributes and metrics: the GenAI conventions of OpenTelemetry (semconv 0.66b2), and our own.

Our own names begin with `steersman.`; the conventions have none for what they say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Operations
OPERATION_NAME: Final = "gen_ai.operation.name"
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

# Attributes
AGENT_ID: Final = "gen_ai.agent.id"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_TOP_P: Final = "gen_ai.request.top_p"
REQUEST_SEED: Final = "gen_ai.request.seed"
REQUEST_STREAM: Final = "gen_ai.request.stream"
OUTPUT_TYPE: Final = "gen_ai.output.type"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
USAGE_CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
USAGE_CACHE_CREATION: Final = "gen_ai.usage.cache_creation.input_tokens"
USAGE_REASONING: Final = "gen_ai.usage.reasoning.output_tokens"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOKEN_TYPE: Final = "gen_ai.token.type"
ERROR_TYPE: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"

# Attributes with text, recorded only with `content=True`
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_CALL_RESULT: Final = "gen_ai.tool.call.result"

# Metrics
OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
TOKEN_USAGE: Final = "gen_ai.client.token.usage"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.client.operation.time_to_first_chunk"

# Our own attributes
LOOP_ID: Final = "steersman.loop_id"
CONTINUATION: Final = "steersman.continuation"
END_REASON: Final = "steersman.end_reason"
TURNS: Final = "steersman.turns"
COST: Final = "steersman.cost_usd"
TOOL_STATUS: Final = "steersman.tool.status"
LINK: Final = "steersman.link"

# Our own span events
EVENT_STEERING: Final = "steersman.steering"
EVENT_FOLLOW_UP: Final = "steersman.follow_up"
EVENT_APPROVAL_REQUESTED: Final = "steersman.approval_requested"
EVENT_APPROVAL_RESOLVED: Final = "steersman.approval_resolved"
EVENT_COMPACTION: Final = "steersman.compaction"
EVENT_PRUN: Final = "steersman.prun"
EVENT_RETRY: Final = "steersman.retry"
EVENT_FALLBACK: Final = "steersman.fallback"
EVENT_LIMIT: Final = "steersman.limit"
EVENT_INPUT_REJECTED: Final = "steersman.input_rejected"
EVENT_LOOP_DETECTED: Final = "steersman.loop_detected"

UNKNOWN_TOOL: Final = "(unknown)"
"""The name of a tool that the agent does not have: the model wrote that name, so it is text."""

# Where the conventions have another name for a provider than we do.
_PROVIDERS: Mapping[str, str] = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "openai-chat": "openai",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}
_FINISH_REASONS: Mapping[str, str] = {"tool_use": "tool_call", "refusal": "content_filter"}


def name_provider(provider: str) -> str:
    """The name of a provider in the conventions; our own where they have none."""
    return _PROVIDERS.get(provider, provider)


def name_finish_reason(stop_reason: str) -> str:
    """The finish reason of the conventions for a stop reason."""
    return _FINISH_REASONS.get(stop_reason, stop_reason)
