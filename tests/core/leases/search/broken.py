"""Copies of the code with one fault each, which a search must find: else it would not find that fault in the code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from headway.core.lease_actions import Action, Send, WriteEnd
from headway.core.lease_messages import Grant, Recall, Welcome
from headway.core.leased import Worker
from headway.core.leases import Leases
from headway.core.outstanding import OutstandingJobs
from headway.core.records import End, GrantToken, Record
from headway.core.worker_leases import GrantVerdict, WorkerLeases
from tests.core.leases.search.leader import NOW, LeaderProcess, Out, Work
from tests.core.leases.search.logs import Log, Rules
from tests.core.leases.search.state import Bounds, Fault
from tests.core.leases.search.worker import Done, Run, WorkerProcess
from tests.core.leases.search.world import Code


class IgnoresEpochs(WorkerLeases):
    """Takes any leader for the leader, and any grant for news."""

    def welcome(self, welcome: Welcome) -> bool:
        return True

    def accept(self, grant: Grant) -> GrantVerdict:
        self._newest = GrantToken(0, 0)
        return super().accept(grant)


class DoesNotWaitForTheRecalled(Leases):
    """Grants a job anew when it has asked for it, and not when it has got it back."""

    def _recall(self, model: str, now: float) -> list[Action]:
        actions = super()._recall(model, now)
        for action in list(actions):
            if isinstance(action, Send) and isinstance(action.message, Recall):
                actions += self._jobs.take_back(self._jobs._leases[action.message.key], 0, NOW)
        return actions + self._assign(model, NOW)


class LosesTheJobsOfTheLost(Leases):
    """Forgets a worker that is silent, with all that it held."""

    def _lose(self, worker: Worker, now: float) -> list[Action]:
        self._remove(worker)
        for lease in list(worker.leases.values()):
            self._jobs._release(lease)
        return []


class BelievesThatEveryGrantArrives(Leases):
    """Does not compare what a worker says it holds with what it was granted."""

    def _take_back_missing(self, *_: Any) -> list[Action]:
        return []


class SilentJobs(OutstandingJobs):
    def _answer(self, *_: Any) -> list[Action]:
        return []


class AnswersNoCancel(Leases):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._jobs.__class__ = SilentJobs


class AcksFirst(LeaderProcess):
    """Takes a job out of the stream, then writes its end."""

    def _carry_out(self, actions: list[Action]) -> list[Out]:
        for action in actions:
            if isinstance(action, WriteEnd):
                self.work.setdefault(action.job.key, []).append(Work(None))
        return super()._carry_out(actions)


class ReportsFirst(WorkerProcess):
    """Says that a job has ended, then stores its end."""

    def _leave_engine(self, run: Run, last_word: Record) -> None:
        super()._leave_engine(run, last_word)
        key = next(key for key, other in self.runs.items() if other is run)
        if isinstance(last_word, End):
            self._tell(self.leases.ended(key, last_word.finish_reason, self.num_tokens))


class KeepsWhatItsEngineLost(WorkerProcess):
    """Does not give back the jobs that its engine took with it."""

    def lose_engine(self) -> Done:
        self.runs.clear()
        return self._done()


class LogWithoutFencing(Rules):
    """Stores what comes."""

    def follows(self, log: Log, writer: GrantToken) -> bool:
        return log.end is None


class TakesAnyLog(Rules):
    """Takes a log over without looking whether a newer grant has."""

    def may_take(self, log: Log, token: GrantToken) -> bool:
        return True


class EndsWithoutLeading(Rules):
    """Lets whoever has led end a job, if only nothing was written since it read the log."""

    must_lead_to_end = False


class EndsWhateverWasWritten(Rules):
    """Shows that it leads, and then ends the job whatever was written since it had read the log."""

    is_end_fenced = False


@dataclass(frozen=True)
class Mutant:
    code: Code
    bounds: Bounds


def _one(*faults: Fault, **more: int) -> Bounds:
    return Bounds(num_faults=1, faults=faults, **more)


_TAKEOVER = Bounds(num_faults=2, faults=(Fault.TAKEOVER, Fault.STREAM), num_jobs=1)

_ENDED = Bounds(num_jobs=1, num_cancels=1, num_faults=1, faults=(Fault.DRAIN, Fault.TAKEOVER))

MUTANTS = {
    "ignores epochs": Mutant(Code(worker_leases=IgnoresEpochs), _TAKEOVER),
    "does not wait for the recalled": Mutant(
        Code(leases=DoesNotWaitForTheRecalled), Bounds(num_faults=0, num_recalls=1)
    ),
    "loses the jobs of the lost": Mutant(Code(leases=LosesTheJobsOfTheLost), _one(Fault.WORKER)),
    "believes that every grant arrives": Mutant(
        Code(leases=BelievesThatEveryGrantArrives), _one(Fault.STREAM, num_jobs=1)
    ),
    "answers no cancel": Mutant(Code(leases=AnswersNoCancel), Bounds(num_faults=0, num_cancels=1, num_jobs=1)),
    "acks first": Mutant(Code(leader=AcksFirst), _one(Fault.WORKER, num_jobs=1, num_cancels=1)),
    "reports first": Mutant(Code(worker=ReportsFirst), Bounds(num_faults=0)),
    "keeps what its engine lost": Mutant(Code(worker=KeepsWhatItsEngineLost), _one(Fault.ENGINE, num_jobs=1)),
    "log without fencing": Mutant(Code(rules=LogWithoutFencing), _one(Fault.LEASE)),
    "ends without leading": Mutant(Code(rules=EndsWithoutLeading), _ENDED),
    "ends whatever was written": Mutant(
        Code(rules=EndsWhateverWasWritten), replace(_ENDED, num_faults=2, is_under_way=True)
    ),
    "takes any log": Mutant(Code(rules=TakesAnyLog), _one(Fault.LEASE)),
}
"""By what is wrong with them; each with bounds within which it shows."""
