"""How a file is served: `settings.py`, and what the child's process is told."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.tools.confine.pythons import make_python

from steersman import get_model
from steersman.provider.local.serving.child import ChildOptions
from steersman.provider.local.serving.server import build_environment
from steersman.provider.local.serving.start import (
    SMALL,
    STEPS_BELOW,
    build_settings,
    choose_prompt_mode,
    count_threads,
    name_as_found,
    supports_tools,
)
from steersman.provider.local.weights.cache import DEFAULT_LOCAL_MODEL, LOCAL_MODELS
from steersman.provider.local.weights.find import Weights
from steersman.tools.confine.changed_folders import note_command

SOURCE = Path(__file__).parents[4] / "src"


def sparse(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_a_small_model_takes_two_steps_and_a_big_one_goes_its_own_way(tmp_path: Path) -> None:
    model = get_model("local:any")
    small = build_settings(model, sparse(tmp_path / "small", STEPS_BELOW - 1), tmp_path)
    big = build_settings(model, sparse(tmp_path / "big", STEPS_BELOW), tmp_path)
    tools = {"chat_template": "{% if tools %}...{% endif %}"}
    assert (
        choose_prompt_mode(model, small, tools),
        choose_prompt_mode(model, big, tools),
        choose_prompt_mode(model, big, {}),
    ) == (
        "steps",
        "template",
        "steps",
    )


def test_the_size_of_a_model_decides_about_its_context_window(tmp_path: Path) -> None:
    model = get_model("local:any")
    small = build_settings(model, sparse(tmp_path / "small", SMALL - 1), tmp_path)
    big = build_settings(model, sparse(tmp_path / "big", SMALL), tmp_path)
    assert [(each.context, each.parallel) for each in (small, big)] == [(4096, 2), (16384, 1)]


def test_every_model_that_is_offered_by_name_is_asked_in_steps() -> None:
    assert all(model.size < STEPS_BELOW for model in LOCAL_MODELS.values())


def test_a_setting_says_otherwise(tmp_path: Path) -> None:
    given = {"tools": "template", "n_ctx": 512, "threads": 3, "gpu_layers": 0}
    model = get_model("local:any", settings=given)
    settings = build_settings(model, sparse(tmp_path / "small", 10), tmp_path)
    assert (settings.context, settings.threads, settings.gpu_layers) == (512, 3, 0)
    assert choose_prompt_mode(model, settings, {}) == "template"


@pytest.mark.parametrize("given", [{"n_ctx": 0}, {"threads": "all"}, {"gpu_layers": -1}, {"n_ctx": True}])
def test_a_setting_that_cannot_be_is_named(given: dict[str, object], tmp_path: Path) -> None:
    (name,) = given
    with pytest.raises(ValueError, match=name):
        build_settings(get_model("local:any", settings=given), sparse(tmp_path / "small", 10), tmp_path)


def test_how_tools_are_chosen_is_one_of_two_ways(tmp_path: Path) -> None:
    model = get_model("local:any", settings={"tools": "maybe"})
    settings = build_settings(model, sparse(tmp_path / "small", 10), tmp_path)
    with pytest.raises(ValueError, match="'steps' or 'template', got 'maybe'"):
        choose_prompt_mode(model, settings, {})


def test_the_word_of_the_server_about_tools_counts_most() -> None:
    assert supports_tools({"chat_template": "tools", "chat_template_caps": {"supports_tools": False}}) is False
    assert supports_tools({"chat_template": "{{ messages }}"}) is False


def test_at_least_one_thread_is_used_and_one_core_is_left() -> None:
    import os

    cores = os.cpu_count() or 1
    assert 1 <= count_threads() <= max(1, cores - 1)


def test_no_key_of_a_provider_goes_to_the_child(tmp_path: Path) -> None:
    given = {"ANTHROPIC_API_KEY": "sk-1", "OPENAI_API_KEY": "sk-2", "PATH": "/bin", "PYTHONPATH": f"rel:{tmp_path}:"}
    assert build_environment(given) == {"PATH": "/bin"}


def test_no_library_that_a_command_may_have_written_is_loaded_by_the_child(tmp_path: Path) -> None:
    """docs/security.md: the process of the model starts again, as in a second `run_sync`."""
    given = {"PATH": f".:{tmp_path}/bin:/bin", "LD_LIBRARY_PATH": f"{tmp_path}/lib::/usr/lib"}
    assert build_environment(given) == {"PATH": f"{tmp_path}/bin:/bin", "LD_LIBRARY_PATH": f"{tmp_path}/lib:/usr/lib"}
    note_command(str(tmp_path))
    assert build_environment(given) == {"PATH": "/bin", "LD_LIBRARY_PATH": "/usr/lib"}
    assert build_environment({"LD_LIBRARY_PATH": f"{tmp_path}/lib"}) == {}


CHILD = """
    import os, sys
    from pathlib import Path
    from steersman.provider.local.serving.server import Child, Settings
    from steersman.tools import Workspace

    files = Workspace(sys.argv[1])
    for name in ("json", "signal", "tabnanny", "org"):  # as a model may
        files.replace(f"src/{name}.py", b"open('ran', 'w')")
    if os.path.islink(sys.prefix):  # as a command may, until it is over
        os.rename(sys.prefix, f"{sys.prefix}.before")
        os.makedirs(f"{sys.prefix}/bin")
        for path in (f"{sys.prefix}/bin/python", f"{sys.prefix}/bin/{os.path.basename(sys.executable)}"):
            with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o755)) as file:
                file.write(f"#!/bin/sh\\necho > {sys.argv[1]}/ran")
    print(Child(Settings(Path("none.gguf"), 512, 1, slots=Path(sys.argv[1]))).ended.result(60))
"""


@pytest.mark.real_time
def test_the_child_runs_nothing_that_a_model_wrote_into_a_folder_of_pythonpath(tmp_path: Path) -> None:
    """docs/security.md: it starts with the first prompt of each event loop, when tools may have been used."""
    (tmp_path / "src").mkdir()
    child = run_child(sys.executable, tmp_path, f"{tmp_path}/src{os.pathsep}{SOURCE}")
    assert "none.gguf" in child
    assert not (tmp_path / "ran").exists()


@pytest.mark.real_time
def test_the_child_is_started_by_no_link_that_a_command_may_replace(tmp_path: Path) -> None:
    """`.venv` often is a link."""
    (tmp_path / "src").mkdir()
    make_python(tmp_path / "environment")
    (tmp_path / ".venv").symlink_to(tmp_path / "environment")
    assert "none.gguf" in run_child(f"{tmp_path}/.venv/bin/python", tmp_path, str(SOURCE))
    assert not (tmp_path / "ran").exists()


def run_child(python: str, workspace: Path, path: str) -> str:
    """Start the child of a model that is not there; how it ended."""
    environment = {**os.environ, "PYTHONPATH": path}
    command = [python, "-c", textwrap.dedent(CHILD), str(workspace)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=True).stdout


def test_what_stands_in_for_a_model_answers_under_its_own_name(tmp_path: Path) -> None:
    model = get_model(f"local:{DEFAULT_LOCAL_MODEL}")
    usual = Weights(tmp_path / "a.gguf", LOCAL_MODELS[DEFAULT_LOCAL_MODEL])
    smaller = Weights(tmp_path / "b.gguf", LOCAL_MODELS["smollm2-135m"], "It could not be downloaded.")
    assert [name_as_found(model, usual).name, name_as_found(model, smaller).name] == [
        f"local:{DEFAULT_LOCAL_MODEL}",
        "local:smollm2-135m",
    ]


def test_orders_do_not_show_their_key() -> None:
    orders = ChildOptions("model.gguf", "the-key", "slots", 512, 1, 1, 128, 1)
    assert "the-key" not in repr(orders)
