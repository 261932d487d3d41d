"""HTML as text: what a reader would see, links kept, and no page too broken or too hostile."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from steersman.tools.builtin.html import Page, extract_text

URL = "https://example.org/dir/page?q"


def text(html: str, limit: int = 100_000) -> str:
    return extract_text(html, URL, limit=limit).text


@each_row(
    ("html", "words"),
    [
        ("plain", "plain"),
        ("a  b\n\tc", "a b c"),
        ("<p>one<p>two</p>three", "one\n\ntwo\n\nthree"),
        ("<div>one</div><div><div>two</div></div>", "one\ntwo"),
        ("one<br>two<br/>three", "one\ntwo\nthree"),
        ("<b>bo</b>ld and <i> it </i>alic", "bold and it alic"),
        ("<h1>A</h1><h3>B <em>c</em></h3>d", "# A\n\n### B c\n\nd"),
        ("<h2></h2>x", "x"),
        ("<ul><li>a<li>b<ul><li>c</ul><li><p>d</p></ul>e", "- a\n- b\n  - c\n- d\n\ne"),
        ("<ol><li>a</li><li>b</li></ol>", "1. a\n2. b"),
        ("<ul><li></li><li>x</li></ul>", "- x"),
        ("<li>alone", "- alone"),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("<table><tr><th>a<th>b<tr><td>1</td><td>2</td></table>", "a | b\n1 | 2"),
        ("<pre>  x\n\n   y &lt; z</pre>after", "```\n  x\n\n   y < z\n```\n\nafter"),
        ("use <code>f(x)</code>, yes", "use `f(x)`, yes"),
        ("<pre><code>x</code></pre>", "```\nx\n```"),
        ("<img src=x alt='A  cat'> <img src=y>", "[image: A cat]"),
        ("&amp;&copy;&#65;&nope; &lt;p&gt;", "&©A&nope; <p>"),
        ("1 < 2 and 3 <4 <> </ x", "1 < 2 and 3 <4 <> </ x"),
        ("a<!-- <p>b</p> -->c<!>d<?php e ?>f<!doctype html>g", "acdfg"),
        ("a<!-->b", "ab"),
        ("a<!-- never closed <p>b", "a"),
        ("a<script>if (1 < 2) '<p>'</script>b<STYLE>p{}</Style >c", "abc"),
        ("a<svg><title>x</title><text>y</text></svg>b<template><p>z</p></template>", "ab"),
        ("a<svg>b", "ab"),
        ("a<script>b", "a"),
        ("a<script src=x></script\n>b", "ab"),
        ("a <p", "a"),
        ("a <p class='x", "a"),
        ("<p title='a > b' data-x=\"<i>\">c</p>", "c"),
        ("<P CLASS=x>c</P >d", "c\n\nd"),
        ("<p/>a</p/>b", "a\n\nb"),
        ("</p></li></a></ul></pre></h1>x", "x"),
    ],
)
def test_a_page_reads_as_it_looks(html: str, words: str) -> None:
    assert text(html) == words


@each_row(
    ("html", "words"),
    [
        ("see <a href=/x>this <b>page</b></a>.", "see [this page](https://example.org/x)."),
        ("<a href='y?a=1&amp;b=2'> y </a>z", "[y](https://example.org/dir/y?a=1&b=2) z"),
        ("<a href=//cdn.example/z>z</a>", "[z](https://cdn.example/z)"),
        ("<a href='/a (b)'>c</a>", "[c](https://example.org/a%20%28b%29)"),
        ("<a href='mailto:a@example.org'>me</a>", "[me](mailto:a@example.org)"),
        ("<a href='#top'>up</a> <a>none</a> <a href=''>empty</a>", "up none empty"),
        ("<a href='javascript:alert(1)'>js</a> <a href='data:text/html,x'>data</a>", "js data"),
        ("<a href=' \njava\nscript:x'>js</a>", "js"),
        ("<a href='http://[bad/'>odd</a>", "odd"),
        ("<a href=/x></a>y", "y"),
        ("<a href=/x><img alt=Logo></a>", "[[image: Logo]](https://example.org/x)"),
        ("<a href=/x><div>Card</div><p>more</p></a>z", "[Card more](https://example.org/x)\n\nz"),
        ("<a href=/x>one<a href=/y>two", "[one](https://example.org/x)[two](https://example.org/y)"),
        ("<base href='https://other.example/'><a href=x>x</a>", "[x](https://other.example/x)"),
        ("<base href='javascript:x'><a href=x>x</a>", "[x](https://example.org/dir/x)"),
        ("<base><base href=/a/><base href=b/><a href=x>x</a>", "[x](https://example.org/a/x)"),
        (f"<base href='{'(' * 1_500}/'><a href=x>x</a>", "[x](https://example.org/dir/x)"),
        ("<li><a href=/x>x</a>", "- [x](https://example.org/x)"),
        ("<a href=/x\x00y>x</a>", "[x](https://example.org/xy)"),
        (f"<a href=/{'x' * 3000}>long</a>", "long"),
        ("<pre><a href=/x>x</a></pre>", "```\nx\n```"),
    ],
)
def test_links_are_kept_as_they_can_be_fetched(html: str, words: str) -> None:
    assert text(html) == words


def test_the_title_stands_apart() -> None:
    html = "<head><title> A &amp;\n B </title></head><body>text<title>second</title>"
    assert extract_text(html, URL, limit=1_000) == Page("A & B", "textsecond", True)


@each_row("digits", [99, 101, 5_000, 400_000])
@each_row("end", [";", ""])
def test_the_number_of_a_character_may_have_any_length(digits: int, end: str) -> None:
    """Python itself does not read one of more than 4,300 digits."""
    assert text(f"a&#{'1' * digits}{end} b") == "a\ufffd b"
    assert text(f"<a href='&#{'1' * 1_500}{end}'><img alt='&#{'1' * digits}{end}'>") == (
        "[[image: \ufffd]](https://example.org/dir/\ufffd)"
    )


def test_reading_stops_when_it_is_told_to() -> None:
    looks = iter([False, False, True])
    page = extract_text("<p>one<p>two<p>three", URL, limit=1_000, stopped=lambda: next(looks))
    assert page == Page("", "one", False)


def test_what_is_too_long_is_cut() -> None:
    assert extract_text("<p>abc<p>defgh<p>ij", URL, limit=14) == Page("", "abc\n\ndefgh\n\nij", True)
    assert extract_text("<p>abc<p>defgh<p>ij", URL, limit=9) == Page("", "abc\n\ndefg", False)


def test_links_do_not_make_a_page_longer_than_it_may_be() -> None:
    page = extract_text("<a href=x>y</a>" * 50_000, "https://example.org/" + "d" * 1_000 + "/", limit=100_000)
    assert (len(page.text), page.whole) == (100_000, False)


TAGS = [
    "<a href=x>",
    "</a>",
    "<pre>",
    "</pre>",
    "<li>",
    "<ul>",
    "</ul>",
    "<script>",
    "</script",
    "<h1>",
    "<td>",
    "<title>",
]
SIGNS = ["<", ">", "/", "a", "p", " ", "=", '"', "'", "<!--", "-->", "&lt;", "&", "#", "\n", "\x00", "\ud800"]


@given(st.lists(st.sampled_from([*TAGS, *SIGNS]), max_size=40).map("".join))
def test_any_page_can_be_read(html: str) -> None:
    page = extract_text(html, URL, limit=50)
    assert len(page.text) <= 50


OPEN = ["<", "<a ", '<a b="', "<a b='", "<svg>", "<svg></sv", "<!--", "<!", "<a<", "</a", "<a =", "<a / ", "<script>"]


@pytest.mark.parametrize(
    "unit",
    [*OPEN, "<h1>", "<ul><li>", "<pre>", "&", "&#1", "<title>", "<p>x", "<td>", "<a href=x>", "<base href=x/>", " "],
)
def test_a_hostile_page_takes_time_in_proportion(unit: str) -> None:
    """failures.md F16: sixteen times the page takes nowhere near two hundred and fifty-six times as long."""

    def seconds(size: int) -> float:
        html = unit * (size // len(unit))
        start = time.process_time()
        extract_text(html, URL, limit=size)
        return time.process_time() - start

    small = min(seconds(15_000) for _ in range(3))
    assert seconds(240_000) < 64 * small + 0.5
