"""`steersman doctor`: checks what works on this machine, what is missing, and what to do about it.

It changes nothing. Nothing leaves the machine, unless `--online` opens one connection to the model.
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
from steersman.cli.exits import UserError, describe_error
from steersman.cli.setup.inventory import (
    EXTRAS,
    check_connection,
    find_answering_servers,
    find_remote_url,
    find_version,
    list_embedded_models,
    list_providers,
    load_user_settings,
)
from steersman.cli.setup.model_choice import LOCAL_FILE, SERVERS, choose_model, name_servers, redact_base_url
from steersman.cli.setup.model_file import measure_memory, propose_model
from steersman.cli.setup.settings import (
    PROJECT_FILE,
    Settings,
    find_config_file,
    find_session_file,
    get_current_folder,
)
from steersman.cli.terminal.columns import Canvas, Style, make_canvas, pad, wrap
from steersman.cli.terminal.numbers import format_count, format_size
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.cli.terminal.stdout import print_json
from steersman.provider.local.weights.cache import DEFAULT_LOCAL_MODEL
from steersman.provider.models.presets import find_base_url
from steersman.tools.builtin.search_engine import find_ripgrep
from steersman.tools.confine.sandbox import confinement
from steersman.tools.mcp.errors import McpError
from steersman.tools.mcp.trust import JsonFile, Trust
from steersman.types.errors import SteersmanError
from steersman.types.model import Model

State: TypeAlias = Literal["ok", "missing", "problem"]

_STYLES: dict[State, Style] = {"ok": "good", "missing": "warn", "problem": "bad"}
_LEAST_SPACE = 50_000_000
_CANNOT = 1


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. If a `vital` one is not ok, the command cannot work."""

    what: str
    state: State
    text: str
    advice: str = ""
    vital: bool = False


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this command."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--online", action="store_true", help="also open a connection to the model's server")


async def run(options: Options) -> int:
    """Runs all checks; exit code 0 if the command can work."""
    arguments = options.arguments
    assert arguments is not None
    findings = [finding async for finding in _check_all(options, online=arguments.online)]
    works = not any(finding.vital and finding.state != "ok" for finding in findings)
    if arguments.json:
        print_json({"works": works, "findings": findings})
    else:
        for line in render_report(findings, make_canvas(), works=works):
            print(line)
    return 0 if works else _CANNOT


def render_report(findings: Sequence[Finding], canvas: Canvas, *, works: bool) -> Iterator[str]:
    """Renders the findings in lines that fit the canvas."""
    names = max(len(finding.what) for finding in findings)
    states = len("problem")
    beside = canvas.width is None or canvas.width >= names + states + 4 + 30
    for finding in findings:
        state = canvas.style(pad(finding.state, states), _STYLES[finding.state])
        texts = [finding.text, finding.advice] if finding.advice else [finding.text]
        if beside:
            indent = " " * (states + names + 4)
            lines = [line for text in texts for line in wrap(sanitize_line(text), canvas.width, indent=indent)]
            yield f"{state}  {pad(finding.what, names)}  {lines[0].strip()}"
            yield from lines[1:]
        else:
            yield f"{state} {finding.what}"
            for text in texts:
                yield from wrap(sanitize_line(text), canvas.width, indent="  ")
    yield ""
    yield from wrap("steersman works here." if works else "steersman does not work here yet.", canvas.width)


async def _check_all(options: Options, *, online: bool) -> AsyncIterator[Finding]:
    settings, trouble = load_user_settings()
    yield _check_python()
    yield _check_packages()
    for finding in _check_extras():
        yield finding
    yield _check_terminal()
    yield _check_confinement()
    for finding in _check_programs():
        yield finding
    yield _check_settings(trouble)
    yield _check_project()
    yield _check_trust()
    yield _check_sessions(options)
    yield _check_keys()
    yield await _check_servers(online=online)
    yield _check_embedded()
    finding, model = await _check_model(options, settings, online=online)
    yield finding
    yield await _check_network(model, online=online)


def _check_python() -> Finding:
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return Finding("Python", "ok", f"{python} on {platform.system()} {platform.machine()}", vital=True)


def _check_packages() -> Finding:
    parts = {name: find_version(name) for name in ("steersman", "aiohttp", "msgspec")}
    words = ", ".join(f"{name} {version or '(not installed as a package)'}" for name, version in parts.items())
    missing = [name for name in ("aiohttp", "msgspec") if parts[name] is None]
    if missing:
        return Finding("packages", "problem", words, f"pip install {' '.join(missing)}", vital=True)
    return Finding("packages", "ok", words, vital=True)


def _check_extras() -> Iterator[Finding]:
    for extra, (packages, purpose) in EXTRAS.items():
        found = {package: find_version(package) for package in packages}
        words = ", ".join(f"{package} {version}" for package, version in found.items() if version is not None)
        if all(found.values()):
            yield Finding(f"[{extra}]", "ok", f"{words}: {purpose}")
        else:
            yield Finding(f"[{extra}]", "missing", f"Needed for {purpose}.", f"pip install 'steersman[{extra}]'")


def _check_terminal() -> Finding:
    encoding = (sys.stdout.encoding or "none").lower()
    if sys.stdout.isatty():
        canvas = make_canvas()
        words = f"{canvas.width} columns, {'colours' if canvas.color else 'no colours'}, {encoding}"
    else:
        words = f"standard output is not a terminal: plain text, {encoding}"
    if encoding.replace("-", "").replace("_", "") != "utf8":
        advice = "Characters outside this encoding are shown as question marks; set LANG=C.UTF-8 or PYTHONUTF8=1."
        return Finding("terminal", "problem", words, advice)
    return Finding("terminal", "ok", words)


def _check_confinement() -> Finding:
    walls = confinement()
    if walls.kind == "none":
        return Finding("confinement", "problem", "Shell commands of the model are refused: " + walls.reason)
    return Finding("confinement", "ok", f"{walls.kind}: {walls.reason}")


def _check_programs() -> Iterator[Finding]:
    git = shutil.which("git")
    if git is None:
        yield Finding("git", "missing", "The agent cannot read the history of a project.", "Install git.")
    else:
        yield Finding("git", "ok", git)
    ripgrep = find_ripgrep(str(get_current_folder()))
    if ripgrep is None:
        yield Finding("rg", "missing", "Search works without it, but more slowly.", "Install ripgrep.")
    else:
        yield Finding("rg", "ok", ripgrep)


def _check_settings(trouble: str | None) -> Finding:
    path = find_config_file()
    if trouble is not None:
        return Finding("settings", "problem", trouble, vital=True)
    return Finding("settings", "ok", str(path) if path.exists() else f"none yet; the file would be {path}", vital=True)


def _check_project() -> Finding:
    """Names the project's files only; they are not used before they are trusted."""
    brought = [name for name in (PROJECT_FILE, ".mcp.json", "AGENTS.md") if os.path.lexists(name)]
    return Finding("project", "ok", f"{get_current_folder()}: {', '.join(brought) or 'no settings of the project'}")


def _check_trust() -> Finding:
    path = Trust().path
    try:
        entries = JsonFile(path, "list of trusted files").read()
    except McpError as error:
        return Finding("trust", "problem", str(error))
    count = sum(len(section) for section in entries.values())
    return Finding("trust", "ok", f"{count} trusted in {path}" if count else "no project file is trusted yet")


def _check_sessions(options: Options) -> Finding:
    path = find_session_file(options.session_dir, get_current_folder())
    folder = next(parent for parent in path.parents if os.path.isdir(parent))
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding("sessions", "problem", f"Cannot read {folder}: {error.strerror}.")
    words = f"{path.parent}, {format_size(free)} free"
    if not os.access(folder, os.W_OK | os.X_OK):
        advice = "Sessions are not saved. Make it writable, or use --session-dir DIR."
        return Finding("sessions", "problem", f"{folder} is not writable.", advice)
    if free < _LEAST_SPACE:
        return Finding("sessions", "problem", words, "Free some disk space: sessions may not be saved.")
    return Finding("sessions", "ok", words)


def _check_keys() -> Finding:
    found = sorted({provider.key for provider in list_providers() if provider.key is not None})
    if found:
        return Finding("keys", "ok", ", ".join(found))
    return Finding("keys", "missing", "No provider key is set.", "Set one, for example: export ANTHROPIC_API_KEY=...")


async def _check_servers(*, online: bool) -> Finding:
    found = await find_answering_servers(afar=online)
    if not found:
        return Finding("servers", "missing", f"No answer from {name_servers('or')} on this machine.")
    told = [
        f"{SERVERS[server.provider]} at {server.host} ({format_count(len(server.models), 'model')})" for server in found
    ]
    return Finding("servers", "ok", ", ".join(told))


def _check_embedded() -> Finding:
    if find_version("xllamacpp") is None:
        words = "Its runtime is not installed; it is the only model without a key or a server."
        return Finding("embedded model", "missing", words, "pip install 'steersman[local]'")
    own = os.environ.get(LOCAL_FILE)
    if own:
        words = f"{LOCAL_FILE} is {own}" + (", which is not a file" if _is_missing(own) else "")
        return Finding("embedded model", "problem" if _is_missing(own) else "ok", words)
    usual = next(each for each in list_embedded_models() if each.usual)
    state = "on disk" if usual.ready else f"not downloaded yet: {format_size(usual.model.size)}, on first use"
    return Finding("embedded model", "ok", f"{usual.model.name}, {state}", _propose_embedded())


def _propose_embedded() -> str:
    """The largest model that fits the memory, unless it is on disk; the usual one is the smallest that works."""
    memory = measure_memory()
    best = propose_model(memory)
    has = {name for each in list_embedded_models() if each.ready for name in (each.model.name, each.model.reference)}
    if best.name in has or best.name == DEFAULT_LOCAL_MODEL:
        return ""
    note = f", {best.note}" if best.note else ""
    room = f"In {format_size(memory)} of memory a larger one fits ({format_size(best.size)}{note})"
    return f"{room}: steersman models get {best.name}"


async def _check_model(options: Options, settings: Settings, *, online: bool) -> tuple[Finding, Model | None]:
    afar = find_remote_url(options.model, settings)
    if afar is not None and not online:
        words = f"Not checked: the server at {afar} knows its models; --online asks it."
        return Finding("model", "ok", words, vital=True), None
    try:
        choice = await choose_model(options.model, settings)
    except (UserError, SteersmanError, NotImplementedError) as error:
        return Finding(
            "model", "problem", describe_error(error), "`steersman models` lists the models.", vital=True
        ), None
    own = os.environ.get(LOCAL_FILE)
    if choice.model.provider == "local" and own and _is_missing(own):
        return Finding("model", "problem", choice.why, f"Set {LOCAL_FILE} to an existing file.", vital=True), None
    return Finding("model", "ok", choice.why, vital=True), choice.model


def _is_missing(own: str) -> bool:
    """Whether the configured embedded model is neither a file nor a known model."""
    return not os.path.isfile(os.path.expanduser(own)) and own not in {
        each.model.name for each in list_embedded_models()
    }


async def _check_network(model: Model | None, *, online: bool) -> Finding:
    address = None if model is None or model.provider == "local" else find_base_url(model.provider, model.base_url)
    if model is not None and model.provider == "local" and not _is_on_disk(model):
        return Finding("network", "ok", "needed once, to download the embedded model")
    if address is None:
        return Finding("network", "ok", "not needed for this model" if model else "not checked")
    if not online:
        return Finding("network", "ok", "not checked; --online opens a connection to the model's server")
    trouble = await check_connection(address)
    if trouble is not None:
        return Finding("network", "problem", trouble, "Check the network, the proxy and the URL.", vital=True)
    return Finding("network", "ok", f"{redact_base_url(address)} is reachable")


def _is_on_disk(model: Model) -> bool:
    """Whether the weights of an embedded model are on this machine: in the cache, or in a file of the user."""
    named = {each.model.name: each.ready for each in list_embedded_models()}
    return named.get(model.id, True) or bool(os.environ.get(LOCAL_FILE))
