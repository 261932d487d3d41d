"""`steersman models`: who can be asked here, with which key, for which price, and whom the command would ask now."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from steersman.cli.arguments import Options
from steersman.cli.exits import UserError, line_of
from steersman.cli.setup.model_choice import DEFAULT_MODELS, SERVERS, Found, choose, shown_address
from steersman.cli.setup.survey import (
    Embedded,
    Provider,
    embedded,
    providers,
    servers,
    user_settings,
    version_of,
)
from steersman.cli.terminal.columns import Paper, cells, paper_of, table, wrapped
from steersman.cli.terminal.sanitize import one_line
from steersman.cli.terminal.stdout import print_json
from steersman.provider.models.catalogue import Facts, find_facts, list_known_models
from steersman.provider.models.presets import PRESETS, find_base_url
from steersman.types.errors import SteersmanError

_MOST = 12
_NARROW = 68
_NO_PRICES = (
    "Prices and context windows are known with the package genai-prices: pip install 'steersman[prices]'. "
    "Any model works without it, as provider:model-id."
)
_SAME = {"openai-chat": "openai"}
"""Providers whose models are those of another one, asked in another way."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the words and flags of this command."""
    parser.add_argument("filter", nargs="?", metavar="FILTER", help="only models with this in their name, of everybody")
    parser.add_argument("--json", action="store_true", help="as JSON, and all of them")


async def run(options: Options) -> int:
    """Show what there is; the exit code."""
    arguments = options.arguments
    assert arguments is not None
    settings, trouble = user_settings()
    found = providers()
    answering = await servers()
    try:
        choice = await choose(options.model, settings)
        now = {"model": choice.model.name, "why": choice.why}
    except (UserError, SteersmanError, NotImplementedError) as error:
        now = {"model": None, "why": line_of(error)}
    if trouble:
        print(f"steersman: {trouble}", file=sys.stderr)
    if arguments.json:
        print_json({"chosen": now, **_plain(found, answering, embedded(), arguments.filter)})
        return 0
    paper = paper_of()
    if arguments.filter:
        return _print_matching(found, answering, arguments.filter, paper)
    for line in (
        *_now(now, paper),
        *_providers(found, paper),
        *_servers(answering, paper),
        *_embedded(embedded(), paper),
        *_known(found, paper),
    ):
        print(line)
    return 0


def price(amount: float | None) -> str:
    """US dollars per million tokens; what is not known is not 0."""
    if amount is None:
        return "?"
    return f"${amount:.2f}" if amount >= 0.1 or amount == 0 else f"${amount:.4g}"


def window(tokens: int | None) -> str:
    """How many tokens a context has, in short."""
    if tokens is None:
        return "?"
    if tokens >= 1_000_000:
        return f"{tokens / 1_000_000:.3g}M"
    return f"{tokens / 1000:.3g}k" if tokens >= 1000 else str(tokens)


def size(count: int) -> str:
    """A number of bytes, in short."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


# In sections


def _now(now: dict[str, Any], paper: Paper) -> Iterator[str]:
    name = one_line(now["model"]) if now["model"] else "no model"
    yield from wrapped(f"Now: {one_line(now['why'])}", paper.width)
    if name not in now["why"]:
        yield f"  {paper.styled(name, 'bold')}"
    yield ""


def _providers(found: Sequence[Provider], paper: Paper) -> Iterator[str]:
    yield paper.styled("Providers", "bold")
    rows = [[provider.name, _key_words(provider), one_line(provider.address)] for provider in found]
    if paper.width is not None and paper.width < _NARROW:
        for name, key, address in rows:
            yield from wrapped(f"{name}: {key}", paper.width, indent="  ")
            yield from (paper.styled(line, "dim") for line in wrapped(address, paper.width, indent="    "))
    else:
        room = None if paper.width is None else paper.width - 2
        for provider, row in zip(found, table(rows, width=room), strict=True):
            key = paper.styled(row[1], "good") if provider.key else row[1]
            yield f"  {row[0]}{key}{paper.styled(row[2], 'dim')}".rstrip()
    yield ""


def _key_words(provider: Provider) -> str:
    if provider.key is not None:
        return f"key set ({provider.key})"
    if not provider.needed:
        return "needs no key"
    return f"no key ({' or '.join(provider.variables) or 'no variable'})"


def _servers(answering: Sequence[Found], paper: Paper) -> Iterator[str]:
    yield paper.styled("Servers on this machine", "bold")
    if not answering:
        yield from wrapped("none answers (Ollama, LM Studio and llama.cpp are looked for)", paper.width, indent="  ")
    for server in answering:
        names = ", ".join(one_line(name) for name in server.models) or "no models"
        yield from wrapped(f"{SERVERS[server.provider]} at {one_line(server.place)}: {names}", paper.width, indent="  ")
    yield ""


def _embedded(found: Sequence[Embedded], paper: Paper) -> Iterator[str]:
    yield paper.styled("Embedded models", "bold")
    engine = version_of("xllamacpp")
    for each in found:
        state = "here" if each.ready else "fetched when first used"
        words = f"local:{each.model.name}  {size(each.model.size)}, {each.model.licence}, {state}"
        yield from wrapped(words, paper.width, indent="  ")
    if engine is None:
        yield from wrapped("They need a runtime: pip install 'steersman[local]'", paper.width, indent="  ")
    yield ""


def _known(found: Sequence[Provider], paper: Paper) -> Iterator[str]:
    if version_of("genai-prices") is None:
        yield from wrapped(_NO_PRICES, paper.width)
        return
    for line in wrapped("Models, with prices in US dollars per million tokens", paper.width):
        yield paper.styled(line, "bold")
    models: list[tuple[str, Facts]] = []
    for provider in found:
        if provider.name in _SAME:
            continue
        # Without a key there is one of each provider, to compare; old ones, of which little is known, are left out.
        known = (pair for pair in _models(provider.name) if pair[1].context_window is not None)
        models += islice(known, _MOST if provider.key is not None else 1)
    yield from _table(models, paper)
    yield from wrapped("More: steersman models FILTER, as in steersman models openai:", paper.width, indent="  ")


def _table(models: Sequence[tuple[str, Facts]], paper: Paper) -> Iterator[str]:
    if not models:
        return
    rows = [[one_line(name), window(facts.context_window), *_prices(facts)] for name, facts in models]
    heads = ["MODEL", "CONTEXT", "IN", "OUT"]
    room = None if paper.width is None else paper.width - 2
    laid = table([heads, *rows], width=None, right=(1, 2, 3))
    longest = max(sum(cells(cell) for cell in row) for row in laid)
    if room is not None and longest > room:
        for name, context, given, taken in rows:
            yield from wrapped(name, paper.width, indent="  ")
            yield paper.styled(f"    {context}, {given} in, {taken} out", "dim")
        return
    last = max(len(row[-1]) for row in laid)
    yield "  " + paper.styled("".join([*laid[0][:-1], laid[0][-1].rjust(last)]), "dim")
    for row in laid[1:]:
        yield "  " + "".join([*row[:-1], row[-1].rjust(last)])


def _print_matching(found: Sequence[Provider], answering: Sequence[Found], text: str, paper: Paper) -> int:
    wanted = text.lower()
    matching = [pair for provider in found if provider.name not in _SAME for pair in _models(provider.name, text)]
    own = [f"{server.provider}:{name}" for server in answering for name in server.models]
    own += [f"local:{each.model.name}" for each in embedded()]
    matching = [*((name, Facts()) for name in own if wanted in name.lower()), *matching]
    for line in _table(matching, paper):
        print(line)
    if matching:
        return 0
    known = f"No known model has {one_line(text)!r} in its name."
    advice = " It can be asked all the same, as provider:model-id." if version_of("genai-prices") else f" {_NO_PRICES}"
    print("\n".join(wrapped(known + advice, paper.width)))
    return 1


def _models(provider: str, text: str = "") -> Iterator[tuple[str, Facts]]:
    """What is known of a provider's models, the one that is taken for it first; those with a price are for chats.

    Looking one up takes a while, so only those are looked up that are wanted.
    """
    if find_base_url(provider) != PRESETS[provider].base_url:
        return  # another server, with models of its own
    usual = DEFAULT_MODELS.get(provider)
    ids = [id for id in list_known_models(provider) if id != usual and not id.endswith("-")]
    for id in ([usual] if usual else []) + ids:
        name = f"{provider}:{id}"
        if text.lower() in name.lower() and (facts := find_facts(provider, id)).prices is not None:
            yield name, facts


def _prices(facts: Facts) -> tuple[str, str]:
    prices = facts.prices
    return ("?", "?") if prices is None else (price(prices.input), price(prices.output))


def _plain(
    found: Sequence[Provider], answering: Sequence[Found], local: Sequence[Embedded], text: str | None
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
                    for name, facts in _models(provider.name, text or "")
                ],
            }
            for provider in found
        ],
        "servers": [
            {"provider": server.provider, "address": shown_address(server.base_url), "models": list(server.models)}
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
