"""What the terminal sends for keys beyond those that prompt_toolkit knows, such as Shift+Enter.

Without this, a sequence that it does not know is Esc, which interrupts the run, and the rest of it is typed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import ascii_lowercase
from typing import TypeAlias

from prompt_toolkit.input import Input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.keys import Keys

_Key: TypeAlias = "Keys | tuple[Keys, ...]"

_SHIFT, _ALT, _CTRL = 2, 3, 5


def _name(code: int, modifier: int, key: _Key) -> dict[str, _Key]:
    """Names a key in the two ways in which terminals send one with a modifier."""
    return {f"\x1b[{code};{modifier}u": key, f"\x1b[27;{modifier};{code}~": key}


_ENTER = 13
_KEYS: Mapping[str, _Key] = {
    **_name(_ENTER, _SHIFT, Keys.ControlJ),
    **_name(_ENTER, _CTRL, Keys.ControlJ),
    **_name(_ENTER, _ALT, (Keys.Escape, Keys.ControlM)),
    **{sent: key for letter in ascii_lowercase for sent, key in _name(ord(letter), _CTRL, Keys(f"c-{letter}")).items()},
    "\x1b[27u": Keys.Escape,
}
_SEQUENCE = re.compile(r"\x1b\[[\d;]*[A-Za-z~]")


class KeyParser(Vt100Parser):
    """Reads keys; a whole sequence that no key is known for, such as the focus of the window, is ignored."""

    def _get_match(self, prefix: str) -> _Key | None:
        found = _KEYS.get(prefix) or super()._get_match(prefix)
        return Keys.Ignore if found is None and _SEQUENCE.fullmatch(prefix) else found


def read_more_keys(source: Input) -> None:
    """Lets an input read these keys too, if it is a terminal."""
    if isinstance(source, Vt100Input):
        source.vt100_parser = KeyParser(source.vt100_parser.feed_key_callback)
