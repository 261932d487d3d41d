"""One bound for all files of a project that are read before anything of it is trusted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from steersman.context.instructions import find_instructions
from steersman.tools import find_skills
from steersman.tools.confine.path_errors import TooLarge, WorkspaceError
from steersman.tools.confine.workspace import Workspace
from steersman.tools.read_budget import MAX_FILES, MAX_NAMES, BudgetSpent, ReadBudget
from steersman.tools.skills import MAX_FOLDERS, search_skills

SKILL = "---\ndescription: Use it.\n---\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_files_are_read_until_their_number_or_their_bytes_are_spent(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path / name, "x" * 100)
    home = Workspace(tmp_path)
    few = ReadBudget(files=2)
    assert [few.read(home, name, limit=100) for name in ("a", "b")] == [b"x" * 100] * 2
    with pytest.raises(BudgetSpent, match="at most 2 files and folders are opened"):
        few.read(home, "c", limit=100)
    short = ReadBudget(size=250)
    assert [short.read(home, name, limit=100) for name in ("a", "b")] == [b"x" * 100] * 2
    with pytest.raises(BudgetSpent, match="at most 250 bytes are read of all such files"):
        short.read(home, "c", limit=100)


def test_a_file_that_is_too_large_counts_as_much_as_was_read_of_it(tmp_path: Path) -> None:
    write(tmp_path / "large", "x" * 1_000)
    budget, home = ReadBudget(size=250), Workspace(tmp_path)
    for _ in range(2):
        with pytest.raises(TooLarge, match="more than 100 bytes"):
            budget.read(home, "large", limit=100)
    with pytest.raises(BudgetSpent):
        budget.read(home, "large", limit=100)


def test_folders_are_listed_until_the_names_are_spent(tmp_path: Path) -> None:
    for number in range(6):
        write(tmp_path / f"{number}", "")
    budget, home = ReadBudget(names=10), Workspace(tmp_path)
    assert [entry.name for entry in budget.scan(home, ".")] == [f"{number}" for number in range(6)]
    with pytest.raises(BudgetSpent, match="there are too many files; at most 10 names are looked at"):
        budget.scan(home, ".")


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    os.symlink("/dev/zero", tmp_path / "zero")
    for name in ("fifo", "zero"):
        with pytest.raises(WorkspaceError):
            ReadBudget().read(Workspace(tmp_path), name, limit=100)


def test_skills_are_left_out_after_the_budget_and_that_is_told(tmp_path: Path) -> None:
    for number in range(9):
        write(tmp_path / f".claude/skills/s{number}/SKILL.md", SKILL)
    # Folders of other kinds are looked for as well, and count.
    skills = search_skills(tmp_path, ReadBudget(files=8), home=None)
    assert [skill.name for skill in skills.skills] == ["s0", "s1", "s2", "s3", "s4"]
    assert len(skills.problems) == 4
    left_out = f"{tmp_path}/.claude/skills/s8 is left out: at most 8 files and folders are opened."
    assert skills.problems[-1] == left_out


def test_skills_in_thousands_are_not_all_read(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    folder = tmp_path
    for level in range(3):
        for kind in (".steersman", ".agents", ".claude"):
            for number in range(150):
                write(folder / kind / f"skills/{level}{kind}{number}/SKILL.md", SKILL)
        folder /= "inner"
    folder.mkdir()
    skills = find_skills(folder, home=None)
    assert MAX_FILES - 100 < len(skills.skills) < MAX_FILES
    assert skills.problems[-1].endswith(f": at most {MAX_FILES:,} files and folders are opened.")


def test_a_folder_of_skills_with_too_many_names_is_left_out(tmp_path: Path) -> None:
    for number in range(MAX_NAMES + 1):
        os.makedirs(tmp_path / f".claude/skills/{number}")
    skills = find_skills(tmp_path, home=None)
    told = f"No skills in {tmp_path}/.claude/skills: there are too many files; at most 20,000 names are looked at."
    assert (skills.skills, skills.problems) == ((), (told,))


def test_a_repository_is_not_looked_for_any_number_of_folders_above(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write(tmp_path / "AGENTS.md", "From the top.")
    write(tmp_path / ".claude/skills/one/SKILL.md", SKILL)
    near = tmp_path.joinpath(*"d" * (MAX_FOLDERS - 1))
    far = near / "d"
    far.mkdir(parents=True)
    assert [skill.name for skill in find_skills(near, home=None).skills] == ["one"]
    assert find_instructions(near, home=None).files == (tmp_path / "AGENTS.md",)
    assert find_instructions(far, home=None).files == ()
    skills = find_skills(far, home=None)
    told = "No repository is in the 64 nearest folders; those above are left out."
    assert (skills.skills, skills.problems) == ((), (told,))
