"""How a run relates to the one before it, and what started a turn."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import msgspec


class Initial(msgspec.Struct, frozen=True, tag="initial", tag_field="kind"):
    """A fresh prompt."""

    kind: ClassVar[Literal["initial"]] = "initial"


class Default(msgspec.Struct, frozen=True, tag="default", tag_field="kind"):
    """The same conversation goes on."""

    kind: ClassVar[Literal["default"]] = "default"


class Rerun(msgspec.Struct, frozen=True, tag="rerun", tag_field="kind", omit_defaults=True):
    """The last answer is asked for again."""

    kind: ClassVar[Literal["rerun"]] = "rerun"
    tag: str | None = None


class Branch(msgspec.Struct, frozen=True, tag="branch", tag_field="kind", omit_defaults=True):
    """Another way is taken from an earlier point."""

    kind: ClassVar[Literal["branch"]] = "branch"
    tag: str | None = None


class Compaction(msgspec.Struct, frozen=True, tag="compaction", tag_field="kind"):
    """The first turn compacts the context, whatever its size."""

    kind: ClassVar[Literal["compaction"]] = "compaction"


ContinuationKind: TypeAlias = Initial | Default | Rerun | Branch | Compaction
TurnTrigger: TypeAlias = Literal["user", "sub_agent", "continuation", "branch"]
