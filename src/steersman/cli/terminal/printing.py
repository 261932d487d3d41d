"""Values as JSON on standard output, for programs; a terminal gets nothing of it that could steer it."""

from __future__ import annotations

import json
import sys

import msgspec

from steersman.cli.terminal.sanitize import safe


def print_json(value: object) -> None:
    """Print a value, indented. File names need not be UTF-8: what is not becomes a question mark."""
    text = json.dumps(msgspec.to_builtins(value, enc_hook=repr), ensure_ascii=False, indent=2)
    print(safe(text) if sys.stdout.isatty() else text.encode(errors="replace").decode())
