"""How a run relates to the one before it, and what started a turn."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import msgspec


class Initial(msgspec.Struct, frozen=True, tag="initial", tag_field="kind"):
    """A fresh prompt."""

    kind: ClassVar[Literal["initial"]] = "initial"


class Default(msgspec.Struct, frozen=True, tag="default", tag_field="kind"):
    """The same conversation continues."""

    kind: ClassVar[Literal["default"]] = "default"


class Rerun(msgspec.Struct, frozen=True, tag="rerun", tag_field="kind", omit_defaults=True):
    """The model is asked for the last answer again."""

    kind: ClassVar[Literal["rerun"]] = "rerun"
    tag: str | None = None


class Branch(msgspec.Struct, frozen=True, tag="branch", tag_field="kind", omit_defaults=True):
    """The conversation continues from an earlier point."""

    kind: ClassVar[Literal["branch"]] = "branch"
    tag: str | None = None


class Compaction(msgspec.Struct, frozen=True, tag="compaction", tag_field="kind"):
    """The first turn compacts the context, whatever its size is."""

    kind: ClassVar[Literal["compaction"]] = "compaction"


ContinuationKind: TypeAlias = Initial | Default | Rerun | Branch | Compaction
TurnTrigger: TypeAlias = Literal["user", "sub_agent", "continuation", "branch"]
