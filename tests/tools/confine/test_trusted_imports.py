"""A module that a model wrote is not imported by Python or by a package, whatever its name."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import tomllib
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.tools.confine.pythons import make_python

from steersman.safe_start import list_needed_modules

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
PROGRAM = """
    import importlib, sys
    from steersman.tools import builtin_tools

    write = {tool.name: tool for tool in builtin_tools(".")}["write"]
    names = sys.argv[1:]
    for name in (*names, "mine"):
        write(path=f"{name}/__init__.py", content=f"print('RAN', {name!r})")
    importlib.invalidate_caches()
    for name in (*names, "mine"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            print("refused", error.name)
"""


def test_packages_of_extras_and_those_that_are_not_installed_are_not_imported_from_the_workspace(
    tmp_path: Path,
) -> None:
    """docs/security.md: what Steersman uses is never imported from the workspace once the tools are made."""
    (tmp_path / "app.py").write_text(textwrap.dedent(PROGRAM))
    (tmp_path / "cchardet.py").touch()  # the user's own, which was there before
    names = ["botocore", "google", "mcp_types", "temporalio", "six", "winloop", "msvcrt", "cchardet"]
    done = subprocess.run(
        [sys.executable, "app.py", *names], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    lines = done.stdout.splitlines()
    missing = [name for name in names if metadata.packages_distributions().get(name) is None and name != "cchardet"]
    assert lines == [*[f"refused {name}" for name in missing], "RAN cchardet", "RAN mine"]


def test_a_workspace_that_is_made_later_takes_nothing_that_tools_wrote_for_the_users_own(tmp_path: Path) -> None:
    """Such as the folder of a skill, or another project: a module that is there by then may be a model's."""
    later = """
        from steersman.tools import Workspace, builtin_tools
        write = {tool.name: tool for tool in builtin_tools("project")}["write"]
        write(path="winloop.py", content="print('RAN')")
        Workspace("project/inner"), Workspace("other"), Workspace(".")
        try:
            import winloop
        except ModuleNotFoundError as error:
            print("refused", error.name)
    """
    for folder in ("project/inner", "other"):
        (tmp_path / folder).mkdir(parents=True)
    program = f"import sys; sys.path[:0] = ['project', 'other']\n{textwrap.dedent(later)}"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "refused winloop\n"


def run(folder: Path, *words: str, python: str = sys.executable) -> list[str]:
    """Run Python in a folder; the lines that it wrote."""
    done = subprocess.run([python, *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


OPTIONAL = """
    import sys, sysconfig
    from steersman.tools import builtin_tools

    write = {tool.name: tool for tool in builtin_tools(".")}["write"]
    data = sysconfig._get_sysconfigdata_name()
    for path in ("org.py", "awscrt/__init__.py", f"{data}.py", "notes.py", "java/lang.py"):
        write(path=path, content="print('RAN', __name__)")
    sys.modules.pop("pickle", None)
    import pickle  # which tries to import org.python.core
    sysconfig.get_config_vars()  # which imports the module of that long name
    sys.path.append(sys.argv[1])
    import outside
"""
OUTSIDE = """
    import importlib, importlib.util

    for name in ("awscrt", "notes", "java.lang", "nowhere"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            print(error)
    print(importlib.util.find_spec("nowhere"))
"""


def test_a_name_that_no_list_knows_is_not_imported_from_the_workspace_by_code_outside(tmp_path: Path) -> None:
    """docs/security.md: `pickle` tries `org`, `sysconfig` its data, and packages what need not be installed."""
    project, library = tmp_path / "project", tmp_path / "library"
    for folder, name, program in ((project, "app", OPTIONAL), (library, "outside", OUTSIDE)):
        folder.mkdir()
        (folder / f"{name}.py").write_text(textwrap.dedent(program))
    for path in ("notes.md", "java/Main.java"):  # names that were there, but no modules
        (project / path).parent.mkdir(exist_ok=True)
        (project / path).touch()
    told = "outside the workspace. The one there was not there when the tools were made."
    assert run(project, "app.py", str(library)) == [
        f"No module named 'awscrt' {told}",
        f"No module named 'notes' {told}",
        f"No module named 'java' {told}",
        "No module named 'nowhere'",
        "None",
    ]


OWN = """
    import sys
    from steersman.tools import builtin_tools

    write = {tool.name: tool for tool in builtin_tools(".")}["write"]
    write(path="made.py", content="import made_too; print('made')")
    write(path="made_too.py", content="print('made too')")
    write(path="plugins/deep/new.py", content="print('new in a package')")
    write(path="colours.py", content="print('RAN')")
    sys.path.append(sys.argv[1])
    import outside
    import made, colours
"""
LOADER = """
    import importlib

    for name in ("single", "package.inner", "plugins.deep.module", "plugins.deep.new"):
        importlib.import_module(name)
"""


def test_modules_that_were_there_are_imported_at_any_time_and_new_ones_by_the_users_own(tmp_path: Path) -> None:
    """As a server does that is given the name of an application. What is installed comes before what is new."""
    project, library = tmp_path / "project", tmp_path / "library"
    files = {
        project / "app.py": OWN,
        project / "single.py": "print('single')",
        project / "package/__init__.py": "",
        project / "package/inner.py": "from package import other; print('inner')",
        project / "package/other.py": "",
        project / "plugins/deep/module.py": "print('module')",
        library / "outside.py": LOADER,
        library / "colours.py": "print('installed')",
    }
    for path, program in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(program))
    lines = run(project, "app.py", str(library))
    assert lines == ["single", "inner", "module", "new in a package", "made too", "made", "installed"]


def test_a_folder_that_is_searched_only_later_is_no_way_in(tmp_path: Path) -> None:
    """The program is outside, and goes into the workspace when the tools are made."""
    later = """
        import os, sys
        from steersman.tools import builtin_tools
        write = {tool.name: tool for tool in builtin_tools("project")}["write"]
        write(path="winloop.py", content="print('RAN')")
        sys.path.insert(0, os.path.abspath("project"))
        try:
            import winloop
        except ModuleNotFoundError as error:
            print("refused", error.name)
    """
    (tmp_path / "project").mkdir()
    assert run(tmp_path, "-c", textwrap.dedent(later)) == ["refused winloop"]


LAZY = """
    import sys
    from steersman.tools import builtin_tools

    write = {tool.name: tool for tool in builtin_tools(".")}["write"]
    for name in ("resource", "winloop", "installed"):
        write(path=f"{name}.py", content="print('RAN', __name__)")
    import resource, installed
    try:
        import winloop
    except ModuleNotFoundError as error:
        print("refused", error.name)
"""


@pytest.mark.parametrize("project", ["environment/project", "environment"])
def test_a_project_in_the_folder_of_a_python_environment_is_a_workspace_like_others(
    tmp_path: Path, project: str
) -> None:
    """After `python -m venv .`, or `mkdir project` in the environment; and `/usr/src/app` is in that of the system."""
    python = make_python(tmp_path / "environment")
    (tmp_path / project).mkdir(exist_ok=True)
    (tmp_path / project / "app.py").write_text(textwrap.dedent(LAZY))
    assert run(tmp_path / project, "app.py", python=python) == ["installed", "refused winloop"]


def test_a_link_to_the_python_environment_is_no_way_in_while_a_command_has_replaced_it(tmp_path: Path) -> None:
    """`.venv` often is a link, and a package is searched through it when it is first needed."""
    later = """
        import os
        from steersman.tools import Workspace
        Workspace(".")
        os.rename(".venv", "before")
        version = ".".join(map(str, sys.version_info[:2]))
        os.makedirs(packages := f".venv/lib/python{version}/site-packages")
        with open(os.path.join(packages, "installed.py"), "w") as file:
            file.write("print('RAN')")
        import installed
    """
    project = tmp_path / "project"
    project.mkdir()
    make_python(tmp_path / "environment")
    (project / ".venv").symlink_to(tmp_path / "environment")
    (project / "app.py").write_text("import sys\n" + textwrap.dedent(later))
    assert run(project, "app.py", python=str(project / ".venv/bin/python")) == ["installed"]


def test_a_path_that_is_no_text_is_skipped_where_the_python_environment_is_a_link(tmp_path: Path) -> None:
    """Python skips it, too."""
    make_python(tmp_path / "environment")
    (tmp_path / "link").symlink_to(tmp_path / "environment")
    program = """
        import pathlib, sys
        from steersman.tools import Workspace
        Workspace(".")
        sys.path.insert(0, pathlib.Path("elsewhere"))
        import tabnanny, installed
    """
    (tmp_path / "app.py").write_text(textwrap.dedent(program))
    assert run(tmp_path, "app.py", python=str(tmp_path / "link/bin/python")) == ["installed"]


def test_a_workspace_beside_the_program_becomes_no_package_that_is_imported(tmp_path: Path) -> None:
    """docs/security.md: no code outside the workspace imports what is new there, nor what it is called like."""
    program = """
        import sys
        from steersman.tools import builtin_tools
        for name in ("tabnanny", "work", "plugins"):
            write = {tool.name: tool for tool in builtin_tools(name)}["write"]
            write(path="__init__.py", content="print('RAN', __name__)")
        import tabnanny  # of Python
        import plugins.one  # which was there
        try:
            import work
        except ModuleNotFoundError as error:
            print("refused", error.name)
    """
    (tmp_path / "app.py").write_text(textwrap.dedent(program))
    for name in ("tabnanny", "work", "plugins"):
        (tmp_path / name).mkdir()
    (tmp_path / "plugins" / "one.py").write_text("print('one')")
    assert run(tmp_path, "app.py") == ["RAN plugins", "one", "refused work"]


PLUGINS = """
    import sys
    from importlib.metadata import entry_points
    from steersman.tools import builtin_tools

    write = {tool.name: tool for tool in builtin_tools(".")}["write"]
    for name in ("new", "theirs"):
        write(path=f"docs/{name}.py", content="print('loaded', __name__)")
    write(path="evil-1.0.dist-info/METADATA", content="Name: evil\\nVersion: 1.0\\n")
    write(path="evil-1.0.dist-info/entry_points.txt", content="[outside.plugins]\\nevil = docs.new\\n")
    sys.path.append(sys.argv[1])
    import outside
    entry_points(group="outside.plugins")["evil"].load()  # as the user's own code does
"""
LOADS_PLUGINS = """
    from importlib.metadata import entry_points

    for plugin in entry_points(group="outside.plugins"):
        try:
            plugin.load()
        except ModuleNotFoundError as error:
            print("refused", error.name)
"""


def test_metadata_that_a_tool_wrote_chooses_no_module_that_a_package_loads_as_its_plugin(tmp_path: Path) -> None:
    """docs/security.md: pydantic and OpenTelemetry load what any package on the path names, when they are imported."""
    project, library = tmp_path / "project", tmp_path / "library"
    files = {
        project / "app.py": PLUGINS,
        project / "docs/conf.py": "",
        library / "outside.py": LOADS_PLUGINS,
        library / "named-1.0.dist-info/METADATA": "Name: named\nVersion: 1.0\n",
        library / "named-1.0.dist-info/entry_points.txt": "[outside.plugins]\nnamed = docs.theirs\n",
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    assert run(project, "app.py", str(library)) == ["refused docs", "loaded docs.theirs", "loaded docs.new"]


FINDER = """
    import sys
    from importlib.util import spec_from_file_location

    class Finder:
        def find_spec(self, name, path=None, target=None):
            return spec_from_file_location(name, sys.argv[1]) if name == "package" else None

    sys.meta_path.append(Finder())
    from steersman.tools import Workspace
    Workspace(sys.argv[2])
    import package.deep.module
"""


def test_all_of_a_package_is_imported_that_a_finder_of_its_own_finds(tmp_path: Path) -> None:
    """An editable install: only the package itself is found that way, and what is in it as usual."""
    inner, library = tmp_path / "project" / "src" / "package", tmp_path / "library"
    for folder in (inner / "deep", library):
        folder.mkdir(parents=True)
    for folder in (inner, inner / "deep"):
        (folder / "__init__.py").touch()
    (inner / "deep" / "module.py").write_text("print('module')")
    (library / "app.py").write_text(textwrap.dedent(FINDER))
    assert run(library, "app.py", str(inner / "__init__.py"), str(tmp_path / "project")) == ["module"]


def test_packages_are_known_however_many_other_files_and_folders_there_are(tmp_path: Path) -> None:
    """The search for modules has an end: a package that says so is found all the same."""
    program = """
        import importlib, sys
        from steersman.tools import Workspace
        Workspace("project")
        sys.path.append(sys.argv[1])
        import outside
    """
    project, library = tmp_path / "project", tmp_path / "library"
    for number in range(150):
        for inner in range(20):
            (project / f"folder{number}" / f"{inner}").mkdir(parents=True)
    for folder in (library, project / "package"):
        folder.mkdir()
    for number in range(1_000):
        (project / "package" / f"{number}.json").touch()
    (project / "package" / "__init__.py").write_text("print('package')")
    (library / "outside.py").write_text("import package")
    assert run(tmp_path, "-c", f"import sys; sys.path.append('project')\n{textwrap.dedent(program)}", str(library)) == [
        "package"
    ]


def test_every_package_that_an_extra_installs_is_known() -> None:
    """The list is written by hand: a new dependency must not be forgotten."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *[line for name in extras if name != "dev" for line in extras[name]]]
    modules: dict[str, set[str]] = {}
    for module, owners in metadata.packages_distributions().items():
        for owner in owners:
            modules.setdefault(_normalize(owner), set()).add(module)
    found: set[str] = set()
    for line in wanted:
        _collect(line, found)
    assert {"botocore", "google-auth", "mcp", "urllib3"} <= found
    stubs = {module for name in found if name.startswith("types-") for module in modules.get(name, ())}
    listed = {module for name in found for module in modules.get(name, ()) if module.isidentifier()} - stubs
    # Since Python 3.12 the list has files and folders that no import finds.
    used = {module for module in listed if module != "__pycache__" and find_spec(module) is not None}
    assert sorted(used - list_needed_modules()) == []


def _collect(line: str, found: set[str]) -> None:
    """Add what a requirement installs here, and what that needs."""
    match = re.match(r"([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?", line)
    assert match is not None
    name, extras = _normalize(match[1]), (match[2] or "").split(",")
    if name in found:
        return
    try:
        needed = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return
    found.add(name)
    for other in needed:
        extra = re.search(r"extra == ['\"]([^'\"]+)", other)
        if extra is None or extra[1] in extras:
            _collect(other, found)


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
