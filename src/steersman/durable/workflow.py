"""The workflow of a session: it keeps one activity going, and starts it again while there is something to do.

Its id is that of the session, so a session runs once. A signal says that something was queued while no worker had the
session open. A signal that comes while the workflow ends makes the server ask it again, so none is lost.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

from steersman.durable.job import ACTIVITY, IDLE, WAITING, WAKE, WORKFLOW, Job, Outcome

# Only the heartbeat limits a run.
_LONGEST = timedelta(days=3650)
# A lost worker is replaced at once; an activity that raises says itself when it is to be tried again.
_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=10), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=1)
)


@workflow.defn(name=WORKFLOW, sandboxed=False)
class SessionWorkflow:
    """Keeps a session running until nothing is queued."""

    def __init__(self) -> None:
        self._wakes = 0

    @workflow.signal(name=WAKE)
    def wake(self) -> None:
        """Look at the session again: something was queued."""
        self._wakes += 1

    @workflow.run
    async def run(self, job: Job) -> Outcome:
        """Run the session; returns how its last run ended."""
        last = Outcome(job.session_id, IDLE)
        while True:
            seen = self._wakes
            outcome: Outcome = await workflow.execute_activity(
                ACTIVITY,
                job,
                result_type=Outcome,
                start_to_close_timeout=_LONGEST,
                heartbeat_timeout=timedelta(seconds=job.heartbeat),
                retry_policy=_RETRY,
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
            last = last if outcome.end_reason == IDLE else outcome
            if outcome.end_reason == WAITING:
                await workflow.wait_condition(lambda seen=seen: self._wakes > seen)
            elif self._wakes == seen:
                return last
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(job)
