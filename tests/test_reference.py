"""The pages of the reference are what the code says now, and every public name is in them."""

from __future__ import annotations

import re

from docs.reference import PAGES, SOURCE, build_pages
from tests.rows import each_row

import steersman
import steersman.context
import steersman.durable
import steersman.durable.workflow_agent
import steersman.evals
import steersman.events
import steersman.policy
import steersman.provider
import steersman.session
import steersman.team
import steersman.telemetry
import steersman.testing
import steersman.testing.servers
import steersman.tools
import steersman.tools.mcp
import steersman.types


def test_the_pages_are_those_that_the_code_gives() -> None:
    """After a change of the code: `make reference`."""
    made = build_pages()
    assert sorted(path.name for path in PAGES.glob("*.md")) == sorted(made)
    stale = [name for name, text in made.items() if (PAGES / name).read_text(encoding="utf-8") != text]
    assert stale == [], "run `make reference`"


@each_row(
    "module",
    [
        steersman,
        steersman.context,
        steersman.durable.workflow_agent,
        steersman.events,
        steersman.policy,
        steersman.provider,
        steersman.session,
        steersman.durable,
        steersman.evals,
        steersman.team,
        steersman.telemetry,
        steersman.testing,
        steersman.testing.servers,
        steersman.tools,
        steersman.tools.mcp,
        steersman.types,
    ],
)
def test_every_public_name_has_its_entry(module: object) -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in PAGES.glob("*.md"))
    described = set(re.findall(r"^### `(\w+)`$", text, re.MULTILINE))
    assert sorted(set(getattr(module, "__all__", [])) - described) == []


def test_every_entry_says_something() -> None:
    """A value may speak for itself; a class or a function has a sentence."""
    silent: list[str] = []
    for path in PAGES.glob("*.md"):
        for name, code, words in re.findall(
            r"^### `(\w+)`\n\n```py\n(.*?)\n```\n\n(.*?)$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        ):
            if code.startswith(("class ", "def ", "async def ", "@")) and words.startswith("In `"):
                silent.append(f"{path.name}: {name}")
    assert silent == []


def test_the_list_of_modules_has_each_of_them_with_a_sentence() -> None:
    source = SOURCE / "steersman"
    text = (PAGES / "modules.md").read_text(encoding="utf-8")
    listed: list[str] = []
    for package, rows in re.findall(r"^## `([\w/]+)`\n\n\S.*\n((?:\n\|.*(?:\n\|.*)*)?)", text, re.MULTILINE):
        listed += [f"{package}/{name}" for name in re.findall(r"^\| `([\w.]+)` \| \S", rows, re.MULTILINE)]
    modules = [
        path.relative_to(source.parent).as_posix() for path in source.rglob("*.py") if path.name != "__init__.py"
    ]
    assert sorted(listed) == sorted(modules)


def test_every_document_is_in_the_index() -> None:
    index = (PAGES.parent / "README.md").read_text(encoding="utf-8")
    documents = sorted(path.name for path in PAGES.parent.glob("*.md") if path.name != "README.md")
    assert [name for name in documents if f"]({name})" not in index] == []
