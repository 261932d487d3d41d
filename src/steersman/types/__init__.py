"""Plain values: nothing here waits, reads a clock or does I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily

if TYPE_CHECKING:
    from steersman.types.artifacts import Artifact, ArtifactNotFound, Artifacts
    from steersman.types.cancel import CancelToken
    from steersman.types.content import Content, ImageContent, TextContent, ThinkingContent, ToolCall
    from steersman.types.continuation import Branch, Compaction, ContinuationKind, Default, Initial, Rerun
    from steersman.types.errors import (
        AgentBusy,
        AuthenticationError,
        ContextOverflowError,
        ErrorInfo,
        ErrorKind,
        IncompleteStreamError,
        InvalidRequestError,
        MissingExtra,
        NetworkError,
        OutcomeUnknown,
        OverloadedError,
        ProtocolError,
        ProviderError,
        QuotaError,
        RateLimitError,
        RefusedError,
        RunFailed,
        StalledError,
        SteersmanError,
        ToolError,
        UnknownApproval,
    )
    from steersman.types.messages import (
        AgentMessage,
        AssistantMessage,
        EndReason,
        ExtensionMessage,
        Message,
        MessageLike,
        PartialMessage,
        StopReason,
        ToolResultMessage,
        ToolStatus,
        UserMessage,
    )
    from steersman.types.model import (
        Model,
        Request,
        StreamFn,
        StreamOptions,
        StreamResponse,
        ThinkingLevel,
        ToolChoice,
        ToolSpec,
    )
    from steersman.types.result import RunResult
    from steersman.types.state import State
    from steersman.types.stream import (
        STREAM_UPDATE_EVENTS,
        Delta,
        Done,
        Failed,
        FallbackNotice,
        Reset,
        RetryNotice,
        StreamEvent,
        StreamStart,
        TextDelta,
        TextEnd,
        TextStart,
        ThinkingDelta,
        ThinkingEnd,
        ThinkingStart,
        ToolCallDelta,
        ToolCallEnd,
        ToolCallStart,
    )
    from steersman.types.tools import Effect, Prun, ToolOutput
    from steersman.types.usage import Prices, Usage
    from steersman.types.wire import decode, encode

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "artifacts": "Artifact ArtifactNotFound Artifacts",
        "cancel": "CancelToken",
        "content": "Content ImageContent TextContent ThinkingContent ToolCall",
        "continuation": "Branch Compaction ContinuationKind Default Initial Rerun",
        "errors": (
            "AgentBusy AuthenticationError ContextOverflowError ErrorInfo ErrorKind "
            "IncompleteStreamError InvalidRequestError MissingExtra NetworkError OutcomeUnknown OverloadedError "
            "ProtocolError ProviderError QuotaError RateLimitError RefusedError RunFailed StalledError "
            "SteersmanError ToolError UnknownApproval"
        ),
        "messages": (
            "AgentMessage AssistantMessage EndReason ExtensionMessage Message MessageLike PartialMessage "
            "StopReason ToolResultMessage ToolStatus UserMessage"
        ),
        "model": ("Model Request StreamFn StreamOptions StreamResponse ThinkingLevel ToolChoice ToolSpec"),
        "result": "RunResult",
        "stream": (
            "Delta Done Failed FallbackNotice Reset RetryNotice STREAM_UPDATE_EVENTS StreamEvent "
            "StreamStart TextDelta TextEnd TextStart ThinkingDelta ThinkingEnd ThinkingStart "
            "ToolCallDelta ToolCallEnd ToolCallStart"
        ),
        "tools": "Effect Prun ToolOutput",
        "state": "State",
        "usage": "Prices Usage",
        "wire": "decode encode",
    },
)

__all__ = [
    "AgentBusy",
    "AgentMessage",
    "Artifact",
    "ArtifactNotFound",
    "Artifacts",
    "AssistantMessage",
    "AuthenticationError",
    "Branch",
    "CancelToken",
    "Compaction",
    "Content",
    "ContextOverflowError",
    "ContinuationKind",
    "Default",
    "Delta",
    "Done",
    "Effect",
    "EndReason",
    "ErrorInfo",
    "ErrorKind",
    "ExtensionMessage",
    "Failed",
    "FallbackNotice",
    "ImageContent",
    "IncompleteStreamError",
    "Initial",
    "InvalidRequestError",
    "Message",
    "MessageLike",
    "MissingExtra",
    "Model",
    "NetworkError",
    "OutcomeUnknown",
    "OverloadedError",
    "PartialMessage",
    "Prices",
    "ProtocolError",
    "ProviderError",
    "Prun",
    "QuotaError",
    "RateLimitError",
    "RefusedError",
    "Request",
    "Rerun",
    "Reset",
    "RetryNotice",
    "RunFailed",
    "RunResult",
    "STREAM_UPDATE_EVENTS",
    "StalledError",
    "State",
    "SteersmanError",
    "StopReason",
    "StreamEvent",
    "StreamFn",
    "StreamOptions",
    "StreamResponse",
    "StreamStart",
    "TextContent",
    "TextDelta",
    "TextEnd",
    "TextStart",
    "ThinkingContent",
    "ThinkingDelta",
    "ThinkingEnd",
    "ThinkingLevel",
    "ThinkingStart",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallEnd",
    "ToolCallStart",
    "ToolChoice",
    "ToolError",
    "ToolOutput",
    "ToolResultMessage",
    "ToolSpec",
    "ToolStatus",
    "UnknownApproval",
    "Usage",
    "UserMessage",
    "decode",
    "encode",
]
