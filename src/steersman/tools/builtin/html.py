"""Extracts readable text from HTML, with links as `[text](url)`.

Each character is read a bounded number of times, however malformed or hostile the page is, and the output never gets
longer than its limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import unescape as unescape_short
from typing import NamedTuple
from urllib.parse import urljoin

_MARKUP = re.compile(r"<(?=[a-zA-Z!?]|/[a-zA-Z])")
_NAME = re.compile(r"/?([a-zA-Z][^\s/>]*)")
_ATTRIBUTE = re.compile(r"""([^\s/>][^\s/>=]*)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]*)))?""")
_BETWEEN = re.compile(r"[\s/]*")
_SPACE = re.compile(r"\s+")
# Elements that contain code, data or a drawing.
_SKIPPED = re.compile("canvas|iframe|noembed|noframes|object|script|select|style|svg|template|textarea")
_RAW = frozenset(("script", "style"))
_PARAGRAPH = re.compile("article|blockquote|body|dl|fieldset|figure|footer|form|header|main|nav|p|section|table")
_LINE = re.compile("address|aside|caption|center|dd|details|div|dt|figcaption|legend|option|summary|tr")
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_LISTS = frozenset(("menu", "ol", "ul"))
_MAX_LIST_DEPTH = 8
_IN_A_LINK = str.maketrans({" ": "%20", "(": "%28", ")": "%29", "<": "%3C", ">": "%3E", "\\": "%5C"})
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST_URL = 2_000
# Python refuses to parse a number of several thousand digits, and a character reference has at most seven.
_LONG_NUMBER = re.compile(r"&#[0-9]{100,};?")


class Page(NamedTuple):
    """The text of a page; `whole` is false where it was truncated."""

    title: str
    text: str
    whole: bool


class _Tag(NamedTuple):
    name: str
    closing: bool
    attributes: dict[str, str]


def unescape(text: str) -> str:
    """Replace character references such as `&amp;` by their characters."""
    return unescape_short(_LONG_NUMBER.sub("\ufffd", text)) if "&" in text else text


def extract_text(html: str, url: str, *, limit: int, stopped: Callable[[], bool] = lambda: False) -> Page:
    """Extract the text of a page; links are relative to `url`. Ends early when `stopped()` is true."""
    writer = _Writer(url, limit)
    whole = True
    for token in _tokenize(html):
        if stopped():
            whole = False
            break
        if isinstance(token, str):
            writer.write_text(unescape(token))
        elif token.closing:
            writer.close_tag(token.name)
        else:
            writer.open_tag(token)
        if writer.size > limit:
            break
    text = writer.finish()
    return Page(writer.title, text[:limit], whole and writer.size <= limit)


class _Scanner:
    """Finds tags in a page; a closing tag that was not found once is not searched again."""

    def __init__(self, html: str) -> None:
        self.html = html
        self.absent: set[str] = set()

    def find_closing_tag(self, name: str, start: int) -> int:
        """Find where the closing tag of an element begins, or -1."""
        if name not in self.absent:
            found = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE | re.ASCII).search(self.html, start)
            if found is not None:
                return found.start()
            self.absent.add(name)
        return -1

    def read_tag(self, start: int) -> tuple[_Tag, int] | None:
        """Read the tag that begins at a `<`, and where it ends; `None` for one that never ends."""
        html = self.html
        name = _NAME.match(html, start + 1)
        if name is None:
            return None
        attributes: dict[str, str] = {}
        at = _skip(_BETWEEN, html, name.end())
        while (found := _ATTRIBUTE.match(html, at)) is not None:
            value = next((value for value in found.groups()[1:] if value is not None), "")
            attributes.setdefault(found[1].lower(), value)
            at = _skip(_BETWEEN, html, found.end())
        if at >= len(html):
            return None
        return _Tag(name[1].lower(), html[start + 1] == "/", attributes), at + 1


def _tokenize(html: str) -> Iterator[str | _Tag]:
    """Yield the texts and tags of a page, without comments, scripts and other content that is not text."""
    scanner, at = _Scanner(html), 0
    while (begun := _MARKUP.search(html, at)) is not None:
        start = begun.start()
        if start > at:
            yield html[at:start]
        if html[start + 1] in "!?":
            at = _skip_declaration(html, start)
        elif (found := scanner.read_tag(start)) is None:
            return
        else:
            tag, at = found
            if tag.closing or not _SKIPPED.fullmatch(tag.name):
                yield tag
            elif (end := scanner.find_closing_tag(tag.name, at)) >= 0:
                at = end
            elif tag.name in _RAW:
                return
    yield html[at:]


def _skip_declaration(html: str, start: int) -> int:
    mark = "-->" if html.startswith("<!--", start) else ">"
    # "<!-->" is a whole comment.
    found = html.find(mark, start + 2)
    return len(html) if found < 0 else found + len(mark)


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


class _Writer:
    """Writes the words of a page as lines. Line breaks and list marks are written with the next word."""

    def __init__(self, url: str, limit: int) -> None:
        self.title = ""
        self.size = 0
        self._limit = limit
        self._base = url
        self._has_base = False
        self._out: list[str] = []
        self._breaks = 0
        self._gap = False
        self._mark = ""
        self._pre = 0
        self._in_title = False
        self._cells = 0
        self._lists: list[int | None] = []
        self._link: tuple[str, int] | None = None

    def write_text(self, text: str) -> None:
        if self._in_title:
            self.title = f"{self.title} {_collapse_spaces(text)}".strip()[:300]
        elif self._pre:
            self._write(text)
        elif words := _collapse_spaces(text):
            if text[0].isspace():
                self._gap = True
            self._write(words)
            self._gap = text[-1].isspace()
        elif text:
            self._gap = True

    def open_tag(self, tag: _Tag) -> None:
        name, attributes = tag.name, tag.attributes
        match name:
            case "a":
                self._begin_link(attributes.get("href", ""))
            case "br":
                self._break(1)
            case "hr":
                self._break(2)
                self._write("---")
                self._break(2)
            case "img":
                self._write_image(attributes)
            case "title":
                self._in_title = not self.title
            case "base":
                self._set_base(attributes.get("href", ""))
            case "td" | "th":
                if self._cells:
                    self._write(" | ")
                    self._gap = False
                self._cells += 1
            case _:
                self._open_block(name)

    def close_tag(self, name: str) -> None:
        match name:
            case "a":
                self._end_link()
            case "title":
                self._in_title = False
            case "pre" if self._pre:
                self._pre -= 1
                self._write("\n```")
                self._break(2)
            case "li":
                self._mark = ""
                self._break(1)
            case "code" if not self._pre:
                self._write("`")
            case _ if name in _LISTS:
                self._mark = ""
                if self._lists:
                    self._lists.pop()
                self._break(1 if self._lists else 2)
            case _ if name in _HEADINGS:
                self._mark = ""
                self._break(2)
            case _:
                self._break_around(name)

    def finish(self) -> str:
        self._end_link()
        text = "".join(self._out)
        return "\n".join(line.rstrip() for line in text.split("\n")).strip("\n")

    def _open_block(self, name: str) -> None:
        if name in _HEADINGS:
            self._break(2)
            # It may be inside a list item; of several headings in a row, the last one counts.
            self._mark = self._mark.split("#")[0] + _HEADINGS[name]
        elif name in _LISTS:
            self._break(1 if self._lists else 2)
            self._lists.append(0 if name == "ol" else None)
        elif name == "li":
            self._begin_item()
        elif name == "pre":
            self._break(2)
            self._write("```\n")
            self._pre += 1
        elif name == "code" and not self._pre:
            self._write("`")
            self._gap = False
        else:
            self._cells = 0 if name == "tr" else self._cells
            self._break_around(name)

    def _begin_item(self) -> None:
        self._break(1)
        depth = min(len(self._lists), _MAX_LIST_DEPTH)
        mark = "- "
        if self._lists and (number := self._lists[-1]) is not None:
            self._lists[-1] = number + 1
            mark = f"{number + 1}. "
        self._mark = "  " * (depth - 1) + mark

    def _begin_link(self, href: str) -> None:
        self._end_link()
        if (url := self._resolve_link(href)) is not None and not self._pre:
            # Pending breaks belong before the link, not inside it.
            self._write("")
            self._link = url, len(self._out)

    def _end_link(self) -> None:
        if self._link is None:
            return
        (url, start), self._link = self._link, None
        words = _collapse_spaces("".join(self._out[start:]))
        if words:
            self._out[start:] = [f"[{words}]({url})"]
            self.size += len(url) + 4

    def _resolve_link(self, href: str) -> str | None:
        """Resolve a link to an absolute URL; `None` for a fragment, and for schemes such as javascript:."""
        href = unescape(href).strip()
        if not href or href.startswith("#") or len(href) > _LONGEST_URL:
            return None
        try:
            url = urljoin(self._base, href)
        except ValueError:
            return None
        if not url.lower().startswith(("http://", "https://", "mailto:")):
            return None
        return _CONTROLS.sub("", url).translate(_IN_A_LINK)

    def _set_base(self, href: str) -> None:
        # Only the first <base> counts, as in browsers; otherwise each could make the next one longer.
        if href and not self._has_base:
            self._has_base = True
            base = self._resolve_link(href)
            self._base = self._base if base is None or len(base) > _LONGEST_URL else base

    def _write_image(self, attributes: dict[str, str]) -> None:
        if words := _collapse_spaces(unescape(attributes.get("alt", ""))):
            self._write(f"[image: {words}]")

    def _break_around(self, name: str) -> None:
        if _PARAGRAPH.fullmatch(name):
            self._break(2)
        elif _LINE.fullmatch(name):
            self._break(1)

    def _break(self, lines: int) -> None:
        # The first words of a list item or heading stay on the line of its mark.
        if not self._pre and not (self._mark and self._breaks):
            self._breaks = max(self._breaks, lines)
            self._gap = False

    def _write(self, text: str) -> None:
        if self._breaks:
            if self._out:
                text = "\n" * self._breaks + self._mark + text
            else:
                text = self._mark + text
            self._breaks, self._mark, self._gap = 0, "", False
        elif self._mark:
            text, self._mark = self._mark + text, ""
        elif self._gap and self._out:
            text, self._gap = f" {text}", False
        self._out.append(text)
        self.size += len(text)


def _collapse_spaces(text: str) -> str:
    return _SPACE.sub(" ", text).strip()
