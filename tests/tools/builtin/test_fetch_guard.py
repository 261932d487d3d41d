"""No URL, no redirect and no answer of a name server leads a fetch to where it may not go: canaries listen there."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import aiohttp
import pytest
from tests.rows import each_row
from tests.tools.builtin import escapes
from tests.tools.builtin.sites import Site, page, redirect

from steersman import Agent, Approval
from steersman.testing import ScriptedModel, call
from steersman.tools.builtin.fetch_tool import fetch_tool
from steersman.tools.confine.addresses import ForbiddenAddress
from steersman.tools.confine.urls import InvalidUrl
from steersman.tools.output import ToolContext
from steersman.tools.tool import Tool
from steersman.types.cancel import CancelToken
from steersman.types.errors import ToolError
from steersman.types.tools import ToolOutput

pytestmark = pytest.mark.real_time

REACHABLE = [
    "http://127.0.0.1:{port}/",
    "http://127.0.0.2:{port}/",
    "http://localhost:{port}/",
    "http://0.0.0.0:{port}/",
    "http://\uff11\uff12\uff17.0.0.1:{port}/",
    "http://example.org@127.0.0.1:{port}/",
]
NUMBERS = ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0"]


async def fetched(tool: Tool, url: str) -> ToolOutput:
    return await tool.call(tool.check({"url": url}), ToolContext("call_1", "fetch", CancelToken()))


async def outcome(tool: Tool, url: str) -> ToolOutput | str:
    """What came, or the name of the error."""
    try:
        return await fetched(tool, url)
    except ToolError as error:
        return type(error).__name__


async def everything_here(host: str, port: int) -> list[str]:
    """A server of names for which every name is this machine."""
    return ["127.0.0.1"]


def canary() -> Site:
    return Site(other=page("the secret"), everywhere=True)


def test_the_corpus_is_large() -> None:
    assert len(set(escapes.ALL)) == len(escapes.ALL) >= 180


async def test_the_canary_can_be_reached_by_a_client_that_does_not_look() -> None:
    """Otherwise its silence would say nothing."""
    async with canary() as site, aiohttp.ClientSession() as session:
        for url in REACHABLE:
            async with session.get(url.format(port=site.port)) as response:
                assert await response.text() == "the secret", url
        for host in NUMBERS:
            _, writer = await asyncio.open_connection(host, site.port)
            writer.close()
            await writer.wait_closed()
        assert len(site.asked) == len(REACHABLE)


@pytest.mark.parametrize("names", [None, everything_here], ids=["names of this machine", "all names lead here"])
async def test_no_url_of_the_corpus_gets_through(names: Any) -> None:
    """failures.md L9. The guard itself says no: a connection that merely failed would not count."""
    async with canary() as site:
        tool = fetch_tool(resolve=names or _numbers_only)
        outcomes = {url: await outcome(tool, url.format(port=site.port)) for url in escapes.ALL}
        assert {url: said for url, said in outcomes.items() if said not in ("ForbiddenAddress", "InvalidUrl")} == {}
        assert (site.connections, site.asked) == (0, [])


async def _numbers_only(host: str, port: int) -> list[str]:
    """This machine's own look-up, as it reads numbers; other names are not asked for, so that no network is needed."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return ["10.0.0.1"]
    return [str(info[4][0]) for info in found]


@pytest.mark.parametrize(
    "status",
    ["301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"],
)
async def test_no_redirect_of_the_corpus_gets_through(status: str) -> None:
    """failures.md L9: each redirect is judged as a URL of its own, also where any host may be followed."""
    async with canary() as forbidden, Site() as site:
        tool = fetch_tool(allow=[site.opening], hosts=["*"], resolve=everything_here)
        for number, url in enumerate(escapes.ALL):
            location = url.format(port=forbidden.port)
            # An empty one is the page itself.
            if location.isprintable() and location.strip() == location not in ("", "http://"):
                site.routes[f"/{number}"] = redirect(location, status)
        said = {path: await outcome(tool, f"{site.url}{path}") for path in site.routes}
        through = {path: what for path, what in said.items() if what not in ("ForbiddenAddress", "InvalidUrl")}
        # Some are paths to this site when they come as a redirect, and lead nowhere else.
        assert {path: what for path, what in through.items() if not _stayed(what, site)} == {}
        assert len(site.routes) > 150
        assert (forbidden.connections, forbidden.asked) == (0, [])


def _stayed(said: ToolOutput | str, site: Site) -> bool:
    return isinstance(said, ToolOutput) and said.is_error and str(said.details["url"]).startswith(site.url)


async def test_a_redirect_may_not_leave_what_was_opened() -> None:
    async with canary() as forbidden, Site() as site:
        site.routes["/"] = redirect("/next")
        site.routes["/next"] = redirect(f"http://127.0.0.1:{forbidden.port}/")
        tool = fetch_tool(allow=[site.opening])
        with pytest.raises(ForbiddenAddress, match="leads to a loopback address"):
            await fetched(tool, f"{site.url}/")
        assert [asked.target for asked in site.asked] == ["/", "/next"]
        assert forbidden.connections == 0


class Rebinding:
    """A server of names that says something else the second time."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self.answers.pop(0)


async def test_a_name_that_is_bound_anew_leads_where_it_was_judged() -> None:
    """failures.md L9: looked up once, and connected to exactly that; a second answer is never asked for."""
    async with (
        Site(other=page("harmless")) as site,
        Site(other=page("secret"), host="127.0.0.2", port=site.port) as inner,
    ):
        names = Rebinding(["127.0.0.1"], ["127.0.0.2"])
        tool = fetch_tool(allow=[site.opening], resolve=names)
        output = await fetched(tool, f"http://rebound.example:{site.port}/")
        assert output.content == f"http://rebound.example:{site.port}/\n\nharmless"
        assert site.asked[0].headers["host"] == f"rebound.example:{site.port}"
        assert names.asked == ["rebound.example"]
        assert (len(site.asked), inner.connections) == (1, 0)


async def test_a_name_that_is_bound_anew_between_redirects_is_judged_anew() -> None:
    async with Site(other=redirect("/again")) as site, Site(host="127.0.0.2", port=site.port) as inner:
        names = Rebinding(["127.0.0.1"], ["127.0.0.1"], ["127.0.0.2"])
        tool = fetch_tool(allow=[site.opening], resolve=names)
        with pytest.raises(ForbiddenAddress, match=r"^The host 'rebound\.example' leads to a loopback address"):
            await fetched(tool, f"http://rebound.example:{site.port}/")
        assert (len(site.asked), inner.connections, len(names.asked)) == (2, 0, 3)


@pytest.mark.parametrize("answer", [["127.0.0.1", "127.0.0.2"], ["127.0.0.2", "127.0.0.1"], ["127.0.0.1", "::1"]])
async def test_a_name_with_one_forbidden_address_is_not_connected_to_at_all(answer: list[str]) -> None:
    async with Site(other=page("harmless")) as site:
        tool = fetch_tool(allow=[site.opening], resolve=Rebinding(answer))
        with pytest.raises(ForbiddenAddress):
            await fetched(tool, f"http://mixed.example:{site.port}/")
        assert site.connections == 0


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """failures.md L26: a proxy would look up the name itself."""
    async with Site(other=page("from the proxy")) as proxy, Site(other=page("direct")) as site:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        tool = fetch_tool(allow=[site.opening], resolve=everything_here)
        output = await fetched(tool, f"http://example.org:{site.port}/")
        assert output.content == f"http://example.org:{site.port}/\n\ndirect"
        assert proxy.connections == 0


async def test_nothing_of_the_user_is_sent_along(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """failures.md L26: no cookie of an answer before, no password of a file, no page it came from."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password canary-77aa\n", encoding="utf-8")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with Site() as site:
        site.routes["/"] = redirect("/end").replace(b"\r\n\r\n", b"\r\nSet-Cookie: id=canary-77aa; Path=/\r\n\r\n")
        site.routes["/end"] = page("done")
        tool = fetch_tool(allow=[site.opening])
        await fetched(tool, f"{site.url}/")
        await fetched(tool, f"{site.url}/end")
        harmless = {"accept", "accept-encoding", "connection", "host", "user-agent"}
        assert [set(asked.headers) - harmless for asked in site.asked] == [set()] * 3
        assert "canary-77aa" not in repr(site.asked)


async def test_a_redirect_to_another_host_is_told_and_not_followed() -> None:
    """A user who approved a call approved its host."""
    async with Site(other=page("elsewhere")) as other, Site() as site:
        target = f"http://other.example:{other.port}/x?y"
        site.routes["/"] = redirect(target)
        tool = fetch_tool(allow=[site.opening, other.opening], resolve=everything_here)
        output = await fetched(tool, f"http://first.example:{site.port}/")
        assert output == ToolOutput(
            f"http://first.example:{site.port}/ redirects to another host, 'other.example', and nothing was fetched "
            f"from there. If that is wanted, call fetch with this URL: {target}",
            {"url": f"http://first.example:{site.port}/", "redirect": target},
        )
        assert other.connections == 0


@pytest.mark.parametrize(
    ("start", "target", "hosts"),
    [
        ("first.example", "first.example", None),
        ("first.example", "www.first.example", None),
        ("www.first.example", "FIRST.example.", None),
        ("first.example", "other.example", ["first.example", "other.example"]),
        ("first.example", "a.other.example", ["first.example", "*.other.example"]),
        ("first.example", "other.example", ["*"]),
    ],
)
async def test_a_redirect_within_what_was_asked_for_is_followed(
    start: str, target: str, hosts: list[str] | None
) -> None:
    async with Site() as site:
        last = f"http://{target.lower().removesuffix('.')}:{site.port}/end"
        site.routes["/"] = redirect(f"http://{target}:{site.port}/end#part")
        site.routes["/end"] = page("arrived")
        tool = fetch_tool(allow=[site.opening], hosts=hosts, resolve=everything_here)
        output = await fetched(tool, f"http://{start}:{site.port}/")
        assert output.content == f"{last} (redirected from http://{start}:{site.port}/)\n\narrived"
        assert output.details["url"] == last


async def test_redirects_have_an_end() -> None:
    async with Site(other=redirect("/again")) as site:
        with pytest.raises(ToolError, match=r"^'http://127\.0\.0\.1:\d+/' was redirected more than 3 times, last to '"):
            await fetched(fetch_tool(allow=[site.opening], max_redirects=3), f"{site.url}/")
        assert len(site.asked) == 4
        with pytest.raises(ToolError, match="was redirected more than 0 times"):
            await fetched(fetch_tool(allow=[site.opening], max_redirects=0), f"{site.url}/")


async def test_a_redirect_to_a_forbidden_address_is_refused_and_not_told_as_another_host() -> None:
    async with Site({"/": redirect("http://169.254.169.254/latest/")}) as site:
        with pytest.raises(ForbiddenAddress, match="leads to a cloud metadata address"):
            await fetched(fetch_tool(allow=[site.opening]), f"{site.url}/")


async def test_the_lists_of_hosts_hold_for_the_first_request() -> None:
    async with Site(other=page("hello")) as site:
        settings: dict[str, Any] = {"allow": [site.opening], "resolve": everything_here}
        for tool in (
            fetch_tool(hosts=["second.example"], **settings),
            fetch_tool(deny_hosts=["*.example"], **settings),
        ):
            with pytest.raises(ForbiddenAddress):
                await fetched(tool, f"http://first.example:{site.port}/")
        assert site.connections == 0


async def test_a_host_that_is_denied_is_denied_in_a_redirect_too() -> None:
    async with Site() as site:
        site.routes["/"] = redirect(f"http://www.first.example:{site.port}/")
        tool = fetch_tool(allow=[site.opening], deny_hosts=["www.first.example"], resolve=everything_here)
        with pytest.raises(ForbiddenAddress, match=r"'www\.first\.example' is on the list"):
            await fetched(tool, f"http://first.example:{site.port}/")


@each_row("rule", ["fetch(domain:www.first.example)", "fetch(domain:*.other.example)"])
async def test_no_redirect_is_followed_to_a_host_that_a_rule_names(rule: str) -> None:
    host = "www.first.example" if "first" in rule else "a.other.example"
    for policy in (Approval("bypass", deny=[rule]), Approval(ask=[rule], allow=["fetch(domain:first.example)"])):
        async with Site() as site:
            first, target = f"http://first.example:{site.port}/", f"http://{host}:{site.port}/end"
            site.routes.update({"/": redirect(target), "/end": page("arrived")})
            tool = fetch_tool(allow=[site.opening], hosts=["*"], resolve=everything_here)
            script = ScriptedModel(call("fetch", url=first), call("fetch", url=target), "Done.")
            result = await Agent(script.model, tools=[tool], approval=policy).run("Go.")
            told = [message.text for message in result.tool_results]
            assert told[0].startswith(f"{first} redirects to another host, {host!r}, and nothing was fetched")
            assert "enied" in told[1]
            assert len(site.asked) == 1


async def test_a_refusal_tells_the_model_what_to_do_and_not_where_a_name_leads() -> None:
    tool = fetch_tool(resolve=everything_here)
    with pytest.raises(ForbiddenAddress) as caught:
        await fetched(tool, "https://intranet.example/")
    assert str(caught.value) == (
        "The host 'intranet.example' leads to a loopback address, and only public addresses may be fetched. "
        "Only the user can open others, with fetch_tool(allow=[...])."
    )
    with pytest.raises(InvalidUrl) as unfit:
        await fetched(tool, "file:///etc/passwd")
    assert str(unfit.value) == "Only http:// and https:// URLs can be fetched, got 'file:///etc/passwd'."


def test_fetch_needs_approval_since_a_url_can_carry_things_out() -> None:
    tool = fetch_tool()
    assert (tool.name, tool.access, tool.idempotent) == ("fetch", "full", True)


async def test_ipv6_is_judged_and_opened_likewise() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    async with Site(other=page("six"), host="::1") as site:
        url = f"http://[::1]:{site.port}/"
        assert (await fetched(fetch_tool(allow=[f"[::1]:{site.port}"]), url)).content == f"{url}\n\nsix"
        with pytest.raises(ForbiddenAddress):
            await fetched(fetch_tool(allow=[f"[::1]:{site.port + 1}"]), url)
        assert len(site.asked) == 1


async def test_many_fetches_at_once_do_not_share_where_they_go() -> None:
    async with Site(other=page("one")) as one, Site(other=page("two"), host="127.0.0.2", port=one.port) as two:

        async def by_name(host: str, port: int) -> list[str]:
            return ["127.0.0.1"] if host.startswith("one") else ["127.0.0.2"]

        tool = fetch_tool(allow=[one.opening, f"127.0.0.2:{one.port}"], resolve=by_name)
        urls = [f"http://{name}{number}.example:{one.port}/" for number in range(10) for name in ("one", "two")]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(fetched(tool, url)) for url in urls]
        assert [task.result().content for task in tasks] == [f"{url}\n\n{url[7:10]}" for url in urls]
        assert (len(one.asked), len(two.asked)) == (10, 10)
