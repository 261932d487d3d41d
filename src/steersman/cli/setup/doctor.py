"""`steersman doctor`: what works on this machine, what is missing, and what to do about it.

It looks and changes nothing. Nothing leaves the machine, unless `--online` has it open one connection to the model.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from steersman.cli.arguments import Options
from steersman.cli.exits import UserError, line_of
from steersman.cli.setup.model_choice import LOCAL_FILE, SERVERS, choose, shown_address
from steersman.cli.setup.models import size
from steersman.cli.setup.settings import PROJECT_FILE, Settings, config_file, current_folder, session_file
from steersman.cli.setup.survey import (
    EXTRAS,
    asked_afar,
    embedded,
    providers,
    reached,
    servers,
    user_settings,
    version_of,
)
from steersman.cli.terminal.columns import Paper, Style, counted, padded, paper_of, wrapped
from steersman.cli.terminal.sanitize import one_line
from steersman.cli.terminal.stdout import print_json
from steersman.types.errors import SteersmanError
from steersman.types.model import Model

State: TypeAlias = Literal["ok", "missing", "problem"]

_STYLES: dict[State, Style] = {"ok": "good", "missing": "warn", "problem": "bad"}
_LEAST_SPACE = 50_000_000
_CANNOT = 1


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `vital` says that without it the command cannot work."""

    what: str
    state: State
    text: str
    advice: str = ""
    vital: bool = False


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the words and flags of this command."""
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--online", action="store_true", help="also open a connection to the model's address")


async def run(options: Options) -> int:
    """Look at everything; the exit code is 0 when the command can work."""
    arguments = options.arguments
    assert arguments is not None
    findings = [finding async for finding in _look(options, online=arguments.online)]
    works = not any(finding.vital and finding.state != "ok" for finding in findings)
    if arguments.json:
        print_json({"works": works, "findings": findings})
    else:
        for line in report(findings, paper_of(), works=works):
            print(line)
    return 0 if works else _CANNOT


def report(findings: Sequence[Finding], paper: Paper, *, works: bool) -> Iterator[str]:
    """The findings in lines that fit the paper."""
    names = max(len(finding.what) for finding in findings)
    states = len("problem")
    beside = paper.width is None or paper.width >= names + states + 4 + 30
    for finding in findings:
        state = paper.styled(padded(finding.state, states), _STYLES[finding.state])
        texts = [finding.text, finding.advice] if finding.advice else [finding.text]
        if beside:
            indent = " " * (states + names + 4)
            lines = [line for text in texts for line in wrapped(one_line(text), paper.width, indent=indent)]
            yield f"{state}  {padded(finding.what, names)}  {lines[0].strip()}"
            yield from lines[1:]
        else:
            yield f"{state} {finding.what}"
            for text in texts:
                yield from wrapped(one_line(text), paper.width, indent="  ")
    yield ""
    yield from wrapped("The command can work here." if works else "The command cannot work here yet.", paper.width)


async def _look(options: Options, *, online: bool) -> AsyncIterator[Finding]:
    settings, trouble = user_settings()
    yield _python()
    yield _package()
    for finding in _extras():
        yield finding
    yield _terminal()
    yield _confinement()
    for finding in _programs():
        yield finding
    yield _settings(trouble)
    yield _project()
    yield _trust()
    yield _sessions(options)
    yield _keys()
    yield await _servers(online=online)
    yield _embedded()
    finding, model = await _model(options, settings, online=online)
    yield finding
    yield await _network(model, online=online)


def _python() -> Finding:
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return Finding("Python", "ok", f"{python} on {platform.system()} {platform.machine()}", vital=True)


def _package() -> Finding:
    parts = {name: version_of(name) for name in ("steersman", "aiohttp", "msgspec")}
    words = ", ".join(f"{name} {version or '(not installed as a package)'}" for name, version in parts.items())
    missing = [name for name in ("aiohttp", "msgspec") if parts[name] is None]
    if missing:
        return Finding("packages", "problem", words, f"pip install {' '.join(missing)}", vital=True)
    return Finding("packages", "ok", words, vital=True)


def _extras() -> Iterator[Finding]:
    for extra, (packages, purpose) in EXTRAS.items():
        found = {package: version_of(package) for package in packages}
        words = ", ".join(f"{package} {version}" for package, version in found.items() if version is not None)
        if all(found.values()):
            yield Finding(f"[{extra}]", "ok", f"{words}: {purpose}")
        else:
            yield Finding(f"[{extra}]", "missing", f"For {purpose}.", f"pip install 'steersman[{extra}]'")


def _terminal() -> Finding:
    encoding = (sys.stdout.encoding or "none").lower()
    if sys.stdout.isatty():
        paper = paper_of()
        words = f"{paper.width} columns, {'colours' if paper.color else 'no colours'}, {encoding}"
    else:
        words = f"standard output is no terminal: plain text, {encoding}"
    if encoding.replace("-", "").replace("_", "") != "utf8":
        advice = "Letters it has no sign for become question marks; set LANG=C.UTF-8, or PYTHONUTF8=1."
        return Finding("terminal", "problem", words, advice)
    return Finding("terminal", "ok", words)


def _confinement() -> Finding:
    from steersman.tools.confine.sandbox import confinement

    walls = confinement()
    if walls.kind == "none":
        return Finding("confinement", "problem", "Commands of the model are refused: " + walls.reason)
    return Finding("confinement", "ok", f"{walls.kind}: {walls.reason}")


def _programs() -> Iterator[Finding]:
    from steersman.tools.builtin.search_engine import find_ripgrep

    git = shutil.which("git")
    if git is None:
        yield Finding("git", "missing", "The agent cannot look into the history of a project.", "Install git.")
    else:
        yield Finding("git", "ok", git)
    ripgrep = find_ripgrep(str(current_folder()))
    if ripgrep is None:
        yield Finding("rg", "missing", "Searching works without it, and more slowly.", "Install ripgrep.")
    else:
        yield Finding("rg", "ok", ripgrep)


def _settings(trouble: str | None) -> Finding:
    path = config_file()
    if trouble is not None:
        return Finding("settings", "problem", trouble, vital=True)
    return Finding("settings", "ok", str(path) if path.exists() else f"none yet; they would be in {path}", vital=True)


def _project() -> Finding:
    """What the project brings counts only after it was trusted, so here it is only named."""
    brought = [name for name in (PROJECT_FILE, ".mcp.json", "AGENTS.md") if os.path.lexists(name)]
    return Finding("project", "ok", f"{current_folder()}: {', '.join(brought) or 'no settings of its own'}")


def _trust() -> Finding:
    from steersman.tools.mcp.errors import McpError
    from steersman.tools.mcp.trust import JsonFile, Trust

    path = Trust().path
    try:
        entries = JsonFile(path, "list of trusted files").read()
    except McpError as error:
        return Finding("trust", "problem", str(error))
    count = sum(len(section) for section in entries.values())
    return Finding("trust", "ok", f"{count} trusted in {path}" if count else "nothing of a project is trusted yet")


def _sessions(options: Options) -> Finding:
    path = session_file(options.session_dir, current_folder())
    folder = next(parent for parent in path.parents if os.path.isdir(parent))
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding("sessions", "problem", f"{folder} cannot be looked at: {error.strerror}.")
    words = f"{path.parent}, {size(free)} free"
    if not os.access(folder, os.W_OK | os.X_OK):
        advice = "Conversations are not kept. Let yourself write there, or give --session-dir DIR."
        return Finding("sessions", "problem", f"{folder} cannot be written to.", advice)
    if free < _LEAST_SPACE:
        return Finding("sessions", "problem", words, "Make some room: conversations may not be kept.")
    return Finding("sessions", "ok", words)


def _keys() -> Finding:
    found = sorted({provider.key for provider in providers() if provider.key is not None})
    if found:
        return Finding("keys", "ok", ", ".join(found))
    return Finding("keys", "missing", "No provider's key is set.", "Set one, as in export ANTHROPIC_API_KEY=...")


async def _servers(*, online: bool) -> Finding:
    found = await servers(afar=online)
    if not found:
        return Finding("servers", "missing", "No Ollama, LM Studio or llama.cpp answers on this machine.")
    told = [
        f"{SERVERS[server.provider]} at {server.place} ({counted(len(server.models), 'model')})" for server in found
    ]
    return Finding("servers", "ok", ", ".join(told))


def _embedded() -> Finding:
    if version_of("xllamacpp") is None:
        words = "Without its runtime there is no model that needs no key."
        return Finding("embedded model", "missing", words, "pip install 'steersman[local]'")
    own = os.environ.get(LOCAL_FILE)
    if own:
        words = f"{LOCAL_FILE} is {own}" + (", which is no file" if _is_lost(own) else "")
        return Finding("embedded model", "problem" if _is_lost(own) else "ok", words)
    usual = next(each for each in embedded() if each.usual)
    state = "here" if usual.ready else f"not here yet: {size(usual.model.size)} are fetched when it is first used"
    return Finding("embedded model", "ok", f"{usual.model.name}, {state}")


async def _model(options: Options, settings: Settings, *, online: bool) -> tuple[Finding, Model | None]:
    afar = asked_afar(options.model, settings)
    if afar is not None and not online:
        words = f"The server at {afar} says which models there are, and it was not asked; --online asks it."
        return Finding("model", "ok", words, vital=True), None
    try:
        choice = await choose(options.model, settings)
    except (UserError, SteersmanError, NotImplementedError) as error:
        return Finding("model", "problem", line_of(error), "`steersman models` shows what there is.", vital=True), None
    own = os.environ.get(LOCAL_FILE)
    if choice.model.provider == "local" and own and _is_lost(own):
        return Finding("model", "problem", choice.why, f"Let {LOCAL_FILE} name a file.", vital=True), None
    return Finding("model", "ok", choice.why, vital=True), choice.model


def _is_lost(own: str) -> bool:
    """Whether what the user names instead of the embedded model is neither a file nor a model that is known."""
    return not os.path.isfile(os.path.expanduser(own)) and own not in {each.model.name for each in embedded()}


async def _network(model: Model | None, *, online: bool) -> Finding:
    from steersman.provider.models.presets import find_base_url

    address = None if model is None or model.provider == "local" else find_base_url(model.provider, model.base_url)
    if model is not None and model.provider == "local" and not _here(model):
        return Finding("network", "ok", "needed once, to fetch the embedded model")
    if address is None:
        return Finding("network", "ok", "not needed for this model" if model else "not asked")
    if not online:
        return Finding("network", "ok", "not asked; --online opens a connection to the model's address")
    trouble = await reached(address)
    if trouble is not None:
        return Finding("network", "problem", trouble, "Look at the network, a proxy, and the address.", vital=True)
    return Finding("network", "ok", f"{shown_address(address)} can be reached")


def _here(model: Model) -> bool:
    """Whether the bytes of an embedded model are on this machine: in the cache, or in a file of the user's own."""
    named = {each.model.name: each.ready for each in embedded()}
    return named.get(model.id, True) or bool(os.environ.get(LOCAL_FILE))
