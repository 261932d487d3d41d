"""Skills and instructions: text that lies beside the work, found from the workspace upwards, read when needed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from steersman import Agent
from steersman.context import find_instructions
from steersman.testing import ScriptedModel, answer, call
from steersman.tools import find_skills

FILES = {
    ".git/HEAD": "ref: refs/heads/main\n",
    "AGENTS.md": "Write British English.\n",
    "shop/AGENTS.md": "Prices are in cents.\n",
    ".claude/skills/invoice/SKILL.md": """---
name: invoice
description: >-
  When an invoice is to be written
  or checked.
---
Follow layout.md, and add the tax last.
""",
    ".claude/skills/invoice/layout.md": "Date, items, sum, tax.\n",
    "shop/.agents/skills/broken/SKILL.md": "no head at all\n",
}

SCRIPT = (
    answer(call("skill", name="invoices")),  # a slip of the pen: the answer says what there is
    answer(call("skill", name="invoice")),
    answer(call("skill", name="invoice", file="layout.md")),
    answer("Date, items, sum, and then the tax."),
)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name, text in FILES.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        skills, instructions = find_skills(root / "shop", home=None), find_instructions(root / "shop", home=None)
        print("instructions:", [str(path.relative_to(root)) for path in instructions.files])
        print("skills:", [f"{skill.name}: {skill.description}" for skill in skills.skills])
        print("problem:", skills.problems[0].partition(" is ")[2])

        prompt = "\n\n".join(["You keep a shop.", instructions.text, skills.text])
        agent = Agent(ScriptedModel(*SCRIPT).model, tools=[skills], system_prompt=prompt)
        for message in agent.run_sync("How is an invoice laid out?").messages:
            first = message.text.partition(":\n\n")[2] or message.text
            print(f"{message.role:>11}: {first.splitlines()[0] if first else '...'}")


if __name__ == "__main__":
    main()
