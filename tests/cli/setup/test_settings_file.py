"""Rules that are added to the settings file: nothing else in it changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from steersman.cli.exits import UserError
from steersman.cli.setup.settings_file import add_allow_rules
from steersman.cli.setup.settings_parser import read_settings

RULE = 'bash(echo "x" \\ y)'
QUOTED = '"bash(echo \\"x\\" \\\\ y)"'
HEAD = "[approval]\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, f"{HEAD}allow = [{QUOTED}]\n"),
        ('model = "a:b" # mine\n', f'model = "a:b" # mine\n\n{HEAD}allow = [{QUOTED}]\n'),
        (
            f'{HEAD}mode = "ask" # x\n\n[providers.a]\n',
            f'{HEAD}allow = [{QUOTED}]\nmode = "ask" # x\n\n[providers.a]\n',
        ),
        (f"{HEAD}allow = []\n", f"{HEAD}allow = [{QUOTED}]\n"),
        (f'{HEAD}allow = ["a", # ]\n "b",\n]\n', f'{HEAD}allow = ["a", # ]\n "b", {QUOTED}\n]\n'),
        (f'{HEAD}allow = [\n "a" # "x"\n]\n', f'{HEAD}allow = [\n "a", {QUOTED} # "x"\n]\n'),
        (f"{HEAD}allow = [{QUOTED}]\n", f"{HEAD}allow = [{QUOTED}]\n"),
    ],
)
def test_a_rule_is_added_and_the_rest_stays_as_it_is(tmp_path: Path, before: str | None, after: str) -> None:
    path = tmp_path / "steersman" / "config.toml"
    if before is not None:
        path.parent.mkdir()
        path.write_text(before)
        path.chmod(0o640)
    add_allow_rules(path, [RULE])
    assert path.read_text() == after
    assert path.stat().st_mode & 0o777 == (0o600 if before is None else 0o640)
    assert RULE in read_settings(path).allow
    assert [file.name for file in path.parent.iterdir()] == ["config.toml"]


@pytest.mark.parametrize("text", ['approval.allow = ["b"]\n', 'approval = {allow = ["c"]}\n'])
def test_a_file_of_another_form_is_left_alone_and_the_rule_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=r"add it to approval\.allow there"):
        add_allow_rules(path, [RULE])
    assert path.read_text() == text


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """Many people keep their settings in a repository and link to them."""
    (tmp_path / "kept.toml").write_text("")
    (tmp_path / "config.toml").symlink_to("kept.toml")
    add_allow_rules(tmp_path / "config.toml", [RULE])
    assert (tmp_path / "config.toml").is_symlink()
    assert read_settings(tmp_path / "kept.toml").allow == (RULE,)
