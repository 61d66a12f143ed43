"""Where a stream stands, as checkpoints keep it.

A *token* names a place between two steps of a stream, at which all ranks are at once. A *state* is a dictionary
with a token and what a run must be told besides, all of it plain values that JSON can hold:

* `forebay_state`: the form, 1.
* `token`: the token. None for an iteration of a PyTorch dataset that has not begun; then there is `seed`.
* `first_epoch`, `epochs`: the epochs of the run. How many there are is told, not required: a run that goes on
  has the epochs of its own settings, from the same first one.
* `turn`, `turns`: how many steps behind the token the next batch is, and every which step is taken. More than
  one turn has a `DataLoader` with several workers. Where they are left out, it is the next batch, and every one.
* `world`: ranks, whose steps those are.
* `drops`: whether steps in which a rank has no batch are none of them (`uneven="drop"`); left out where not.
* `taken`: steps before the token that count for `limit_batches`; left out where there is no limit.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .errors import ConfigError, ResumeError

if TYPE_CHECKING:
    from .pipeline import Pipeline

__all__ = ["State", "read_resume"]

#: Form of states.
FORM = 1


@dataclass(frozen=True)
class State:
    """A state, read."""

    #: The token as JSON; None at the beginning of an epoch.
    token: str | None
    first_epoch: int
    epochs: int | None = None
    seed: int | None = None
    turn: int = 0
    turns: int = 1
    world: int = 1
    taken: int | None = None
    drops: bool = False

    @staticmethod
    def of(state: Any) -> State:
        """Reads what `state_dict` gave."""
        if not isinstance(state, dict) or state.get("forebay_state") != FORM:
            raise ResumeError(f"this is no state of a Forebay iterator: {_short(state)}")
        token = state.get("token")
        try:
            return State(
                token if token is None else json.dumps(token),
                int(state["first_epoch"]),
                state.get("epochs"),
                state.get("seed"),
                int(state.get("turn", 0)),
                int(state.get("turns", 1)),
                int(state.get("world", 1)),
                state.get("taken"),
                bool(state.get("drops", False)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ResumeError(f"this state of a Forebay iterator is damaged: {error!r}") from error

    def to_dict(self) -> dict[str, Any]:
        """As `state_dict` gives it."""
        said: dict[str, Any] = {
            "forebay_state": FORM,
            "token": None if self.token is None else json.loads(self.token),
            "first_epoch": self.first_epoch,
            "epochs": self.epochs,
            "world": self.world,
        }
        if self.token is None:
            said["seed"] = self.seed
        if self.turn or self.turns > 1:
            said.update(turn=self.turn, turns=self.turns)
        if self.drops:
            said["drops"] = True
        if self.taken is not None:
            said["taken"] = self.taken
        return said

    def _cursor(self) -> dict[str, Any]:
        cursor: dict[str, Any] = {} if self.token is None else json.loads(self.token).get("cursor", {})
        return cursor

    @property
    def epoch(self) -> int:
        """The epoch that it is in."""
        return int(self._cursor().get("epoch", self.first_epoch))

    @property
    def is_over(self) -> bool:
        """Whether it is at the end of its epoch."""
        return bool(self._cursor().get("ended", False))

    def within(self, epochs: int | None) -> State:
        """The same state, if it is in a run of so many epochs, or exactly at its end.

        Raises:
            ConfigError: It is behind the end.
        """
        cursor = self._cursor()
        at, end = self.epoch, self.first_epoch + (epochs or 0)
        if epochs is None or at < end or at == end and not cursor.get("rows") and not cursor.get("step"):
            return self
        raise ConfigError(
            f"the state is in epoch {at} of a run that began with epoch {self.first_epoch}, and this one has "
            f"{epochs} epoch(s) from there, so it is over; give it more with repeat(..) or epochs=.."
        )

    def among(self, turns: int, world: int, *, is_worker: bool = False) -> State:
        """The same state, if it is one for so many loader workers and ranks. To a worker, other ranks are a mistake
        even if there is no other one: its loader may go on with steps of the ranks that were.

        Raises:
            ResumeError: It is not.
        """
        if self.turns == turns and (self.world == world or turns == 1 and not is_worker):
            return self
        raise ResumeError(
            f"this state is of {self.turns} loader worker(s) in a world of {self.world}, and now there are {turns} in "
            f"a world of {world}; give forebay.torch.global_state(loader_state) to resume(..) of a new dataset"
        )

    def at_world(self, world: int, given: dict[str, Any], pipeline: Pipeline) -> State:
        """The same state in steps of so many ranks, for a run that has epochs left."""
        self.within(given.get("epochs") or pipeline._plan().clauses()["epochs"])
        if self.turns > 1:
            return self
        drops = given.get("uneven") == "drop"
        if self.turn == 0 or (self.world, self.drops) == (world, drops):
            return replace(self, world=world, drops=drops)
        taken = None if self.taken is None else self.taken + self.turn
        token = self._advanced(given, pipeline)
        return replace(self, token=token, turn=0, world=world, taken=taken, drops=drops)

    def part(self, turn: int, turns: int) -> State:
        """What one of several loader workers goes on from."""
        return replace(self, turn=self.turn + turn, turns=turns)

    def settings(self, given: dict[str, Any], pipeline: Pipeline) -> dict[str, Any]:
        """The settings of a run that goes on from here."""
        told = {**given, "first_epoch": self.first_epoch, "turn": self.turn, "turns": self.turns}
        limit = given.get("limit_batches")
        if limit is not None:
            told["limit_batches"] = max(0, limit - (self.taken or 0))
        if self.token is None:
            seed = given.get("seed")
            seed = pipeline._plan().clauses()["seed"] if seed is None else seed
            if seed is not None and self.seed is not None and seed != self.seed:
                raise ResumeError(f"this state is of another stream: the seed is {seed}, and was {self.seed}")
            return {**told, "seed": self.seed}
        return {**told, "resume": self.token}

    def _advanced(self, given: dict[str, Any], pipeline: Pipeline) -> str:
        """The token behind steps that were taken in another world: only the last of their batches is computed."""
        before = {
            **given,
            "rank": 0,
            "world": self.world,
            "first_epoch": self.first_epoch,
            "turn": self.turn - 1,
            "turns": 1,
            "limit_batches": self.turn,
            # As the steps were counted, whatever those to come leave out.
            "uneven": "drop" if self.drops else None,
            "resume": self.token,
        }
        if self.token is None:
            before["seed"] = self.seed
        run = pipeline._plan().run(before, False, None)
        try:
            if run.next() is None:
                raise ResumeError("this state is of another stream: it has more steps than the stream")
            return run.token()
        finally:
            run.close()


def read_resume(resume: Any, given: dict[str, Any], pipeline: Pipeline) -> dict[str, Any]:
    """Settings of a run that goes on from `resume`: a token or a state, as a dictionary or as JSON."""
    if isinstance(resume, (str, bytes)):
        try:
            resume = json.loads(resume)
        except ValueError as error:
            raise ResumeError(f"no resume token: {error}") from error
    if not isinstance(resume, dict):
        raise TypeError(f"resume takes batch.token() or state_dict(), found {_short(resume)}")
    if "forebay_state" in resume:
        world = given.get("world") or 1
        state = State.of(resume).among(given.get("turns") or 1, world).at_world(world, given, pipeline)
        return state.settings(given, pipeline)
    if "forebay_token" not in resume:
        raise ResumeError(f"this is no token and no state of Forebay's: {_short(resume)}")
    settings = {**given, "resume": json.dumps(resume)}
    first = given.get("first_epoch") or 0
    epochs = given.get("epochs") or pipeline._plan().clauses()["epochs"]
    at = resume.get("cursor", {}).get("epoch", 0)
    if epochs is not None and not first <= at < first + epochs:
        raise ConfigError(
            f"the token is of epoch {at}, and this run has epochs {first} to {first + epochs - 1}; say which with "
            "first_epoch=.. and epochs=.., or take state_dict() of an iterator, which knows"
        )
    return settings


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else text[:77] + ".."
