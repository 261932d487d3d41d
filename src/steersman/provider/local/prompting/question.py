"""Reads what an English question asks about a project: a count, a place, a value, a file, or a topic.

Only patterns decide here, no model. What fits none of them is `open`, and the model chooses what to do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["count", "definition", "mentions", "value", "name", "file", "overview", "topic", "open"]
"""What is asked for. `name` is any other question about an identifier, `topic` one about words of the project."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question. `about_project` says that its answer has to be looked up.

    `name` is the identifier or text it is about, `file` a file that it names, `pattern` what is to be counted.
    `terms` are the stems of its words, of which the `specific` ones must occur in whatever answers it.
    """

    text: str
    kind: Kind = "open"
    about_project: bool = False
    name: str = ""
    file: str = ""
    noun: str = ""
    pattern: str = ""
    terms: tuple[str, ...] = ()
    specific: tuple[str, ...] = ()

    @property
    def is_lookup(self) -> bool:
        """Whether it is a question, and not one that only commands or general knowledge answer."""
        text = self.text
        return bool(_QUESTION.search(text)) and not _COMMANDS.search(text) and not _GENERAL.search(text)


_EXTENSIONS = (
    "c|cc|cfg|conf|cpp|cs|css|csv|env|go|gradle|h|hpp|html|ini|ipynb|java|js|json|jsx|kt|lock|log|lua|md|mjs|php|proto"
    "|py|pyi|r|rb|rs|rst|scala|sh|sql|swift|toml|ts|tsx|txt|vue|xml|yaml|yml"
)
_FILE = re.compile(
    rf"(?<![\w/.-])((?:[\w.-]+/)*[\w.-]+\.(?:{_EXTENSIONS})|(?:[\w.-]+/)*(?:Makefile|Dockerfile|LICENSE|LICENCE"
    r"|README|CHANGES|CHANGELOG|Procfile))(?![\w/-])"
)
_FOLDER = re.compile(r"\b(?:folder|directory)\s+([\w./-]*[\w/-])|\b([\w.-]+/(?:[\w.-]+/?)*)(?=[\s?.]|$)", re.IGNORECASE)
_QUOTED = r"`[^`\n]{1,80}`|'[^'\n]{2,80}'|\"[^\"\n]{2,80}\""
_IDENTIFIER = r"\w+\(\)|\w*[A-Za-z]\w*_\w*|_\w+|[a-z]+[A-Z]\w*|[A-Z][a-z0-9]+[A-Z]\w*|[A-Z][A-Z0-9]{3,}(?![A-Za-z])"
_THING = (
    r"(?:functions?|class(?:es)?|methods?|structs?|enums?|interfaces?|traits?|types?|constants?|variables?|macros?"
    r"|modules?|exceptions?|decorators?|fixtures?)"
)
_NAME = re.compile(rf"{_QUOTED}|(?<![\w./-])(?:{_IDENTIFIER})(?![\w/-])")
_NAMED = rf"(?:{_QUOTED}|[\w.:]+(?:\(\))?)"
_DEFINED = r"(?:defined|declared|implemented|located|written)"
_DEFINITION = (
    rf"where (?:is|are|do i find|can i find) (?:the )?(?:{_THING} )?(?P<n1>{_NAMED}) {_DEFINED}\b",
    rf"where (?:is|are|do i find|can i find) (?:the )?{_THING} (?P<n2>{_NAMED})\s*\?*$",
    rf"where (?:is|are) (?P<n3>{_IDENTIFIER})\s*\?*$",
    rf"(?:in )?(?:which|what) (?:file|module|place) (?:is|are) (?:the )?(?:{_THING} )?(?P<n4>{_NAMED}) {_DEFINED}\b",
    rf"(?:which|what) (?:file|module) (?:defines|declares|implements) (?:the )?(?:{_THING} )?(?P<n5>{_NAMED})\s*\?*$",
    rf"(?:which|what) (?:file|module) (?:has|contains) (?:the )?{_THING} (?P<n6>{_NAMED})\s*\?*$",
    rf"(?:is|are) there (?:a|an|any|the) {_THING} (?:called |named )?(?P<n7>{_NAMED})\s*\?*$",
)
_USES = r"(?:mention|use|import|contain|reference|include|call|have|need)(?:s|es)?"
_MENTIONS = (
    rf"(?:which|what) (?:\w+ )?files? {_USES} (?:the )?(?:word |text |string |name |{_THING} )?(?P<n1>{_NAMED})\s*\?*$",
    rf"where (?:is|are) (?:the )?(?:{_THING} )?(?P<n2>\S+) (?:used|mentioned|called|imported|referenced)\s*\?*$",
)
_VALUE = (
    rf"what(?: is|'s| are) (?:the )?(?:(?:default )?value (?:of|for) )?(?:the )?(?:constant |variable |setting )?"
    rf"(?P<n1>{_QUOTED}|{_IDENTIFIER})(?: set to| equal to)?(?: in \S+)?\s*\?*$",
    rf"(?:to )?what(?: value)? is (?P<n2>{_QUOTED}|{_IDENTIFIER}) set(?: to)?\s*\?*$",
)
_KINDS: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    ("mentions", _MENTIONS),
    ("definition", _DEFINITION),
    ("value", _VALUE),
)
_OVERVIEW = re.compile(
    r"^what(?: is|'s| does| do) (?:this|the|it|that)(?: \w+)?(?: (?:all )?about| for| do| good for)\s*\?*$"
    r"|^what is this(?: project| program| package| repository| repo| code| library)?\s*\?*$",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"\?\s*$|^(?:what|which|where|who|whose|when|why|how|is|are|does|do|in which|in what|from|above|below)\b",
    re.IGNORECASE,
)
# The answer to these is in no file: what commands say, what the clock says.
_COMMANDS = re.compile(
    r"\b(?:git|commits?|committed|branch(?:es)?|today|what time|current (?:user|time|date)|changed|memory"
    r"|disk|machine|computer|installed)\b",
    re.I,
)
_GENERAL = re.compile(
    r"^how (?:do|can|would|should|could) (?:i|you|we|one)\b|^how to\b|^who (?:was|wrote|invented|painted|discovered)\b"
    r"|^what time\b|^(?:what|which) (?:is|are|was) an? \b|^how are you|^what can you\b|^who are you"
    r"|\b\d+ ?[-+*/x] ?\d+|^what (?:is|are|does) (?!this|it|that)[a-z]+(?: mean)?\s*\?*$"
    r"|\b(?:capital|president|king|queen|river|mountain|planet|countr(?:y|ies)|continent|ocean|animals?|century|world)\b",
    re.IGNORECASE,
)
_OF_PROJECT = re.compile(
    r"\b(?:projects?|programs?|packages?|repositor\w+|repos?|codebase|code|folders?|director\w+|files?|functions?"
    r"|class(?:es)?|methods?|modules?|structs?|tests?|todos?|fixmes?|comments?|authors?|maintainers?|licen[cs]es?"
    r"|versions?|dependenc\w+|databases?|frameworks?|librar\w+|servers?|ports?|config\w*|settings?|constants?"
    r"|variables?|endpoints?|routes?|passwords?|encodings?|compilers?|flags?|default|defined|implemented|declared"
    r"|imports?|imported|exceptions?|warnings?|here|it|this|are there|is there)\b",
    re.IGNORECASE,
)
_PLACE = re.compile(r"^where (?:is|are) (?:the|my|our)\b", re.IGNORECASE)
_INDEFINITE = re.compile(r"\b(?:a|an)\s+\w+", re.IGNORECASE)

_LANGUAGES = {
    "python": "*.py", "typescript": "*.ts", "javascript": "*.js", "rust": "*.rs", "go": "*.go", "java": "*.java",
    "c": "*.c", "c++": "*.{cpp,cc,cxx}", "header": "*.{h,hpp}", "markdown": "*.md", "json": "*.json", "toml": "*.toml",
    "yaml": "*.{yaml,yml}", "ruby": "*.rb", "html": "*.html", "css": "*.css", "csv": "*.csv", "shell": "*.sh",
    "text": "*.txt", "sql": "*.sql", "php": "*.php", "swift": "*.swift", "kotlin": "*.kt", "test": "*test*",
}  # fmt: skip
_COUNTED = {
    "test": r"^\s*(async )?def test_|^\s*(it|test)\(|#\[(\w+::)?test\]|^func Test|@Test\b",
    "function": r"^(pub |async |export |default |static )*(def|fn|func|function)[ *]+\w+",
    "method": r"^\s+(pub |async |static )*(def|fn|func|function) +\w+",
    "class": r"^\s*(export |default |abstract |public |final )*class +\w+",
    "struct": r"^\s*(pub |typedef )*struct +\w+",
    "import": r"^\s*(import|from|use|#include|require)\b",
    "todo": "TODO",
    "fixme": "FIXME",
}
_OPENING = re.compile(r"^(?:(?:and|but|so|then|now|ok|okay|also)[, ]+)+(?=\S)", re.IGNORECASE)
_COUNT = re.compile(r"^how many (?P<what>.+?)\s*\?*$", re.IGNORECASE)
_COUNT_FILES = re.compile(
    r"^(?:(?P<kind>[\w+]+) )?(?:source |code )?files?\b(?:\s+(?:are|is|do|does|there|that|which))*\s*"
    rf"(?:{_USES} (?:the )?(?:word |text |name )?(?P<name>{_NAMED})|.*)$",
    re.IGNORECASE,
)
_COUNT_NAME = re.compile(rf"^(?:times|lines) .*?(?P<name>{_QUOTED}|{_IDENTIFIER})", re.IGNORECASE)

_SYNONYMS = {
    "licence": "licen[cs]e", "license": "licen[cs]e", "author": "author|copyright|maintainer", "colour": "colou?r",
    "maintainer": "maintainer|author", "dependenc": "dependenc|require", "database": "database|sql|mongo|redis",
    "need": "require", "behaviour": "behaviou?r", "quick": "fast|quick", "password": "passw", "installed": "install",
}  # fmt: skip
_STOP_TEXT = (
    "a about all also an and any anything are as at be been being by called can come could did do does done each "
    "else every exactly exist exists file files find first folder for from get gets give given gives go goes had "
    "happen happens has have he her here him his how i if in inside into is it its just kind know last like long "
    "look made make makes many may me mean means might more most much must my named need needed needs no not of "
    "often on one only or other our out over please program project repo repository same say says see set shall she "
    "should show so some such take takes tell than that the their them then there these they thing things this "
    "those to too under until up us use used uses using very was we were what when where which who whom whose why "
    "will with within work works would you your code package"
)
_STOP = frozenset(_STOP_TEXT.split())


def parse_question(text: str) -> Question:
    """Read what a text asks; words such as "And" at its beginning say nothing."""
    text = _OPENING.sub("", " ".join(text.split()))
    found = Question(text, terms=_list_terms(text), specific=_list_specific(text))
    if not found.is_lookup:
        return found
    files = [name for name in _FILE.findall(text) if name.upper() != "TODO"]
    file = files[0] if files else ""
    if count := _COUNT.match(text):
        return _parse_count(found, count["what"], file)
    for kind, patterns in _KINDS:
        if name := _match_name(patterns, text):
            return _replace(found, kind=kind, name=name, file=file)
    if _OVERVIEW.match(text):
        return _replace(found, kind="overview")
    if file:
        return _replace(found, kind="file", file=file)
    if _FOLDER.search(text):
        return _replace(found, kind="open")
    # A word in capitals only may as well be an acronym, such as HTTP.
    names = [name for name in map(_strip_name, _NAME.findall(text)) if not name.isalpha() or not name.isupper()]
    if names:
        return _replace(found, kind="name", name=names[0])
    if found.terms and (_OF_PROJECT.search(_INDEFINITE.sub("", text)) or _PLACE.match(text)):
        return _replace(found, kind="topic")
    return found


def strip_stem(word: str) -> str:
    """The part of a word that its other forms share."""
    lower = word.lower()
    for ending in ("ing", "ies", "ed", "es", "s"):
        if lower.endswith(ending) and len(lower) - len(ending) >= 4:
            return lower[: -len(ending)]
    return lower


def build_topic_pattern(terms: tuple[str, ...]) -> str:
    """A pattern for lines that have one of these words."""
    return "|".join(expand_term(term) for term in terms)


def expand_term(term: str) -> str:
    """A pattern for a word and what is written instead of it."""
    return _SYNONYMS.get(term, re.escape(term))


def _replace(found: Question, *, kind: Kind, name: str = "", file: str = "") -> Question:
    return Question(
        found.text, kind, about_project=True, name=name, file=file, terms=found.terms, specific=found.specific
    )


def _match_name(patterns: tuple[str, ...], text: str) -> str:
    for pattern in patterns:
        # The words of a question may begin with a capital; an identifier is taken as it is written.
        found = re.match(pattern, text) or re.match(pattern, text[:1].lower() + text[1:])
        if found:
            name = _strip_name(next(group for group in found.groups() if group))
            if name.lower() not in _STOP:
                return name
    return ""


def _strip_name(name: str) -> str:
    return name.strip("`'\"").removesuffix("()").rstrip(".")


def _parse_count(found: Question, what: str, file: str) -> Question:
    folder = next((one or other for one, other in _FOLDER.findall(what)), "").rstrip("/")
    lower = what.lower()
    if lower.startswith("lines") and file:
        return Question(found.text, "count", True, file=file, noun="lines", terms=found.terms)
    if (name := _COUNT_NAME.match(what)) and not file:
        return Question(found.text, "count", True, name=_strip_name(name["name"]), noun="lines with it")
    if files := _COUNT_FILES.match(what):
        if files["name"]:
            return Question(found.text, "count", True, name=_strip_name(files["name"]), noun="files with it")
        pattern = _LANGUAGES.get((files["kind"] or "").lower(), "" if files["kind"] else "*")
        if pattern:
            kind = f"{files['kind']} files" if files["kind"] else "files"
            return Question(found.text, "count", True, file=folder, noun=kind, pattern=pattern)
    word = strip_stem(lower.split()[0]).removesuffix("e") if lower else ""
    for noun, pattern in _COUNTED.items():
        if word in (noun, strip_stem(noun), noun.removesuffix("e")):
            return Question(found.text, "count", True, file=file or folder, noun=what.split()[0], pattern=pattern)
    return Question(found.text, "topic", True, file=file, terms=found.terms, specific=found.specific)


def _list_terms(text: str) -> tuple[str, ...]:
    """The stems of the words that matter, in their order."""
    plain = _FILE.sub(" ", text)
    words = re.findall(r"[A-Za-z_][\w-]*|\d[\w.]*", plain)
    return tuple(dict.fromkeys(strip_stem(word) for word in words if len(word) > 2 and word.lower() not in _STOP))


def _list_specific(text: str) -> tuple[str, ...]:
    """Names and numbers of a text: without them in what was found, it is not about what was asked."""
    names = [_strip_name(name) for name in _NAME.findall(text)]
    names += re.findall(r"(?<=\s)[A-Z][\w-]{2,}|(?<=\s)\d+(?:\.\d+)+", _FILE.sub(" ", text))
    return tuple(dict.fromkeys(name for name in names if name.lower() not in _STOP))
