"""What a crash left: the calls at the end of a log that have no result there, and what the records know about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from steersman.context.log import Log
from steersman.context.recovery import Recovery, open_calls
from steersman.session.reading import read_message
from steersman.session.records import Record
from steersman.session.tree import Tree
from steersman.types.messages import ToolResultMessage


def recovered(log: Log, tree: Tree, records_after: Callable[[int], Iterator[Record]]) -> Recovery | None:
    """What is known about the open calls at the end of a log; `None` when there are none that were asked for here.

    The same call id may stand for other calls on other branches, so what counts is what was written under this answer
    or under what followed it.
    """
    left = open_calls(log.messages)
    if left is None:
        return None
    answer = tree.nodes.get(log.entry_id_of(left.index))
    if answer is None or not answer.own:
        return None  # it came from elsewhere: nobody here asked for these calls, and nobody is going to run them
    ids = {call.id for call in left.calls}
    path = {node.id for node in tree.path(log.entries[-1].id) if node.seq >= answer.seq}
    results: dict[str, ToolResultMessage] = {}
    started: set[str] = set()
    for record in records_after(answer.seq):
        call_id = record.payload.get("tool_call_id")
        if record.parent not in path or call_id not in ids or not isinstance(call_id, str):
            continue
        if record.type == "intent":
            started.add(call_id)
        elif record.type == "result":
            message = read_message(record.payload.get("message"))
            if isinstance(message, ToolResultMessage) and message.tool_call_id == call_id:
                results.setdefault(call_id, message)
    return Recovery(results, frozenset(started))
