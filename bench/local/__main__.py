"""How good, how honest and how fast the embedded model is: `python -m bench.local [plain|apart|tuning]`.

`plain` counts right calls and sentences for plain requests in one small project. `apart` asks questions about five
projects that nothing was tuned on, and counts right, "don't know" and confidently wrong answers; `tuning` does so for
projects that rules may be tuned on. Exits with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from bench.local import honesty, plain
from bench.local.apart import APART
from bench.local.plain_cases import CASES
from bench.local.tuning import TUNING

from steersman.provider.local import DEFAULT_LOCAL_MODEL


def main() -> int:
    """Run the campaign that is named."""
    parser = argparse.ArgumentParser(prog="python -m bench.local", description=__doc__)
    parser.add_argument("campaign", nargs="?", choices=("plain", "apart", "tuning"), default="plain")
    parser.add_argument("--model", default=f"local:{DEFAULT_LOCAL_MODEL}")
    parser.add_argument("--tools", choices=("steps", "template"), help="how the model is asked, if not as usual")
    parser.add_argument("--only", default="", help="only prompts that have this in them")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write all answers to this file, as JSON")
    given = parser.parse_args()
    wanted: str = given.only.lower()
    if given.campaign == "plain":
        cases = [case for case in CASES if wanted in case.prompt.lower()]
        return 0 if plain.report(asyncio.run(plain.campaign(given.model, cases))) else 1
    questions = APART if given.campaign == "apart" else TUNING
    chosen = [asked for asked in questions if wanted in f"{asked.project.name} {asked.prompt}".lower()]
    return 0 if honesty.measure(given.model, chosen, given.tools, given.save) else 1


if __name__ == "__main__":
    sys.exit(main())
