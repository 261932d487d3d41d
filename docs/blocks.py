"""The Python of the documents, block by block, and as modules for type checkers: python -m docs.blocks FOLDER."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
UNTYPED = "<!-- untyped -->"


class Block(NamedTuple):
    """A Python block and where it stands, as the number of lines above it."""

    code: str
    above: int


def name_file(path: Path) -> str:
    """Return the path of a file as a reader of this repository knows it."""
    return str(path.relative_to(ROOT))


def read_blocks(path: Path) -> list[Block]:
    """Return the Python blocks of a document."""
    text = path.read_text(encoding="utf-8")
    return [Block(match[1], text.count("\n", 0, match.start(1))) for match in BLOCK.finditer(text)]


def write_modules(folder: Path) -> None:
    """Write a module for each document that has Python in it; what is in the folder already is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in DOCUMENTS:
        if code := _join_blocks(path):
            name = name_file(path).removesuffix(".md").replace("/", "_").replace("-", "_")
            (folder / f"{name}.py").write_text(code, encoding="utf-8")


def _join_blocks(path: Path) -> str:
    """Return the blocks of a document as functions, each inside the one before.

    So a block sees the names of those above it, may use them for something else, and may `await`. A block below
    `<!-- untyped -->` shows what happens without types.
    """
    lines: list[str] = []
    text = path.read_text(encoding="utf-8").splitlines()
    typed = [block for block in read_blocks(path) if block.above < 2 or text[block.above - 2] != UNTYPED]
    for depth, block in enumerate(typed):
        lines.append("    " * depth + f"async def block_at_line_{block.above + 1}() -> None:")
        lines.append(textwrap.indent(block.code, "    " * (depth + 1)))
    return "\n".join(lines)


if __name__ == "__main__":
    write_modules(Path(sys.argv[1]))
