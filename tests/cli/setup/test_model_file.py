"""Which model the doctor proposes: the largest that fits the memory of the machine."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import Place, run_command

from steersman.cli.setup.model_file import PROPOSALS, measure_memory, propose_model
from steersman.provider.local.weights.cache import LOCAL_MODELS
from steersman.provider.local.weights.huggingface import PREFIX, parse_reference

GIGA = 1_000_000_000


def test_the_largest_that_fits_is_proposed() -> None:
    proposed = [propose_model(gigabytes * GIGA).name for gigabytes in (1, 3, 4, 8, 16, 64)]
    assert proposed == [
        "qwen2.5-coder-0.5b",
        "qwen2.5-coder-0.5b",
        "qwen2.5-coder-1.5b",
        "qwen2.5-coder-1.5b",
        PROPOSALS[-1].name,
        PROPOSALS[-1].name,
    ]


def test_what_is_proposed_can_be_got() -> None:
    for proposal in PROPOSALS:
        if proposal.name.startswith(PREFIX):
            assert parse_reference(proposal.name).text == proposal.name
        else:
            assert LOCAL_MODELS[proposal.name].size == proposal.size


def test_a_container_has_the_memory_that_it_may_use(tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    whole = measure_memory(limit)
    limit.write_text("max\n")
    assert measure_memory(limit) == whole > GIGA // 10
    limit.write_text("1048576\n")
    assert measure_memory(limit) == 1_048_576


def test_the_doctor_says_how_to_get_it(place: Place) -> None:
    best = propose_model(measure_memory())
    done = run_command(["doctor", "--json"], place=place)
    (finding,) = [each for each in done.json["findings"] if each["what"] == "embedded model"]
    if best is PROPOSALS[0]:
        assert finding["advice"] == ""
    else:
        assert finding["advice"].endswith(f"steersman models get {best.name}")
