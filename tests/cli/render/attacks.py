"""Texts that would do something to a terminal, and what may be written to one."""

from __future__ import annotations

import re

from hypothesis import strategies as st

ESC, CSI, OSC, DCS, APC, PM, SOS, ST, BEL = "\x1b", "\x9b", "\x9d", "\x90", "\x9f", "\x9e", "\x98", "\x9c", "\x07"

ATTACKS: dict[str, str] = {
    # Sequences that begin with ESC [
    "a colour": f"{ESC}[31mred{ESC}[0m",
    "a colour of 256": f"{ESC}[38;5;196mred",
    "a true colour": f"{ESC}[38:2::255:0:0mred",
    "invisible text": f"{ESC}[8mrm -rf ~{ESC}[28m",
    "an empty colour": f"{ESC}[m",
    "clearing the screen": f"{ESC}[2J",
    "clearing the scrollback": f"{ESC}[3J",
    "clearing the line": f"{ESC}[2K",
    "going home": f"{ESC}[H",
    "going up": f"{ESC}[99A",
    "going to a place": f"{ESC}[1;1Hfake",
    "saving the cursor": f"{ESC}[s{ESC}[u",
    "hiding the cursor": f"{ESC}[?25l",
    "the alternate screen": f"{ESC}[?1049h",
    "bracketed paste": f"{ESC}[?2004h",
    "the mouse": f"{ESC}[?1000;1006h",
    "the scroll region": f"{ESC}[5;10r",
    "inserting lines": f"{ESC}[10L",
    "asking where the cursor is": f"{ESC}[6n",
    "asking what terminal it is": f"{ESC}[c",
    "asking for the window title": f"{ESC}[21t",
    "resizing the window": f"{ESC}[8;1;1t",
    "repeating a character": f"A{ESC}[1000000b",
    "printing to a printer": f"{ESC}[5irm{ESC}[4i",
    "a soft reset": f"{ESC}[!p",
    "pasted keys": f"{ESC}[201~rm -rf ~\n{ESC}[200~",
    "the keyboard protocol": f"{ESC}[>1u",
    "a sequence with a control inside": f"{ESC}[3\n1m",
    "a sequence that never ends": f"{ESC}[31",
    # Commands of the operating system and other strings
    "a window title": f"{ESC}]0;owned{BEL}",
    "a window title ended by ST": f"{ESC}]2;owned{ESC}\\",
    "the clipboard": f"{ESC}]52;c;cm0gLXJmIH4K{BEL}",
    "reading the clipboard": f"{ESC}]52;c;?{BEL}",
    "a hyperlink": f"{ESC}]8;;http://evil.example{ESC}\\bank{ESC}]8;;{ESC}\\",
    "another palette": f"{ESC}]4;1;rgb:00/00/00{BEL}",
    "another text colour": f"{ESC}]10;#000000{BEL}",
    "a notification": f"{ESC}]9;hello{BEL}",
    "a picture": f"{ESC}]1337;File=inline=1:aGk={BEL}",
    "a working folder": f"{ESC}]7;file:///etc{BEL}",
    "shell integration": f"{ESC}]133;D;0{BEL}",
    "a string that never ends": f"{ESC}]0;owned",
    "a device string": f"{ESC}P$q m{ESC}\\",
    "a sixel picture": f"{ESC}Pq#0;2;0;0;0~-{ESC}\\",
    "a string through tmux": f"{ESC}Ptmux;{ESC}{ESC}]52;c;eA=={BEL}{ESC}\\",
    "an application command": f"{ESC}_Gf=24;AAAA{ESC}\\",
    "a privacy message": f"{ESC}^hidden{ESC}\\",
    "a start of string": f"{ESC}Xhidden{ESC}\\",
    # Sequences of ESC and one or two characters
    "a full reset": f"{ESC}c",
    "another charset": f"{ESC}(0lqk{ESC}(B",
    "another coding system": f"{ESC}%G",
    "lines of double height": f"{ESC}#3",
    "a reverse line feed": f"{ESC}M",
    "the keypad": f"{ESC}=",
    "a lone ESC": ESC,
    "ESC before ESC": f"{ESC}{ESC}[2J",
    # The same in eight bits
    "an eight-bit sequence": f"{CSI}2J",
    "an eight-bit title": f"{OSC}0;owned{ST}",
    "an eight-bit clipboard": f"{OSC}52;c;eA=={ST}",
    "an eight-bit device string": f"{DCS}$qm{ST}",
    "an eight-bit application command": f"{APC}Gf=24{ST}",
    "eight-bit strings": f"{PM}x{ST}{SOS}x{ST}",
    "an eight-bit next line": "a\x85b",
    "an eight-bit index": "a\x84b\x8d",
    "bytes of C1 taken for characters": "\xc2\x9b2J",
    # Single characters
    "writing over a line": "rm -rf ~\rls     ",
    "writing over by backspace": "rm -rf ~\b\b\b\b\b\b\b\bls      ",
    "a bell": BEL,
    "shifting the charset": "\x0elqk\x0f",
    "a form feed": "a\x0cb",
    "a vertical tab": "a\x0bb",
    "a null": "a\x00b",
    "delete": "rm\x7f\x7fls",
    "enquiry": "\x05",
    "a substitute": f"{ESC}[3\x1a1m",
    "flow control": "\x13\x11",
    "all of C0": "".join(map(chr, range(0x20))),
    "all of C1": "".join(map(chr, range(0x80, 0xA0))),
    # Text that reads otherwise than it is
    "the other direction": "\u202ecod.exe\u202c",
    "isolated directions": "\u2066a\u2067b\u2068c\u2069",
    "marks of direction": "a\u200e\u200f\u061cb",
    "a line separator": "a\u2028b\u2029c",
    "words in tags": "ok" + "".join(chr(0xE0000 + ord(letter)) for letter in "rm -rf"),
    "annotations": "\ufff9a\ufffab\ufffb",
    "half a character": "a\ud83db",
    "ESC as a character reference": "&#27;[2J &#x1b;]0;x&#7; &#13;gone &#x9b;2J &#x202e;x &#8;",
    "markup of another library": "[bold red]x[/] [link=http://evil.example]x[/link] :smile:",
}

FORMS: dict[str, str] = {
    "as it is": "{}",
    "in a heading": "# {}",
    "in a list": "- a\n- {}\n  1. {}",
    "in a code block": "```sh\n{}\n```",
    "in the language of a code block": "```{}\nx\n```",
    "in a code block that stays open": "```\n{}",
    "in code": "a `{}` b",
    "in emphasis": "a **b {}** *{}* ~~{}~~",
    "in a link": "[{}](http://a.example/{})",
    "in the target of a link": "[a](<http://a.example/{}>)",
    "in the title of a link": '[a](http://a.example "{}")',
    "in a bare link": "<http://a.example/{}>",
    "in a picture": "![{}](http://a.example/{})",
    "in a table": "| {} | b |\n|---|---|\n| a | {} |",
    "in a quotation": "> {}\n> > {}",
    "in HTML": "<div onclick='{}'>{}</div>",
    "in a comment": "<!-- {} -->",
    "in a definition": "[a]: http://a.example '{}'\n\n[a]",
    "indented": "    {}",
}

ANY_TEXT = st.text(
    st.one_of(
        st.characters(codec=None),
        st.sampled_from(
            "\x1b\x9b\x9d\x07\r\n\t\b[]()<>;?&#!|-*_`~>0123mJHl\\ \u202e\u200b\u0301\ud83d\ude00\u6f22\ufe0f"
        ),
    )
)
"""Any text at all, and the likes of the above more often than chance would have it."""

_OURS = re.compile(rb"\x1b\[[0-9;]*m")
_DRAWING = re.compile(rb"\x1b\[\?25[lh]|\x1b\[\?7[lh]|\x1b\[[0-9]+A|\r\x1b\[J")
_CONTROL = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
_UNSEEN = re.compile("[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\U000e0000-\U000e007f]")
_COLOURS = {b"0", b"1", b"2", b"3", b"4", b"9", b"31", b"32", b"33", b"36"}


def check_lines(text: str, *, color: bool = True) -> None:
    """Nothing but text, line breaks and the few colours of ours, each taken back at the end of its words."""
    data = text.encode()
    if not color:
        assert b"\x1b" not in data, data
    for sequence in _OURS.findall(data):
        assert set(sequence[2:-1].split(b";")) <= _COLOURS, sequence
    rest = _OURS.sub(b"", data)
    assert not _CONTROL.search(rest), rest
    assert not _UNSEEN.search(rest.decode()), rest
    for line in data.split(b"\n"):
        sequences = _OURS.findall(line)
        assert sequences == [] or sequences[-1] == b"\x1b[0m", line


def check_written(data: bytes | bytearray) -> None:
    """What a terminal got: lines as above, and the few sequences that draw the live part."""
    plain = _DRAWING.sub(b"", data).replace(b"\r\n", b"\n")
    check_lines(plain.decode())
