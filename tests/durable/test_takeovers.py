"""How a campaign of takeovers is judged is decided beforehand, and told with its numbers."""

from __future__ import annotations

import pytest
from tests.durable.takeovers import Takeover, choose_judgement, describe_takeovers

FEW = [Takeover(2.0, 0.1), Takeover(2.4, 0.2), Takeover(3.5, 0.5)]


def test_every_takeover_is_judged_on_a_quiet_machine() -> None:
    judgement = choose_judgement(None, 1.9, 2)
    assert describe_takeovers(4, FEW, judgement, 3.5) == [
        "4 kill points, 3 takeovers: median 2.60 s, longest 4.00 s",
        "until Temporal gave the run to another worker: median 2.40 s, longest 3.50 s; "
        "from then on: median 0.20 s, longest 0.50 s",
        "judged against 3.5 s: every takeover (load 1.9 before, below 2 cores), 4.00 s",
    ]


def test_the_median_is_judged_on_a_busy_machine() -> None:
    judgement = choose_judgement(None, 2.0, 2)
    told = "judged against 3.5 s: the median alone (load 2.0 before, not below 2 cores), 2.60 s"
    assert describe_takeovers(4, FEW, judgement, 3.5)[-1] == told


@pytest.mark.parametrize(("said", "worst"), [("1", 4.0), ("0", 2.6)])
def test_what_is_said_decides_whatever_the_load_is(said: str, worst: float) -> None:
    found = {choose_judgement(said, load, 2).find_worst([each.seconds for each in FEW]) for load in (0.0, 50.0)}
    assert found == {worst}
    with pytest.raises(ValueError, match="STEERSMAN_QUIET is 0 or 1, got 'yes'"):
        choose_judgement("yes", 0.0, 2)
