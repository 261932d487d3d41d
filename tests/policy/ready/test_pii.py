"""Personal data of several countries, and what only looks like it. The rates in docs/policies.md are printed here."""

from __future__ import annotations

import asyncio
import string
import time
from collections.abc import Awaitable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from steersman import Agent, ToolCall, ToolOutput, tool
from steersman.policy import PiiRedaction, find_personal_data
from steersman.policy.ready.personal_data import PII_KINDS, PiiKind
from steersman.testing import ScriptedModel, answer, call
from steersman.types.messages import user_message
from steersman.types.model import Request, StreamOptions, StreamResponse

POSITIVE: dict[PiiKind, list[str]] = {
    "email": [
        "ada@example.com", "ada.lovelace+list@mail.example.co.uk", "jürgen.müller@beispiel.de", "o'brien@example.ie",
        "用户@例子.公司", "first_last@sub-domain.example.org", "a@b.io", "UPPER.CASE@EXAMPLE.COM",
    ],
    "iban": [
        "DE89 3704 0044 0532 0130 00", "DE89370400440532013000", "GB29 NWBK 6016 1331 9268 19",
        "FR14 2004 1010 0505 0001 3M02 606", "NL91ABNA0417164300", "ES91 2100 0418 4502 0005 1332",
        "IT60 X054 2811 1010 0000 0123 456", "CH93 0076 2011 6238 5295 7", "BE68 5390 0754 7034",
        "AT61 1904 3002 3457 3201", "PL61109010140000071219812874", "SE4550000000058398257466", "NO93 8601 1117 947",
        "DK5000400440116243", "FI2112345600000785", "PT50000201231234567890154", "BR1800360305000010009795493C1",
        "TR330006100519786457841326", "SA0380000000608010167519", "de89370400440532013000",
    ],
    "card": [
        "4111 1111 1111 1111", "4111111111111111", "5555-5555-5555-4444", "378282246310005", "3782 822463 10005",
        "6011111111111117", "30569309025904", "3530111333300000", "4222222222222", "2223003122003222",
    ],
    "national_id": [
        "219-09-9999", "86 095 742 719", "Steuer-ID: 86095742719", "2 55 08 14 168 025 38", "255081416802538",
        "12345678Z", "X1234567L", "RSSMRA85T10A562S", "BSN 111222333", "44051401359", "811228-9874", "19811228-9874",
        "756.9217.0769.85", "85.07.30-033.28", "111.444.777-35", "CPF 11144477735", "130-692-544",
        "SIN 130 692 544", "2341 2341 2346", "Aadhaar: 234123412346", "11010519491231002X", "131052-308T",
        "15076500565", "8001015009087", "NHS no. 943 476 5919", "AB123456C", "AB 12 34 56 C",
    ],
    "phone": [
        "+49 30 901820", "+49 (0)30 901820", "0049 30 9018 2020", "0151 23456789", "030/901820-11",
        "+1 415-555-2671", "(415) 555-2671", "415-555-2671", "1-415-555-2671", "415.555.2671", "+44 20 7946 0958",
        "020 7946 0958", "07700 900123", "+33 1 23 45 67 89", "01 23 45 67 89", "+34 612 345 678",
        "Móvil: 612 345 678", "+39 06 6982 1234", "+41 44 668 18 00", "044 668 18 00", "+55 11 91234-5678",
        "(11) 91234-5678", "+91 98765 43210", "call 98765 43210", "+81 3-1234-5678", "03-1234-5678", "090-1234-5678",
        "+61 412 345 678", "0412 345 678", "+86 138 0013 8000", "手机 13800138000", "+46 70 123 45 67",
        "tel. 5551234567",
        "06-12345678", "+7 495 123-45-67", "+380 44 123 4567",
    ],
    "ip": ["192.168.0.1", "8.8.8.8", "2001:db8::8a2e:370:7334", "fe80::1", "::ffff:192.0.2.1", "255.255.255.255"],
}  # fmt: skip
NEGATIVE = [
    "2026-11-17", "17.11.2026", "2026-11-17T05:40:00Z", "12:30:45", "version 1.2.3", "v10.4.0-rc.1", "1,234,567.89",
    "100 000 000", "12 345 678", "order 1234567890", "invoice 4111111111111112", "DE89370400440532013001",
    "DE8937040044053201300", "GB29 NWBK 6016 1331 9268 18", "ISBN 978-3-16-148410-0", "ISBN 0-306-40615-2",
    "123e4567-e89b-12d3-a456-426614174000", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "1731812345", "1731812345678", "52.5200, 13.4050", "@property", "user@localhost", "a@b", "x = y@z", "git@github",
    "000-12-3456", "666-12-3456", "900-12-3456", "219-00-9999", "12345678A", "X1234567A", "RSSMRA85T10A562A",
    "44051401358", "44131401359", "811228-9875", "756.9217.0769.84", "85.07.30-033.29", "111.444.777-36",
    "111.111.111-11", "2341 2341 2347", "11010519491231002Y", "131052-308U", "GB123456C", "1990-2020", "pages 12-34",
    "555-1234", "3.14159265358979", "0x4111111111111111", "10.1000/182", "4111-1111", "port 8080", "1/2/2026",
    "line 12345678", "#1234567", "$ 1 250 000", "16:9", "chr1:12345678-12345999", "EUR 12.345,67", "id=4242424242",
    "R2D2", "A4 210 x 297", "00:1A:2B:3C:4D:5E", "RFC 2822", "+5", "-40", "1e10", "0.000123", "50% of 120",
    "call me at 5", "phone 12", "Room 101", "std::vector", "tax 2024", "SKU 0412-345", "192.168.0.256",
]  # fmt: skip
CARRIERS = ("{}", "Contact: {}.", "He wrote ({}) yesterday", "a; {}; b", '{{"value": "{}"}}', "{}\nnext line", "x\t{}")


def finds(kind: PiiKind, text: str) -> bool:
    return [found.kind for found in find_personal_data(text)] == [kind]


def test_the_rates_on_the_corpus_are_those_of_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    for kind, values in POSITIVE.items():
        cases = [carrier.format(value) for value in values for carrier in CARRIERS]
        missed = [case for case in cases if not finds(kind, case)]
        lines.append(f"{kind}: {len(cases) - len(missed)} of {len(cases)} found; missed {missed}")
    alarms = [
        (text, found)
        for value in NEGATIVE
        for carrier in CARRIERS
        if (found := find_personal_data(text := carrier.format(value), PII_KINDS))
    ]
    lines.append(f"look-alikes: {len(alarms)} of {len(NEGATIVE) * len(CARRIERS)} taken for personal data; {alarms}")
    with capsys.disabled():
        print("", *lines, sep="\n  ")
    assert [line for line in lines if not line.endswith("; missed []")] == [lines[-1]]
    assert alarms == []


@pytest.mark.parametrize("kind", ["iban", "card", "national_id"])
def test_a_wrong_digit_is_not_taken_for_a_checked_number(kind: PiiKind) -> None:
    """Kinds with one check digit or more: every change of one digit to another is noticed."""
    without_check = ("219-09", "AB")  # these two have none
    values = [value for value in POSITIVE[kind] if value[0].isdigit() and not value.startswith(without_check)]
    wrong, still = 0, 0
    for value in values:
        for place, mark in enumerate(value):
            if mark.isdigit():
                other = value[:place] + str((int(mark) + 1) % 10) + value[place + 1 :]
                wrong += 1
                still += any(found.kind == kind for found in find_personal_data(other, [kind]))
    assert still <= wrong * 0.06, (still, wrong)


@settings(max_examples=50)
@given(st.text(alphabet=string.ascii_letters + string.digits + " .@+-:/()\u00a0é", max_size=100))
def test_redaction_changes_nothing_else_and_can_be_undone(text: str) -> None:
    pii = PiiRedaction(PII_KINDS)
    assert pii.restore(pii.redact(text)) == text


@each_row("text", ["a@", "1", "1 ", "0 1 ", "+1 ", "a.", "a@a.", "AB12", "(0", "1:", "é@"])
def test_the_time_is_linear(text: str) -> None:
    """Ten times as much text takes about ten times as long, for texts that nearly match again and again."""
    costs: list[float] = []
    for size in (2_000, 20_000):
        hostile = (text * size)[:size]
        began = time.process_time()
        find_personal_data(hostile)
        costs.append(time.process_time() - began)
    assert costs[1] < 40 * max(costs[0], 0.001), costs


def test_the_time_is_linear_in_the_number_of_values() -> None:
    costs: list[float] = []
    for count in (200, 2_000):
        text = " ".join(f"ada{number}@example.com" for number in range(count))
        pii = PiiRedaction(["email"], tag="a_b")
        began = time.process_time()
        clean = pii.redact(text)
        costs.append(time.process_time() - began)
        assert len(pii.known) == count
        assert pii.restore(clean) == text
    assert costs[1] < 40 * max(costs[0], 0.001), costs


def test_the_same_value_has_the_same_placeholder_and_tools_of_choice_get_it_back() -> None:
    sent: dict[str, str] = {}  # the two calls are made at once, so they come in any order

    @tool
    def customer() -> str:
        """Find the customer."""
        return "ada@example.com, card 4111 1111 1111 1111"

    @tool
    def mail(to: str) -> str:
        """Send a mail."""
        sent["mail"] = to
        return f"sent to {to}"

    @tool
    def note(text: str) -> str:
        """Write a note."""
        sent["note"] = text
        return "noted"

    pii = PiiRedaction(restore_in=["mail"], tag="t")
    script = ScriptedModel(
        answer(call("customer")),
        answer(call("mail", to="[EMAIL_1_t]"), call("note", text="[EMAIL_1_t]")),
        "Done for [EMAIL_1_t].",
    )
    agent = Agent(script.model, tools=[customer, mail, note], hooks=[pii], stream_fn=pii.wrap(script))
    agent.system_prompt = "You work for boss@example.com."
    result = agent.run_sync("Write to ada@example.com, not to bob@example.com.")

    assert sent == {"mail": "ada@example.com", "note": "[EMAIL_1_t]"}
    assert [message.text for message in result.tool_results] == [
        "[EMAIL_1_t], card [CARD_4_t]",
        "sent to [EMAIL_1_t]",
        "noted",
    ]
    shown = "".join(message.text for request, _ in script.requests for message in request.messages)
    assert script.requests[0][0].system_prompt == "You work for [EMAIL_3_t]."
    assert "example.com" not in shown
    assert script.requests[0][0].messages[0].text == "Write to [EMAIL_1_t], not to [EMAIL_2_t]."
    assert pii.restore(result.text) == "Done for ada@example.com."


def test_a_text_from_outside_cannot_name_a_placeholder() -> None:
    pii = PiiRedaction()
    placeholder = pii.redact("ada@example.com")
    assert pii.restore("[EMAIL_1_000000] [EMAIL_1_]") == "[EMAIL_1_000000] [EMAIL_1_]"
    assert pii.restore(placeholder) == "ada@example.com"
    later = PiiRedaction(known=pii.known)
    assert (later.restore(placeholder), later.redact("ada@example.com")) == ("ada@example.com", placeholder)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match="'name'"):
        PiiRedaction(["name"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="names of tools"):
        PiiRedaction(restore_in="mail")


async def test_the_details_of_an_output_are_redacted_too() -> None:
    output = ToolOutput("fine", {"rows": [{"mail": "ada@example.com"}], "count": 1, "bob@example.com": [1]})
    clean = await PiiRedaction(tag="t").after_tool_execution(ToolCall("1", "find"), output)
    assert clean == ToolOutput("fine", {"rows": [{"mail": "[EMAIL_1_t]"}], "count": 1, "[EMAIL_2_t]": [1]})


async def test_a_long_text_is_searched_beside_the_event_loop() -> None:
    """A tool output of a megabyte took two seconds, during which nothing else ran; so did a prompt."""
    pii, script, text = PiiRedaction(tag="t"), ScriptedModel("Fine."), "4 " * 100_000 + "ada@example.com"
    steps: list[int] = []

    async def count() -> None:
        while True:
            steps.append(len(steps))
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        counting = group.create_task(count())
        clean = await pii.after_tool_execution(ToolCall("1", "find"), ToolOutput(text))
        after_output = len(steps)
        async for _ in await ask_model(pii, script, text):
            pass
        counting.cancel()
    assert clean is not None
    assert str(clean.content).endswith(" [EMAIL_1_t]")
    assert script.requests[0][0].messages[0].text.endswith(" [EMAIL_1_t]")
    assert 10 < after_output < len(steps) - 10


async def ask_model(pii: PiiRedaction, script: ScriptedModel, text: str) -> StreamResponse:
    """Send a prompt through the redaction."""
    given = pii.wrap(script)(script.model, Request("", [user_message(text)]), StreamOptions())
    return await given if isinstance(given, Awaitable) else given
