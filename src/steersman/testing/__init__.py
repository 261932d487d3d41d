"""For tests of agents: a scripted model, a virtual clock, and checks of events, transcripts and `StreamFn`s."""

from __future__ import annotations

from steersman.provider.scripted.model import ScriptedModel
from steersman.provider.scripted.script import Turn, answer, call, cut, error, raises, stall, text, thinking
from steersman.testing.clock import Deadlock, LeftBehind, VirtualClockLoop, run_virtual
from steersman.testing.conformance import Scenario, Subject, check_stream, conformance_checks
from steersman.testing.grammar import (
    EventCollector,
    GrammarChecker,
    GrammarError,
    Witness,
    check_events,
    check_request,
    check_transcript,
    watch,
)
from steersman.testing.replay.cassette import Cassette, CassetteMismatch, cassette
from steersman.testing.replay.replay import Replayed, ReplayedRun, ReplayMismatch, normalize_events, replay

__all__ = [
    "Cassette",
    "CassetteMismatch",
    "Deadlock",
    "EventCollector",
    "GrammarChecker",
    "GrammarError",
    "LeftBehind",
    "ReplayMismatch",
    "Replayed",
    "ReplayedRun",
    "Scenario",
    "ScriptedModel",
    "Subject",
    "Turn",
    "VirtualClockLoop",
    "Witness",
    "answer",
    "call",
    "cassette",
    "check_events",
    "check_request",
    "check_stream",
    "check_transcript",
    "conformance_checks",
    "cut",
    "error",
    "normalize_events",
    "raises",
    "replay",
    "run_virtual",
    "stall",
    "text",
    "thinking",
    "watch",
]
