"""Settings are read exactly, complaints say where and what is allowed, and a project's settings only tighten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.rows import each_row

from steersman.cli.exits import UserError
from steersman.cli.setup.settings import ProviderSettings, Settings
from steersman.cli.setup.settings_parser import parse_settings, read_settings

PATH = Path("config.toml")

WHOLE = """
model = "openai:gpt-5"
thinking = "low"
system_prompt = "Be brief."
tools = ["read", "bash"]
allowed_tools = ["edit"]
max_turns = 9
max_budget_usd = 2
max_duration = 60.5
fallbacks = ["groq:x"]
mcp_variables = ["TOKEN"]

[approval]
mode = "accept-edits"
allow = ["bash(git status:*)"]
ask = ["read(secret/**)"]
deny = ["bash(rm:*)"]

[providers.acme]
base_url = "https://llm.acme.example/v1"
api_key_env = "ACME_KEY"
protocol = "anthropic"
"""


def _settings(text: str, *, project: bool = False) -> Settings:
    return parse_settings(text.encode(), PATH, project=project)


def test_every_key_has_its_setting() -> None:
    assert _settings(WHOLE) == Settings(
        model="openai:gpt-5",
        model_from=PATH,
        thinking="low",
        system_prompt="Be brief.",
        tools=("read", "bash"),
        mode="accept-edits",
        allow=("edit", "bash(git status:*)"),
        ask=("read(secret/**)",),
        deny=("bash(rm:*)",),
        max_turns=9,
        max_budget_usd=2,
        max_duration=60.5,
        fallbacks=("groq:x",),
        mcp_variables=("TOKEN",),
        providers={"acme": ProviderSettings("https://llm.acme.example/v1", "ACME_KEY", "anthropic")},
    )
    assert _settings("") == Settings()


@each_row(
    ("text", "says"),
    [
        (
            "modle = 'x'",
            "have 'modle': unknown key. Did you mean 'model'? Known keys: allowed_tools, approval,",
        ),
        ("[approval]\nalow = []", "have 'approval.alow': unknown key. Did you mean 'allow'?"),
        ("[providers.x]\nurl = 'y'", "have 'providers.x.url': unknown key. Known keys: api_key_env,"),
        ("max_turns = '3'", "have 'max_turns': expected a whole number of at least 1, got '3'."),
        ("max_turns = true", "have 'max_turns': expected a whole number of at least 1, got True."),
        ("max_duration = inf", "have 'max_duration': expected a number above 0, got inf."),
        ("thinking = 'much'", "expected one of 'off', 'minimal', 'low', 'medium', 'high', got 'much'."),
        ("tools = 'read'", "have 'tools': expected a list of quoted names, got 'read'."),
        ("approval = 'ask'", "have 'approval': expected a table, got 'ask'."),
        ("[approval]\nmode = 'yolo'", "expected one of 'ask', 'accept-edits', 'plan', 'bypass', got 'yolo'."),
        ("[providers.x]\nbase_url = 'ftp://y'", "expected a URL such as 'https://host/v1', got 'ftp://y'."),
        ("[providers.x]\nbase_url = 'http://[y'", "expected a URL such as 'https://host/v1', got 'http://[y'."),
        ("[providers.x]\nbase_url = 'http://y:99999'", "expected a URL such as 'https://host/v1', got"),
        (f"max_duration = 1{'0' * 400}", "have 'max_duration': expected a number above 0, got 1000"),
        (f"max_duration = 1{'0' * 5000}", "are not valid TOML: "),
        ("[providers.x]\napi_key_env = 'sk-abc'", "expected the name of an environment variable"),
        (
            "[providers.'a:b']\nprotocol = 'openai'",
            "a provider's name consists of lowercase letters, digits, '.', '_' and '-'",
        ),
        ("a = 1\nmodel = \n", "are not valid TOML: Invalid value (at line 2, column 9)."),
        (f"model = 'x'\n{'a.' * 32}a = 1", "are not valid TOML: A key has more than 32 parts (at line 2)."),
        (f"[{'a . ' * 32}a]", "are not valid TOML: A key has more than 32 parts (at line 1)."),
        ("""'.'."\\".".""" + "a." * 30 + "a = 1", "are not valid TOML: A key has more than 32 parts (at line 1)."),
        (f"{'a.' * 31}a = 1", "have 'a': unknown key."),
        (f"a = {'[' * 5_000}", "are not valid TOML: It is nested too deeply."),
        (f"model = {'{a.b.c.d.e.f.g.h.i.j.k.l = ' * 100}1{'}' * 100}", "are not valid TOML: It is nested too deeply."),
        (f"model = 0x{'f' * 5_000}", "are not valid TOML: A number has more than 2,000 bits."),
        (f"themes.x = [{{a = 0b{'1' * 2_001}}}]", "are not valid TOML: A number has more than 2,000 bits."),
    ],
)
def test_what_is_wrong_is_told_with_the_file_the_key_and_what_is_allowed(text: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        _settings(text)
    assert str(caught.value).startswith("The settings 'config.toml' ")
    assert says in str(caught.value)
    assert caught.value.code == 2


def test_a_key_in_a_file_is_refused_and_not_repeated() -> None:
    """failures.md L13."""
    with pytest.raises(UserError, match='name that: api_key_env = "NAME"') as caught:
        _settings("[providers.openai]\napi_key = 'sk-secret-123456'")
    assert "sk-secret" not in str(caught.value)
    with pytest.raises(UserError, match=r"api_key_env': expected the name of an environment variable\.$"):
        _settings("[providers.openai]\napi_key_env = 'of-no-known-form-123456'")


@each_row(
    ("text", "says"),
    [
        ("allowed_tools = ['bash']", "approval.allow or allowed_tools"),
        ("[approval]\nallow = ['bash']", "approval.allow or allowed_tools"),
        ("[approval]\nmode = 'bypass'", "approval.mode"),
        ("[approval]\nmode = 'accept-edits'", "approval.mode"),
        ("[providers.openai]\nbase_url = 'https://evil.example/v1'", "providers"),
        ("mcp_variables = ['OPENAI_API_KEY']", "mcp_variables"),
        ("model = 'local:./evil.gguf'", "model"),
        ("fallbacks = ['local:/tmp/evil']", "model"),
        ("model = ' local : /tmp/evil'", "model"),
        ("fallbacks = ['local:evil.GGUF ']", "model"),
        ("model = 'local:a-file-here'", "model"),
    ],
)
def test_a_project_cannot_reach_further_than_its_user(text: str, says: str) -> None:
    """failures.md L12."""
    assert _settings(text)
    with pytest.raises(UserError, match="only your own settings may set this") as caught:
        _settings(text, project=True)
    assert f"have {says!r}" in str(caught.value)


def test_a_projects_model_and_words_count_first_and_its_rules_and_limits_only_tighten() -> None:
    own = Settings(
        model="openai:a",
        model_from=Path("own"),
        thinking="low",
        tools=("read", "edit"),
        mode="accept-edits",
        allow=("bash(ls:*)",),
        deny=("fetch",),
        max_turns=5,
        max_duration=10,
        fallbacks=("groq:x",),
    )
    project = Settings(
        model="anthropic:b",
        model_from=Path("project"),
        system_prompt="As here.",
        tools=("bash", "read"),
        mode="ask",
        ask=("edit",),
        deny=("bash(rm:*)",),
        max_turns=50,
        max_budget_usd=1,
        max_duration=3,
    )
    assert own.tighten(project) == Settings(
        model="anthropic:b",
        model_from=Path("project"),
        thinking="low",
        system_prompt="As here.",
        tools=("read",),
        mode="ask",
        allow=("bash(ls:*)",),
        ask=("edit",),
        deny=("fetch", "bash(rm:*)"),
        max_turns=5,
        max_budget_usd=1,
        max_duration=3,
        fallbacks=("groq:x",),
    )
    assert own.tighten(Settings()) == own
    assert Settings(mode="plan").tighten(Settings(mode="ask")).mode == "plan"


def test_a_file_that_cannot_be_read_is_told_and_one_that_is_missing_is_empty(tmp_path: Path) -> None:
    assert read_settings(tmp_path / "none") == Settings()
    with pytest.raises(UserError, match=r"Cannot read the settings '.*': Is a directory"):
        read_settings(tmp_path)
    os.mkfifo(fifo := tmp_path / "fifo")
    assert read_settings(fifo) == Settings()
    (tmp_path / "latin").write_bytes(b"model = '\xe9'")
    with pytest.raises(UserError, match="are not UTF-8"):
        read_settings(tmp_path / "latin")
    (tmp_path / "long").write_bytes(b"#" * 300_000)
    with pytest.raises(UserError, match=r"Cannot use the settings .* it has more than 262,144 bytes"):
        read_settings(tmp_path / "long")


def test_the_documented_file_has_every_key_and_can_be_read() -> None:
    page = (Path(__file__).parents[3] / "docs/command.md").read_text(encoding="utf-8")
    example = page.partition("```toml\n")[2].partition("```")[0]
    found = _settings(example)
    unset = Settings()
    assert [name for name in Settings.__slots__ if getattr(found, name) == getattr(unset, name)] == []
