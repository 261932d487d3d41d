"""`python -m steersman` in a stranger's folder runs nothing of it: tried with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from steersman.safe_start import find_foreign_modules

EVIL = "import os; os.close(os.open({!r}, os.O_CREAT)); raise SystemExit(0)"


def start(folder: Path, *words: str, stdin: str = "", path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    if path is not None:
        environment["PYTHONPATH"] = path
    return subprocess.run(
        [sys.executable, *words], cwd=folder, input=stdin, capture_output=True, text=True, timeout=60, env=environment
    )


def plant(folder: Path, name: str) -> Path:
    """Put a module into a folder that leaves a mark when it is imported."""
    mark = folder / "ran"
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(EVIL.format(str(mark)))
    return mark


@pytest.mark.parametrize(
    "name", ["__future__.py", "typing.py", "argparse.py", "asyncio/__init__.py", "msgspec.py", "aiohttp/__init__.py"]
)
def test_a_folder_with_a_module_of_ours_is_refused(tmp_path: Path, name: str) -> None:
    mark = plant(tmp_path, name)
    for words in (["-m", "steersman", "--version"], ["-Bmsteersman", "--version"]):
        done = start(tmp_path, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"steersman: The folder {str(tmp_path)!r} holds what Python would import instead of modules that steersman "
            f"needs: {name.partition('/')[0]!r}. So nothing was started. Run `steersman`, or `python -P -m steersman`, "
            "which import nothing from the folder.\n"
        )
        assert not mark.exists()


@pytest.mark.parametrize("words", [["-P", "-m", "steersman"], ["-I", "-m", "steersman"]])
def test_with_a_safe_path_it_starts_anywhere(tmp_path: Path, words: list[str]) -> None:
    mark = plant(tmp_path, "typing.py")
    done = start(tmp_path, *words, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert not mark.exists()


def test_the_folder_is_not_searched_for_other_modules_either(tmp_path: Path) -> None:
    """An optional module of a package that we do not know of, for example."""
    mark = plant(tmp_path, "unheard_of.py")
    done = start(tmp_path, "-i", "-m", "steersman", "--version", stdin="import unheard_of\n")
    assert "steersman" in done.stdout
    assert "ModuleNotFoundError: No module named 'unheard_of'" in done.stderr
    assert not mark.exists()


@pytest.mark.parametrize(("path", "way"), [(":/nowhere", "script"), ("/nowhere:sub/..", "-P -m")])
def test_an_empty_entry_of_the_path_of_python_opens_no_folder(tmp_path: Path, path: str, way: str) -> None:
    """docs/command.md: as it is easily left by `PYTHONPATH=$PYTHONPATH:/my/modules`."""
    script = tmp_path / "bin/steersman"
    script.parent.mkdir()
    script.write_text("from steersman.cli.main import main; raise SystemExit(main())")
    project = tmp_path / "project"
    (project / "sub").mkdir(parents=True)
    words = [str(script), "--version"] if way == "script" else ["-P", "-m", "steersman", "--version"]
    mark = plant(project, "unheard_of.py")
    done = start(project, "-i", *words, path=path, stdin="import unheard_of\n")
    assert done.stdout.startswith("steersman ")
    assert "ModuleNotFoundError: No module named 'unheard_of'" in done.stderr
    plant(project, "argparse.py")
    done = start(project, *words, path=path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "'argparse.py'. So nothing was started. Take the empty or relative entry out of PYTHONPATH" in done.stderr
    assert not mark.exists()
    done = start(project, "-E", *words, path=path)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_absolute_entry_is_the_choice_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("print('mine')")
    done = start(tmp_path, "-i", "-P", "-m", "steersman", "--version", path=str(tmp_path), stdin="import mine\n")
    assert "mine" in done.stdout.splitlines()


def test_a_program_that_uses_us_is_left_alone(tmp_path: Path) -> None:
    """Its own folder is its own affair."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app/__init__.py").write_text("import steersman")
    (tmp_path / "app/__main__.py").write_text("import yaml; print(yaml.mine, __import__('sys').argv[1:])")
    (tmp_path / "yaml.py").write_text("mine = 'mine'")
    done = start(tmp_path, "-m", "app", "steersman")
    assert (done.stdout, done.stderr) == ("mine ['steersman']\n", "")


def test_only_what_would_be_imported_counts(tmp_path: Path) -> None:
    for name in ("json.txt", "typing", "test.py", "mine.py", "select.pyc", "ssl.cpython-311-x86_64-linux-gnu.so"):
        (tmp_path / name).touch()
    for name in ("logging", "email", "src/asyncio"):
        (tmp_path / name).mkdir(parents=True)  # Python takes a folder without a module only if there is nothing else
    (tmp_path / "email/__init__.so").touch()
    found = ["email", "select.pyc", "ssl.cpython-311-x86_64-linux-gnu.so"]
    assert find_foreign_modules(str(tmp_path)) == found
    assert find_foreign_modules(str(tmp_path / "missing")) == []
