"""Skills: folders with a `SKILL.md` of front matter and instructions. A skill is text: it runs and permits nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec

from steersman.tools.builtin.walk import Deadline, DeadlinePassed, Walk, format_path
from steersman.tools.confine.workspace import MissingPath, Workspace, WorkspaceError
from steersman.tools.front_matter import BadFrontMatter, parse_front_matter
from steersman.tools.output import ToolContext
from steersman.tools.read_budget import BudgetSpent, ReadBudget
from steersman.tools.text import find_similar, to_one_line
from steersman.tools.tool import Tool, tool
from steersman.types.errors import ToolError

SKILL_FOLDERS = (".steersman/skills", ".agents/skills", ".claude/skills")
"""Where skills are found: in the workspace, in the folders above it up to its repository, and in the user's home."""

SKILL_FILE = "SKILL.md"
MAX_BYTES = 100_000
MAX_SKILLS = 200
MAX_NAME = 64
MAX_DESCRIPTION = 1_024
MAX_LISTED = 16_000
MAX_FILES = 200
MAX_FOLDERS = 64
"""How many folders, the workspace and those above it, may belong to a project."""

_INTRODUCTION = (
    "Skills are folders with instructions for particular tasks. When a task fits one of these, "
    "call the skill tool with its name before you begin:"
)

Where = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill: its name, when to use it, and where its folder is."""

    name: str
    description: str
    path: str
    home: Workspace = field(repr=False)

    def read(self, file: str = SKILL_FILE) -> str:
        """Read a text file of the skill's folder."""
        return _decode(self.home.read_bytes(file, limit=MAX_BYTES), file, self.name)


def _decode(data: bytes, file: str, skill: str) -> str:
    if b"\0" in data:
        raise ToolError(f"{file!r} of skill {skill!r} is not a text file.")
    return data.decode("utf-8-sig", "replace")


class Skills:
    """The skills that were found, and the problems with others. Can be passed among the tools of an agent."""

    def __init__(self, skills: Iterable[Skill], problems: Iterable[str] = ()) -> None:
        self.skills = tuple(skills)
        self.problems = tuple(problems)
        self.text = _describe_skills(self.skills)
        """For the system prompt: the names and descriptions; empty when there is no skill."""
        self.tools: list[Tool] = [_make_skill_tool({skill.name: skill for skill in self.skills})] if self.skills else []

    def __repr__(self) -> str:
        return f"Skills({[skill.name for skill in self.skills]!r}, problems={len(self.problems)})"


def find_skills(workspace: Where = ".", *, roots: Iterable[Where] = (), home: Where | None = "~") -> Skills:
    """Find the skills in the given folders, in the workspace and up to its repository, and in the user's home.

    Of two skills with the same name the nearer one is used. `home=None` leaves out the user's own skills.
    """
    return search_skills(workspace, ReadBudget(), roots=roots, home=home)


def search_skills(
    workspace: Where, budget: ReadBudget, *, roots: Iterable[Where] = (), home: Where | None = "~"
) -> Skills:
    """Find skills as `find_skills` does; what is read of the project counts against a budget."""
    finder = _Finder(budget)
    for root in roots:
        finder.look_in_own(Path(os.path.expanduser(root)), must_exist=True)
    folders = find_project_folders(Path(workspace))
    if len(folders) == 1 and len(folders[0].parts) > MAX_FOLDERS and not os.path.lexists(folders[0] / ".git"):
        finder.problems.append(f"No repository is in the {MAX_FOLDERS} nearest folders; those above are left out.")
    for folder in folders:
        finder.look_in_project(folder)
    if home is not None and os.path.isabs(own := os.path.expanduser(home)):
        for subfolder in SKILL_FOLDERS:
            finder.look_in_own(Path(own, subfolder), must_exist=False)
    return Skills(finder.found.values(), finder.problems)


def find_project_folders(workspace: Path) -> list[Path]:
    """Return the workspace and the folders above it up to its repository, as long as they have the same owner.

    A repository that is more than `MAX_FOLDERS` above is not looked for.
    """
    start = Path(os.path.realpath(workspace, strict=True))
    owner = start.stat().st_uid
    folders: list[Path] = []
    for folder in islice((start, *start.parents), MAX_FOLDERS):
        if folder.stat().st_uid != owner:
            break
        folders.append(folder)
        if os.path.lexists(folder / ".git"):
            return folders
    # There is no repository, so nothing above belongs to this workspace.
    return [start]


class _Finder:
    """Collects skills, the nearest first, and the problems with others."""

    def __init__(self, budget: ReadBudget) -> None:
        self._budget = budget
        self.found: dict[str, Skill] = {}
        self.problems: list[str] = []
        self.known: set[tuple[int, int]] = set()

    def look_in_project(self, folder: Path) -> None:
        """Add a project's skills; a link that leads out of the project is not followed."""
        project = Workspace(folder)
        for subfolder in SKILL_FOLDERS:
            for name in self._list_names(project, subfolder, str(folder / subfolder), self._budget):
                self._add_skill(folder / subfolder / name, self._budget, project, f"{subfolder}/{name}")

    def look_in_own(self, root: Path, *, must_exist: bool) -> None:
        """Add the user's own skills, whose links may lead anywhere."""
        try:
            own = Workspace(root)
        except OSError as error:
            if must_exist:
                self.problems.append(f"No skills in {format_path(str(root))}: {error.strerror}.")
            return
        budget = ReadBudget()
        for name in self._list_names(own, ".", str(root), budget):
            self._add_skill(root / name, budget)

    def _list_names(self, home: Workspace, subfolder: str, where: str, budget: ReadBudget) -> Iterator[str]:
        try:
            entries = budget.scan(home, subfolder)
        except MissingPath:
            return
        except WorkspaceError as error:
            self.problems.append(f"No skills in {format_path(where)}: {error}")
            return
        names = [name for name, kind in entries if kind in ("folder", "link") and not name.startswith((".", "_"))]
        if len(names) > MAX_SKILLS:
            self.problems.append(
                f"Only the first {MAX_SKILLS} of {len(names):,} folders in {format_path(where)} were read."
            )
        yield from names[:MAX_SKILLS]

    def _add_skill(self, path: Path, budget: ReadBudget, project: Workspace | None = None, within: str = "") -> None:
        where = format_path(str(path))
        try:
            folder = path if project is None else project.root / project.relative(within)
            found = folder.stat()
            if not stat.S_ISDIR(found.st_mode) or (found.st_dev, found.st_ino) in self.known:
                return
            self.known.add((found.st_dev, found.st_ino))
            skill = _read_skill(Workspace(folder), path, budget)
        except MissingPath:
            self.problems.append(f"{where} is no skill: it has no {SKILL_FILE}.")
        except BudgetSpent as error:
            self.problems.append(f"{where} is left out: {error}")
        except (OSError, BadFrontMatter, ToolError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error).removesuffix(".")
            self.problems.append(f"{where} is no skill: {reason}.")
        else:
            if skill.name in self.found:
                nearer = format_path(self.found[skill.name].path)
                self.problems.append(f"{where} is left out: there is a nearer skill {skill.name!r} in {nearer}.")
            else:
                self.found[skill.name] = skill


def _read_skill(home: Workspace, path: Path, budget: ReadBudget) -> Skill:
    data = budget.read(home, SKILL_FILE, limit=MAX_BYTES)
    head, _ = parse_front_matter(_decode(data, SKILL_FILE, path.name))
    name = to_one_line(head.get("name", ""), MAX_NAME) or to_one_line(path.name, MAX_NAME)
    description = to_one_line(head.get("description", ""), MAX_DESCRIPTION)
    if not description:
        raise BadFrontMatter("it has no description, so the model would not know when to use it")
    return Skill(name, description, str(path), home)


def _describe_skills(skills: tuple[Skill, ...]) -> str:
    if not skills:
        return ""
    lines, size = [_INTRODUCTION], 0
    for index, skill in enumerate(skills):
        line = f"- {skill.name}: {skill.description}"
        size += len(line) + 1
        if size > MAX_LISTED:
            rest = ", ".join(skill.name for skill in skills[index:])
            lines.append(f"- and {len(skills) - index} more: {to_one_line(rest, MAX_DESCRIPTION)}")
            break
        lines.append(line)
    return "\n".join(lines)


def _make_skill_tool(skills: dict[str, Skill]) -> Tool:
    @tool(name="skill", access="read", idempotent=True)
    def skill(
        ctx: ToolContext,
        name: Annotated[str, msgspec.Meta(description="The name of the skill.")],
        file: Annotated[str | None, msgspec.Meta(description="A further file of the skill's folder to read.")] = None,
    ) -> str:
        """Read the instructions of a skill, and see which other files it has. With 'file', read one of these."""
        found = skills.get(name)
        if found is None:
            raise ToolError(_describe_unknown(name, list(skills)))
        if file is not None:
            return found.read(file)
        _, body = parse_front_matter(found.read())
        head = f"Skill {found.name!r}, from {format_path(found.path)}:"
        return "\n".join([head, "", body, "", *_list_files(found, ctx)])

    return skill


def _describe_unknown(name: str, names: list[str]) -> str:
    near = find_similar(name, names)
    text = f"No skill named {name!r:.100}. Skills: {to_one_line(', '.join(names), 2_000)}."
    return f"{text} Did you mean {near[0]!r}?" if near else text


def _list_files(skill: Skill, ctx: ToolContext) -> list[str]:
    walk = Walk(skill.home, "", Deadline(ctx), ignored=True)
    others: list[str] = []
    try:
        for folder in walk:
            others += [format_path(folder.join(name)) for name in folder.files if folder.path or name != SKILL_FILE]
    except DeadlinePassed:
        others.append("[and others: there are too many to look at]")
    if not others:
        return ["It has no other files."]
    more = [f"[{len(others) - MAX_FILES:,} more]"] if len(others) > MAX_FILES else []
    return ["Its other files, which the skill tool reads with 'file':", *others[:MAX_FILES], *more]
