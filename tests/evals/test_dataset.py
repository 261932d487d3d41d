"""Datasets: in Python, YAML and JSON Lines; and errors that name the file, the line and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from steersman.evals import Case, Dataset, DatasetError

YAML = """\
name: sums
repeat: 3
models: [openai:gpt-5, anthropic:claude-haiku-4-5]
scorers:
  - contains
  - max_cost: 0.05
cases:
  - id: two
    prompt: What is 1 + 1?
    expected: "2"
  - prompt: Read it.
    files: {notes/a.txt: "hello\\n"}
    metadata: {level: 1}
"""


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_yaml_file_has_cases_scorers_models_and_repeats(tmp_path: Path) -> None:
    found = Dataset.load(write(tmp_path, "sums.yaml", YAML))
    assert found.cases == (
        Case("What is 1 + 1?", expected="2", id="two"),
        Case("Read it.", files={"notes/a.txt": "hello\n"}, metadata={"level": 1}, id="case-2"),
    )
    assert [scorer.name for scorer in found.scorers if not callable(scorer)] == ["contains", "max_cost"]
    assert (found.name, found.repeat, found.models) == ("sums", 3, ["openai:gpt-5", "anthropic:claude-haiku-4-5"])


def test_a_json_lines_file_has_a_case_in_each_line(tmp_path: Path) -> None:
    text = '\ufeff{"prompt": "One?", "expected": 1}\n\n{"prompt": "Two?", "id": 2}\n'
    found = Dataset.load(write(tmp_path, "some.jsonl", text))
    assert list(found) == [Case("One?", expected=1, id="case-1"), Case("Two?", id="2")]
    assert (found.name, len(found), list(found.scorers)) == ("some", 2, [])


def test_a_folder_of_files_is_relative_to_the_dataset(tmp_path: Path) -> None:
    (tmp_path / "start" / "sub").mkdir(parents=True)
    (tmp_path / "start" / "sub" / "a.txt").write_text("a")
    [case] = Dataset.load(write(tmp_path, "one.yaml", "- {prompt: Go., files: start}"))
    case.write_files(tmp_path / "target")
    assert (tmp_path / "target" / "sub" / "a.txt").read_text() == "a"
    before = case.digest
    (tmp_path / "start" / "sub" / "a.txt").write_text("b")
    assert case.digest != before


def test_a_link_out_of_the_folder_of_a_case_is_copied_as_the_file_that_it_leads_to(tmp_path: Path) -> None:
    """What an agent writes to it must not change the file for all others."""
    root, target, outside = tmp_path / "start", tmp_path / "target", write(tmp_path, "outside.txt", "out")
    root.mkdir()
    write(root, "a.txt", "a")
    links = {"relative": "../outside.txt", "absolute": outside, "own": root / "a.txt", "inside": "a.txt", "dead": "no"}
    for name, leads_to in links.items():
        (root / name).symlink_to(leads_to)
    case = Case("Go.", files=root)
    before = case.digest
    case.write_files(target)
    assert {path.name: path.is_symlink() for path in target.iterdir()} == {
        "a.txt": False, "relative": False, "absolute": False, "own": False, "inside": True, "dead": True
    }  # fmt: skip
    assert [(target / name).read_text() for name in ("relative", "absolute", "own", "inside")] == [
        "out",
        "out",
        "a",
        "a",
    ]
    outside.write_text("changed")
    assert case.digest != before
    (root / "folder").symlink_to(tmp_path)
    with pytest.raises(DatasetError, match="link to a folder outside"):
        case.write_files(tmp_path / "other")


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.jsonl", '{"prompt": "x"}\n{"prompt": }', "line 2: not JSON: JSON is malformed"),
        (
            "a.jsonl",
            '{"prompt": "x", "id": "a"}\n\n{"prompt": "y", "id": "a"}',
            "line 3: the id 'a' is that of line 1.",
        ),
        ("a.jsonl", '{"promt": "x"}', "line 1: there is no field 'promt'. Did you mean 'prompt'?"),
        ("a.jsonl", '{"expected": "x"}', "line 1: the case has no 'prompt'."),
        ("a.jsonl", '{"prompt": "  "}', "line 1: The prompt of a case is a text that is not empty, got '  '."),
        ("a.jsonl", '{"prompt": 5}', "line 1: The prompt of a case is a text that is not empty, got 5."),
        ("a.jsonl", "[1]", "line 1: a case has a 'prompt' and maybe 'expected', got [1]."),
        ("a.jsonl", "\n \n", "line 1: there are no cases."),
        ("a.jsonl", b'{"prompt": "x"}\n\xff', "line 2: not UTF-8. Save the file as UTF-8."),
        ("a.jsonl", '{"prompt": "x", "files": {"../a": ""}}', "line 1: The path of a file stays inside the folder"),
        ("a.jsonl", '{"prompt": "x", "files": {"/etc/a": ""}}', "line 1: The path of a file stays inside the folder"),
        ("a.jsonl", '{"prompt": "x", "files": "nowhere"}', "is no folder."),
        ("a.jsonl", '{"prompt": "x", "id": "a\\u001b[2J"}', "line 1: The id of a case is a line of at most 100"),
        ("a.jsonl", '{"prompt": "x", "metadata": [1]}', "line 1: The metadata of a case is a dict, got [1]."),
        ("a.yaml", "cases:\n  - prompt: [", "line 2: not YAML:"),
        ("a.yaml", "", "line 1: the file is empty."),
        ("a.yaml", "cases: 3", "line 1: 'cases' is a list of cases, got 3."),
        ("a.yaml", "5", "line 1: expected a list of cases, or 'cases:' with a list, got 5."),
        ("a.yaml", "cases:\n- prompt: x\n- prompt: y\n  promt: z", "line 3: there is no field 'promt'."),
        ("a.yaml", "cases:\n- prompt: x\n  prompt: y", "line 3: the key 'prompt' is there twice."),
        ("a.yaml", "caes: []\ncases: [{prompt: x}]", "line 1: there is no field 'caes'. Did you mean 'cases'?"),
        ("a.yaml", "cases: [{prompt: x}]\nrepeat: 0", "line 2: 'repeat' is a whole number from 1 on, got 0."),
        ("a.yaml", "cases: [{prompt: x}]\nmodels: x", "line 2: 'models' is a list of names such as openai:gpt-5"),
        (
            "a.yaml",
            "cases: [{prompt: x}]\nscorers: [equls]",
            "line 2: There is no scorer 'equls'. Did you mean 'equals'?",
        ),
        ("a.yaml", "cases: [{prompt: x}]\nscorers: [{max_cost: -1}]", "line 2: max_cost is a number above 0, got -1."),
        ("a.yaml", "cases: [{prompt: x}]\nscorers:\n - json_schema: {type: objekt}", "line 2: "),
        ("a.yaml", "cases: [{prompt: x}]\nscorers: contains", "line 2: 'scorers' is a list"),
        ("a.txt", "x", "a dataset is a .jsonl, .yaml or .yml file."),
    ],
)
def test_an_error_names_the_file_the_line_and_what_to_do(tmp_path: Path, name: str, text: str, told: str) -> None:
    path = write(tmp_path, name, text)
    with pytest.raises(DatasetError) as raised:
        Dataset.load(path)
    assert str(path) in str(raised.value)
    assert told in str(raised.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"Cannot read the dataset .*no.jsonl.: No such file or directory"):
        Dataset.load(tmp_path / "no.jsonl")


def test_cases_in_python_need_ids_of_their_own() -> None:
    with pytest.raises(DatasetError, match="The cases 1 and 3 have the same id 'a'"):
        Dataset([Case("x", id="a"), Case("y"), Case("z", id="a")])
    with pytest.raises(DatasetError, match="at least one case"):
        Dataset([])
