"""Plans by rules what to look at for a question about a project, and what the results say for certain.

The rules look before anything is answered, look once more with a simpler pattern where nothing was found, and count.
What only a model can put into words is left to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from steersman.provider.local.prompting.answer import Step, Turn
from steersman.provider.local.prompting.decide import Decision, list_usual_tools
from steersman.provider.local.prompting.findings import (
    Found,
    count_lines,
    find_definitions,
    is_missing,
    is_nothing,
    measure_coverage,
    parse_glob,
    parse_search,
)
from steersman.provider.local.prompting.question import Question, build_topic_pattern, expand_term, parse_question
from steersman.provider.local.prompting.reply import (
    Reply,
    describe_absence,
    describe_count,
    describe_definitions,
    describe_files,
    describe_mentions,
    describe_missing_file,
    describe_unknown,
)
from steersman.types.model import ToolSpec

COMPOSE = Decision(None, {})
"""Enough was looked at: the model puts the answer into words."""

_ENOUGH = 0.5
_MOST = 1000
_PRONOUN = re.compile(r"\b(?:it|its|this|that|they|them|these|those|there)\b", re.IGNORECASE)
_OVERVIEWS = (
    "README*",
    "{pyproject.toml,package.json,Cargo.toml,go.mod,setup.cfg,setup.py,pom.xml,composer.json}",
    "__init__.py",
)


def plan_next(turns: Sequence[Turn], tools: Sequence[ToolSpec]) -> Decision | Reply | None:
    """The next call or the reply that follows from rules; `None` if the model has to decide."""
    turn = turns[-1]
    if not turn.asked:
        return None
    usual = list_usual_tools(tools)
    question = parse_question(turn.asked[-1])
    if _refers_back(question, turns):
        return None
    if question.kind != "open" and {"search", "glob", "read"} <= usual:
        return _PLANS[question.kind](question, turn.steps)
    if not turn.steps:
        return None
    if question.is_lookup and _get_argument(turn.steps[0], "pattern") == build_topic_pattern(question.terms):
        return _plan_topic(question, turn.steps)
    return _look_again(question, turn.steps, usual)


def look_first(turns: Sequence[Turn], tools: Sequence[ToolSpec]) -> Decision | None:
    """The search for the words of a first question that the model would answer without having looked at anything."""
    turn = turns[-1]
    if len(turns) > 1 or turn.steps or not turn.asked:
        return None
    return look_for_topic(parse_question(turn.asked[-1]), turn.steps, list_usual_tools(tools))


def must_look(turns: Sequence[Turn], tools: Sequence[ToolSpec]) -> bool:
    """Whether the last turn is a question about the project for which nothing was looked at yet."""
    turn = turns[-1]
    if turn.steps or not turn.asked or not list_usual_tools(tools):
        return False
    question = parse_question(turn.asked[-1])
    return question.about_project and not _refers_back(question, turns)


def _refers_back(question: Question, turns: Sequence[Turn]) -> bool:
    """Whether a question is about what was said before, so that its words alone say too little."""
    vague = question.kind in ("topic", "overview") and not question.specific
    return len(turns) > 1 and vague and _PRONOUN.search(question.text) is not None


def simplify_pattern(pattern: str) -> dict[str, Any] | None:
    """A simpler search than this one: its words in any case, however they are joined; `None` if there is none."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", re.sub(r"\\[a-zA-Z]", " ", pattern))
    words = [word.lower() for word in re.findall(r"[^\W_]+", spaced)]
    simpler = "[_ -]?".join(words[:6])
    return {"pattern": simpler, "ignore_case": True} if simpler and len("".join(words)) > 2 else None


def _search(pattern: str, **more: Any) -> Decision:
    return Decision("search", {"pattern": pattern, **more})


def _search_again(steps: Sequence[Step], pattern: str) -> Decision | None:
    simpler = simplify_pattern(pattern)
    return _search(**simpler) if simpler is not None and len(steps) == 1 else None


def _plan_definition(question: Question, steps: Sequence[Step]) -> Decision | Reply | None:
    found = _read_search(steps)
    if not steps:
        return _search(re.escape(question.name))
    if found is None:
        return None
    if not found.matches:
        return _search_again(steps, question.name) or Reply(describe_absence(question, steps))
    if len(steps) > 1 and not parse_search(steps[0].result).matches:
        return Reply(describe_absence(question, steps))
    definitions = find_definitions(question.name, found.hits)
    if not definitions and not found.complete and len(steps) == 1:
        last = re.escape(question.name.rpartition(".")[2])
        return _search(rf"^.*\b(def|class|function|fn|func|struct|enum|type|const|define)\s+{last}\b", limit=_MOST)
    return Reply(describe_definitions(question, definitions, found))


def _plan_value(question: Question, steps: Sequence[Step]) -> Decision | Reply | None:
    planned = _plan_definition(question, steps)
    found = _read_search(steps)
    if isinstance(planned, Reply) and found is not None and len(steps) == 1:
        # Without a line that sets it, the model reads the lines that mention it.
        return planned if find_definitions(question.name, found.hits) else COMPOSE
    return planned


def _plan_mentions(question: Question, steps: Sequence[Step]) -> Decision | Reply | None:
    if not steps:
        return _search(re.escape(question.name))
    found = _read_search(steps)
    if found is None:
        return None
    if not found.matches:
        return _search_again(steps, question.name) or Reply(describe_absence(question, steps))
    if not found.complete and len(steps) == 1:
        return _search(re.escape(question.name), limit=_MOST)
    return Reply(describe_mentions(question, found, steps))


def _plan_count(question: Question, steps: Sequence[Step]) -> Decision | Reply | None:
    if not steps:
        return _plan_first_count(question)
    last = steps[-1]
    if question.noun == "lines" and (last.failed or len(steps) > 1):
        return _plan_file(question, steps, then=lambda read: Reply(describe_count(question, count_lines(read), read)))
    if last.failed:
        return None
    if question.noun == "lines":
        return Reply(describe_count(question, count_lines(last.result), last.result))
    if last.name == "glob":
        files, total = parse_glob(last.result)
        return Reply(describe_files(question, files, total))
    found = parse_search(last.result)
    if not found.matches and question.name:
        return _search_again(steps, question.name) or Reply(describe_absence(question, steps))
    return Reply(describe_count(question, None, last.result))


def _plan_first_count(question: Question) -> Decision:
    if question.noun == "lines":
        return Decision("read", {"path": question.file})
    if question.name:
        return _search(re.escape(question.name), limit=_MOST)
    where = {"path": question.file} if question.file else {}
    if question.noun.endswith("files"):
        return Decision("glob", {"pattern": question.pattern, **where})
    return _search(question.pattern, **where, limit=_MOST)


def _plan_name(question: Question, steps: Sequence[Step]) -> Decision | Reply | None:
    if not steps:
        return _search(re.escape(question.name), context=4)
    found = _read_search(steps)
    if found is None:
        return None
    if not found.matches:
        return _search_again(steps, question.name) or Reply(describe_absence(question, steps))
    return Reply(describe_absence(question, steps)) if len(steps) > 1 else COMPOSE


def _plan_file(
    question: Question, steps: Sequence[Step], then: Callable[[str], Reply] | None = None
) -> Decision | Reply | None:
    """Read the file; where there is none, look for its name in other folders."""
    name = question.file.rpartition("/")[2]
    if not steps:
        return Decision("read", {"path": question.file})
    last = steps[-1]
    if last.name == "read" and not last.failed:
        return then(last.result) if then is not None else COMPOSE
    if last.name == "read" and len(steps) == 1 and is_missing(last.result):
        return Decision("glob", {"pattern": f"*{name.rpartition('.')[0] or name}*"})
    if last.name == "glob" and not last.failed:
        files, _ = parse_glob(last.result)
        same = [file for file in files if file.rpartition("/")[2] == name]
        return Decision("read", {"path": same[0]}) if len(same) == 1 else Reply(describe_missing_file(question, files))
    return None


def _plan_overview(question: Question, steps: Sequence[Step]) -> Decision | Reply | None:
    del question
    if steps and steps[-1].name in ("read", "list"):
        return None if steps[-1].failed else COMPOSE
    files = parse_glob(steps[-1].result)[0] if steps and not steps[-1].failed else []
    if files:
        return Decision("read", {"path": min(files, key=lambda file: (file.count("/"), len(file)))})
    if len(steps) < len(_OVERVIEWS):
        return Decision("glob", {"pattern": _OVERVIEWS[len(steps)]})
    return Decision("list", {"path": "."})


def _plan_topic(question: Question, steps: Sequence[Step]) -> Decision | Reply | None:
    if not steps:
        where = {"path": question.file} if question.file else {}
        return _search(build_topic_pattern(question.terms), ignore_case=True, context=1, **where)
    if steps[-1].failed:
        return None
    if is_about(question, steps):
        return COMPOSE
    word = max(question.specific or question.terms, key=len)
    if len(steps) == 1:
        return Decision("glob", {"pattern": f"*{word.lower()}*"})
    files, _ = parse_glob(steps[1].result)
    if len(steps) == 2 and 0 < len(files) <= 3:
        return Decision("read", {"path": files[0]})
    return COMPOSE if steps[-1].name == "read" else Reply(describe_unknown(question, steps))


def is_about(question: Question, steps: Sequence[Step]) -> bool:
    """Whether what was found is about what was asked: all names are there, and half of the words close together."""
    text = "\n".join(step.result for step in steps if not is_nothing(step.result))
    # Letters around it make another word of a name: HTTP is not in https.
    if any(
        not re.search(rf"(?<![^\W\d_]){re.escape(name)}(?![^\W\d_])", text, re.IGNORECASE) for name in question.specific
    ):
        return False
    hits = [hit for step in steps if step.name == "search" for hit in parse_search(step.result).hits]
    return bool(hits) and measure_coverage(hits, [expand_term(term) for term in question.terms]) >= _ENOUGH


def _look_again(question: Question, steps: Sequence[Step], usual: frozenset[str]) -> Decision | Reply | None:
    """After a search or a glob of the model that found nothing: once more with a simpler pattern, then say so."""
    last = steps[-1]
    if last.name not in usual:
        return None
    if last.failed or not is_nothing(last.result):
        return look_for_topic(question, steps, usual) if _is_off_topic(question, steps) else None
    tried = [step for step in steps if step.name == last.name]
    pattern = _get_argument(tried[0], "pattern")
    if len(tried) == 1 and last.name == "search":
        simpler = simplify_pattern(pattern)
        if simpler is not None:
            return _search(**simpler)
    if len(tried) == 1 and last.name == "glob":
        words = re.findall(r"\w+", pattern)
        if words and (simpler_glob := f"*{max(words, key=len)}*") != pattern:
            return Decision("glob", {"pattern": simpler_glob})
    return Reply(describe_absence(question, steps))


def look_for_topic(question: Question, steps: Sequence[Step], usual: frozenset[str]) -> Decision | None:
    """A search for the words of a question, unless something was searched for already."""
    if "search" not in usual or any(step.name == "search" for step in steps):
        return None
    if not question.terms or not question.is_lookup:
        return None
    return _search(build_topic_pattern(question.terms), ignore_case=True, context=1)


def _is_off_topic(question: Question, steps: Sequence[Step]) -> bool:
    """Whether no word of a question is in what was called and found."""
    text = "\n".join(f"{step.arguments}\n{'' if step.failed else step.result}" for step in steps)
    return not any(re.search(expand_term(term), text, re.IGNORECASE) for term in question.terms)


def _get_argument(step: Step, name: str) -> str:
    value = step.read_arguments().get(name, "")
    return value if isinstance(value, str) else ""


def _read_search(steps: Sequence[Step]) -> Found | None:
    """What the last search found; `None` if the last step is none, or failed."""
    if not steps or steps[-1].failed or steps[-1].name != "search":
        return None
    return parse_search(steps[-1].result)


_PLANS: Mapping[str, Callable[[Question, Sequence[Step]], Decision | Reply | None]] = {
    "count": _plan_count,
    "definition": _plan_definition,
    "mentions": _plan_mentions,
    "value": _plan_value,
    "name": _plan_name,
    "file": _plan_file,
    "overview": _plan_overview,
    "topic": _plan_topic,
}
