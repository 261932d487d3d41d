"""A conversation as one HTML file that needs nothing else: no script, no request, and all text escaped.

A content security policy in the file forbids what the escaping already prevents.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from steersman.context.entries import Entry, MessageEntry
from steersman.session.describe import describe_author, describe_change, encode_json
from steersman.types.code_blocks import split_code
from steersman.types.content import ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage
from steersman.types.visible import sanitize, sanitize_line

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
TRANSCRIPT_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
section { border-top: 1px solid #8884; padding: .5rem 0; }
h1 { font-size: 1.3rem; } h2 { font-size: .85rem; margin: 0 0 .3rem; opacity: .7; }
.user { border-left: 4px solid #38f; padding-left: .8rem; }
.failed h2 { color: #c33; opacity: 1; }
p, pre { white-space: pre-wrap; margin: .4rem 0; }
pre { font: 13px/1.45 ui-monospace, monospace; background: #8881; padding: .6rem; border-radius: 4px; }
.thinking, .note { opacity: .7; font-style: italic; }
img { max-width: 100%; }
"""


def export_html(title: str, entries: Sequence[Entry]) -> str:
    """Exports a conversation as an HTML document."""
    name = escape_text(sanitize_line(title)) or "A session"
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n',
            '<meta name="viewport" content="width=device-width">\n<meta name="referrer" content="no-referrer">\n',
            f"<title>{name}</title>\n<style>{TRANSCRIPT_STYLE}</style>\n</head>\n<body>\n<h1>{name}</h1>\n",
            *render_entries(entries),
            "</body>\n</html>\n",
        ]
    )


def render_entries(entries: Iterable[Entry]) -> Iterator[str]:
    """Renders the entries of a conversation, without the document around them."""
    for entry in entries:
        yield from _render_entry(entry)


def _render_entry(entry: Entry) -> Iterator[str]:
    if not isinstance(entry, MessageEntry):
        yield f'<section><p class="note">{escape_text(describe_change(entry))}</p></section>\n'
        return
    message = entry.message
    author, _ = describe_author(message)
    failed = " failed" if isinstance(message, ToolResultMessage) and message.is_error else ""
    kind = f"user{failed}" if message.role == "user" else f"other{failed}"
    yield f'<section class="{kind}">\n<h2>{escape_text(author)}</h2>\n'
    yield from _render_message(message)
    yield "</section>\n"


def _render_message(message: AgentMessage) -> Iterator[str]:
    plain = isinstance(message, ToolResultMessage)
    for block in message.content:
        match block:
            case TextContent(text=text) if text.strip():
                yield from [_render_code(text)] if plain else _render_text(text)
            case ThinkingContent(thinking=text) if text.strip():
                yield f'<p class="thinking">{escape_text(text.strip())}</p>\n'
            case ToolCall():
                given = block.raw_arguments
                yield f"<p>Calls <b>{escape_text(sanitize_line(block.name))}</b>:</p>\n"
                yield _render_code(encode_json(block.arguments) if given is None else given)
            case ImageContent():
                yield _render_image(block)
            case _:
                pass
    if isinstance(message, AssistantMessage) and message.error_message:
        yield f"<p><b>Error:</b> {escape_text(message.error_message)}</p>\n"


def _render_text(text: str) -> Iterator[str]:
    for part in split_code(text):
        if part.language is not None:
            yield _render_code(part.text)
        elif part.text.strip():
            yield f"<p>{escape_text(part.text.strip())}</p>\n"


def _render_code(text: str) -> str:
    # A line break at the beginning of a `pre` is not shown.
    return f"<pre>\n{escape_text(text)}</pre>\n"


def _render_image(block: ImageContent) -> str:
    """An image inside the file; only of a kind that is nothing but pixels, so no SVG."""
    try:
        if block.mime_type not in _IMAGES or not _BASE64.fullmatch(block.data) or not b64decode(block.data):
            raise ValueError
    except ValueError:
        return f'<p class="note">(an image, {escape_text(sanitize_line(block.mime_type))})</p>\n'
    return f'<p><img alt="an image" src="data:{block.mime_type};base64,{block.data}"></p>\n'


def escape_text(text: str) -> str:
    """Escapes untrusted text for HTML; control characters are shown."""
    return escape(sanitize(text.replace("\r\n", "\n")))
