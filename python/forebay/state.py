"""Positions in a stream, as stored in checkpoints.

A *token* names a position between two steps of a stream. All ranks take a step together, so a position is the same for
all of them. A *state* is a dictionary with a token and the other values that a run needs to resume, all of which JSON
can represent:

* `forebay_state`: the format version, 1.
* `token`: the token; None if an iteration of a dataset has not started. In this case, the state also has `seed`.
* `first_epoch`, `epochs`: the first epoch of the run and its number of epochs. The latter is only informative: a
resumed run has the number of epochs in its own settings, counted from `first_epoch`.
* `turn`, `turns`: the number of steps between the token's position and the next batch, and the stride between batches.
The stride is above 1 in a `DataLoader` with several workers. Absent values are 0 and 1: the next batch directly follows
the token's position, and no step is left out.
* `world`: the number of ranks in the `turn` steps after the token's position.
* `drops`: true if steps in which a rank has no batch are dropped (`uneven="drop"`); absent otherwise.
* `taken`: the number of steps before the token's position that count towards `limit_batches`; absent without a limit.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .errors import ConfigError, ResumeError

if TYPE_CHECKING:
    from .pipeline import Pipeline

__all__ = ["State", "read_resume"]

#: Version of the format of states.
FORM = 1


@dataclass(frozen=True)
class State:
    """A parsed state."""

    #: The token as JSON; None if the run has not started, and so is at the beginning of `first_epoch`.
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
        """Parses a state that `state_dict` returned."""
        if not isinstance(state, dict) or state.get("forebay_state") != FORM:
            raise ResumeError(f"not a state of a Forebay iterator: {_short(state)}")
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
        """Returns the state as a dictionary, in the format that `state_dict` returns."""
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
        """The epoch of the state's position."""
        return int(self._cursor().get("epoch", self.first_epoch))

    @property
    def is_over(self) -> bool:
        """True if the state is after the last step of its epoch."""
        return bool(self._cursor().get("ended", False))

    def within(self, epochs: int | None) -> State:
        """Returns this state, after checking that it is within a run of `epochs` epochs or exactly at the end of the
        run.

        Raises:
            ConfigError: The state is after the end of the run.
        """
        cursor = self._cursor()
        at, end = self.epoch, self.first_epoch + (epochs or 0)
        if epochs is None or at < end or at == end and not cursor.get("rows") and not cursor.get("step"):
            return self
        raise ConfigError(
            f"the state is in epoch {at}, but a run of {epochs} epoch(s) from epoch {self.first_epoch} ends before "
            "this state; set more epochs with repeat(..) or epochs=.."
        )

    def among(self, turns: int, world: int, *, is_worker: bool = False) -> State:
        """Returns this state, after checking that it comes from `turns` loader workers and `world` ranks. If the caller
        is the only loader worker (`is_worker`), the number of ranks must be equal, too, since the loader may add steps
        that those ranks took. Without workers, any number of ranks is accepted.

        Raises:
            ResumeError: The state comes from another number of loader workers or ranks.
        """
        if self.turns == turns and (self.world == world or turns == 1 and not is_worker):
            return self
        raise ResumeError(
            f"this state comes from {self.turns} loader worker(s) and {self.world} rank(s), but now there are {turns} "
            f"loader worker(s) and {world} rank(s); pass the result of forebay.torch.global_state(loader_state) to "
            "resume(..) of a new dataset"
        )

    def at_world(self, world: int, given: dict[str, Any], pipeline: Pipeline) -> State:
        """Converts the state for a run with `world` ranks, after checking that the run has epochs left."""
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
        """Returns the state from which loader worker number `turn` (from 0) of `turns` workers resumes."""
        return replace(self, turn=self.turn + turn, turns=turns)

    def settings(self, given: dict[str, Any], pipeline: Pipeline) -> dict[str, Any]:
        """Returns `given`, the settings of a run, with changes that make the run resume from this state."""
        told = {**given, "first_epoch": self.first_epoch, "turn": self.turn, "turns": self.turns}
        limit = given.get("limit_batches")
        if limit is not None:
            told["limit_batches"] = max(0, limit - (self.taken or 0))
        if self.token is None:
            seed = given.get("seed")
            seed = pipeline._plan().clauses()["seed"] if seed is None else seed
            if seed is not None and self.seed is not None and seed != self.seed:
                raise ResumeError(
                    f"this state belongs to another stream: the seed is {seed}, but was {self.seed} when the state was "
                    "saved"
                )
            return {**told, "seed": self.seed}
        return {**told, "resume": self.token}

    def _advanced(self, given: dict[str, Any], pipeline: Pipeline) -> str:
        """Returns the token after the `turn` steps that `self.world` ranks have taken since `self.token`. Only the
        batch of the last of these steps is computed."""
        before = {
            **given,
            "rank": 0,
            "world": self.world,
            "first_epoch": self.first_epoch,
            "turn": self.turn - 1,
            "turns": 1,
            "limit_batches": self.turn,
            # Past steps count with the setting under which they were taken, even if later steps have another setting.
            "uneven": "drop" if self.drops else None,
            "resume": self.token,
        }
        if self.token is None:
            before["seed"] = self.seed
        run = pipeline._plan().run(before, False, None)
        try:
            if run.next() is None:
                raise ResumeError("this state belongs to another stream: this stream ends before the state")
            return run.token()
        finally:
            run.close()


def read_resume(resume: Any, given: dict[str, Any], pipeline: Pipeline) -> dict[str, Any]:
    """Returns `given`, the settings of a run, with changes that make the run resume from `resume`, a token or a state,
    as a dictionary or as JSON."""
    if isinstance(resume, (str, bytes)):
        try:
            resume = json.loads(resume)
        except ValueError as error:
            raise ResumeError(f"not a resume token: {error}") from error
    if not isinstance(resume, dict):
        raise TypeError(f"resume expects batch.token() or state_dict(), found {_short(resume)}")
    if "forebay_state" in resume:
        world = given.get("world") or 1
        state = State.of(resume).among(given.get("turns") or 1, world).at_world(world, given, pipeline)
        return state.settings(given, pipeline)
    if "forebay_token" not in resume:
        raise ResumeError(f"not a token or a state of Forebay: {_short(resume)}")
    settings = {**given, "resume": json.dumps(resume)}
    first = given.get("first_epoch") or 0
    epochs = given.get("epochs") or pipeline._plan().clauses()["epochs"]
    at = resume.get("cursor", {}).get("epoch", 0)
    if epochs is not None and not first <= at < first + epochs:
        raise ConfigError(
            f"the token is in epoch {at}, but this run has epochs {first} to {first + epochs - 1}; set first_epoch=.. "
            "and epochs=.., or resume from state_dict() of an iterator, which contains the epochs"
        )
    return settings


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else text[:77] + ".."
