"""`steersman models`: lists providers, keys, servers, models and prices, and the model the command would use now.

`steersman models get NAME` downloads a model that runs on this machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from steersman.cli.arguments import Options
from steersman.cli.exits import USAGE, UserError, describe_error
from steersman.cli.setup.inventory import (
    EmbeddedModel,
    Provider,
    find_answering_servers,
    find_version,
    list_embedded_models,
    list_providers,
    load_user_settings,
)
from steersman.cli.setup.model_choice import (
    DEFAULT_MODELS,
    SERVERS,
    FoundServer,
    choose_model,
    name_servers,
    redact_base_url,
)
from steersman.cli.setup.model_file import get_model_file
from steersman.cli.terminal.columns import Canvas, align_table, make_canvas, measure_cells, wrap
from steersman.cli.terminal.numbers import format_price, format_size, format_window
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.cli.terminal.stdout import print_json
from steersman.provider.models.catalogue import Facts, find_facts, list_known_models
from steersman.provider.models.presets import PRESETS, find_base_url
from steersman.types.errors import SteersmanError

_GET = "get"
_MOST = 12
_NARROW = 68
_NO_PRICES = (
    "Prices and context windows need the package genai-prices: pip install 'steersman[prices]'. "
    "Any model works without it, as provider:model-id."
)
_SAME = {"azure-chat": "azure", "openai-chat": "openai"}
"""Providers with the same models as another one, over another protocol."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument(
        "filter",
        nargs="?",
        metavar="FILTER",
        help="only models with this text in their name, of all providers; or 'get'",
    )
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="after 'get': download this model, such as hf:ORG/REPO/FILE.gguf from the hub",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with all models")


async def run(options: Options) -> int:
    """Prints the lists, or downloads a model; returns the exit code."""
    arguments = options.arguments
    assert arguments is not None
    if arguments.filter == _GET:
        return await get_model_file(arguments.name, verbose=options.verbose)
    if arguments.name is not None:
        raise UserError(f"Only 'get' takes a name: steersman models get {arguments.name}", code=USAGE)
    settings, trouble = load_user_settings()
    found = list_providers()
    answering = await find_answering_servers()
    try:
        choice = await choose_model(options.model, settings)
        now = {"model": choice.model.name, "why": choice.why}
    except (UserError, SteersmanError, NotImplementedError) as error:
        now = {"model": None, "why": describe_error(error)}
    if trouble:
        print(f"steersman: {trouble}", file=sys.stderr)
    if arguments.json:
        print_json({"chosen": now, **_to_json(found, answering, list_embedded_models(), arguments.filter)})
        return 0
    canvas = make_canvas()
    if arguments.filter:
        return _print_matching(found, answering, arguments.filter, canvas)
    for line in (
        *_render_choice(now, canvas),
        *_render_providers(found, canvas),
        *_render_servers(answering, canvas),
        *_render_embedded(list_embedded_models(), canvas),
        *_render_known_models(found, canvas),
    ):
        print(line)
    return 0


# Sections of the output


def _render_choice(now: dict[str, Any], canvas: Canvas) -> Iterator[str]:
    name = sanitize_line(now["model"]) if now["model"] else "no model"
    yield from wrap(f"Now: {sanitize_line(now['why'])}", canvas.width)
    if name not in now["why"]:
        yield f"  {canvas.style(name, 'bold')}"
    yield ""


def _render_providers(found: Sequence[Provider], canvas: Canvas) -> Iterator[str]:
    yield canvas.style("Providers", "bold")
    rows = [[provider.name, _describe_key(provider), sanitize_line(provider.address)] for provider in found]
    if canvas.width is not None and canvas.width < _NARROW:
        for name, key, address in rows:
            yield from wrap(f"{name}: {key}", canvas.width, indent="  ")
            yield from (canvas.style(line, "dim") for line in wrap(address, canvas.width, indent="    "))
    else:
        room = None if canvas.width is None else canvas.width - 2
        for provider, row in zip(found, align_table(rows, width=room), strict=True):
            key = canvas.style(row[1], "good") if provider.key else row[1]
            yield f"  {row[0]}{key}{canvas.style(row[2], 'dim')}".rstrip()
    yield ""


def _describe_key(provider: Provider) -> str:
    if provider.key is not None:
        return f"key set ({provider.key})"
    if not provider.needed:
        return "needs no key"
    if provider.sign_in is not None:
        return f"{provider.sign_in}, or a key ({' or '.join(provider.variables)})"
    return f"no key ({' or '.join(provider.variables) or 'no variable'})"


def _render_servers(answering: Sequence[FoundServer], canvas: Canvas) -> Iterator[str]:
    yield canvas.style("Servers on this machine", "bold")
    if not answering:
        yield from wrap(f"none found (looked for {name_servers('and')})", canvas.width, indent="  ")
    for server in answering:
        names = ", ".join(sanitize_line(name) for name in server.models) or "no models"
        yield from wrap(
            f"{SERVERS[server.provider]} at {sanitize_line(server.host)}: {names}", canvas.width, indent="  "
        )
    yield ""


def _render_embedded(found: Sequence[EmbeddedModel], canvas: Canvas) -> Iterator[str]:
    yield canvas.style("Embedded models", "bold")
    engine = find_version("xllamacpp")
    for each in found:
        state = "on disk" if each.ready else "downloaded on first use"
        about = sanitize_line(each.model.reference or each.model.licence)
        words = f"local:{sanitize_line(each.model.name)}  {format_size(each.model.size)}, {about}, {state}"
        yield from wrap(words, canvas.width, indent="  ")
    if engine is None:
        yield from wrap("They need a runtime: pip install 'steersman[local]'", canvas.width, indent="  ")
    yield ""


def _render_known_models(found: Sequence[Provider], canvas: Canvas) -> Iterator[str]:
    if find_version("genai-prices") is None:
        yield from wrap(_NO_PRICES, canvas.width)
        return
    for line in wrap("Models, with prices in US dollars per million tokens", canvas.width):
        yield canvas.style(line, "bold")
    models: list[tuple[str, Facts]] = []
    for provider in found:
        if provider.name in _SAME:
            continue
        # Without a key: one model per provider, to compare. Models without a known window are old; leave them out.
        known = (pair for pair in _list_models(provider.name) if pair[1].context_window is not None)
        models += islice(known, _MOST if provider.key is not None else 1)
    yield from _render_table(models, canvas)
    yield from wrap("More: steersman models FILTER, for example steersman models openai:", canvas.width, indent="  ")


def _render_table(models: Sequence[tuple[str, Facts]], canvas: Canvas) -> Iterator[str]:
    if not models:
        return
    rows = [
        [sanitize_line(name), format_window(facts.context_window), *_format_prices(facts)] for name, facts in models
    ]
    heads = ["MODEL", "CONTEXT", "IN", "OUT"]
    room = None if canvas.width is None else canvas.width - 2
    laid = align_table([heads, *rows], width=None, right=(1, 2, 3))
    longest = max(sum(measure_cells(cell) for cell in row) for row in laid)
    if room is not None and longest > room:
        for name, context, given, taken in rows:
            yield from wrap(name, canvas.width, indent="  ")
            yield canvas.style(f"    {context}, {given} in, {taken} out", "dim")
        return
    last = max(len(row[-1]) for row in laid)
    yield "  " + canvas.style("".join([*laid[0][:-1], laid[0][-1].rjust(last)]), "dim")
    for row in laid[1:]:
        yield "  " + "".join([*row[:-1], row[-1].rjust(last)])


def _print_matching(found: Sequence[Provider], answering: Sequence[FoundServer], text: str, canvas: Canvas) -> int:
    wanted = text.lower()
    matching = [pair for provider in found if provider.name not in _SAME for pair in _list_models(provider.name, text)]
    own = [f"{server.provider}:{name}" for server in answering for name in server.models]
    own += [f"local:{each.model.name}" for each in list_embedded_models()]
    matching = [*((name, Facts()) for name in own if wanted in name.lower()), *matching]
    for line in _render_table(matching, canvas):
        print(line)
    if matching:
        return 0
    known = f"No known model has {sanitize_line(text)!r} in its name."
    advice = " You can still use it, as provider:model-id." if find_version("genai-prices") else f" {_NO_PRICES}"
    print("\n".join(wrap(known + advice, canvas.width)))
    return 1


def _list_models(provider: str, text: str = "") -> Iterator[tuple[str, Facts]]:
    """Yields a provider's models with known prices, its default first; a model without a price is not for chats.

    Looking up the facts of a model is slow, so this yields one at a time.
    """
    if not PRESETS[provider].is_own_url(find_base_url(provider)):
        return  # another server, which has its own models
    usual = DEFAULT_MODELS.get(provider)
    ids = [id for id in list_known_models(provider) if id != usual and not id.endswith("-")]
    for id in ([usual] if usual else []) + ids:
        name = f"{provider}:{id}"
        if text.lower() in name.lower() and (facts := find_facts(provider, id)).prices is not None:
            yield name, facts


def _format_prices(facts: Facts) -> tuple[str, str]:
    prices = facts.prices
    return ("?", "?") if prices is None else (format_price(prices.input), format_price(prices.output))


def _to_json(
    found: Sequence[Provider], answering: Sequence[FoundServer], local: Sequence[EmbeddedModel], text: str | None
) -> dict[str, Any]:
    return {
        "providers": [
            {
                "name": provider.name,
                "address": provider.address,
                "key_variables": provider.variables,
                "key_set": provider.key,
                "key_needed": provider.needed,
                "models": [
                    {
                        "name": name,
                        "context_window": facts.context_window,
                        "prices": None if facts.prices is None else msgspec.to_builtins(facts.prices),
                    }
                    for name, facts in _list_models(provider.name, text or "")
                ],
            }
            for provider in found
        ],
        "servers": [
            {"provider": server.provider, "address": redact_base_url(server.base_url), "models": list(server.models)}
            for server in answering
        ],
        "embedded": [
            {
                "name": f"local:{each.model.name}",
                "size": each.model.size,
                "licence": each.model.licence,
                "file": None if each.path is None else str(each.path),
                "ready": each.ready,
            }
            for each in local
        ],
    }
