"""The tools `prun` and `prun_with_memo`: the model drops its own recent work from the context.

They only return an effect; the loop drops the messages.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from steersman.tools.tool import tool
from steersman.types.tools import Prun, ToolOutput

Tokens = Annotated[int, msgspec.Meta(ge=1, description="How many tokens to free, at least.")]


@tool(name="prun", access="read")
async def prun(tokens: Tokens) -> ToolOutput:
    """Drop your own most recent work (your messages and their tool results) from the context, to free tokens.

    Use it when recent steps led nowhere and are not needed any more. What the user said is never dropped.
    """
    return ToolOutput(
        f"At least {tokens} tokens of your recent work are dropped after this step.", effects=[Prun(tokens)]
    )


@tool(name="prun_with_memo", access="read")
async def prun_with_memo(
    tokens: Tokens,
    memo: Annotated[str, msgspec.Meta(min_length=1, description="What to remember of the dropped work.")],
) -> ToolOutput:
    """Drop your own most recent work (your messages and their tool results) and leave a memo in its place.

    Use it when recent steps are done and only their outcome matters. What the user said is never dropped.
    """
    return ToolOutput(
        f"At least {tokens} tokens of your recent work are dropped after this step; your memo stays in their place.",
        effects=[Prun(tokens, memo)],
    )
