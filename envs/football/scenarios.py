"""The scenarios of the game: their names, how many players can be led, how long they last.

The table repeats what the scenario files of the simulator say, so that names and options can be
checked where the simulator is not installed; a test holds it to those files.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from hts_envs.errors import BadName, BadOption
from hts_envs.options import Range, option
from hts_envs.spelling import hint


@dataclass(frozen=True)
class Scenario:
    """Up to `left` and `right` players can be led; the match lasts `duration` steps."""

    full: str
    short: str
    left: int
    right: int
    duration: int


_ALL = (
    Scenario("academy_empty_goal_close", "empty_goal_close", 2, 1, 400),
    Scenario("academy_empty_goal", "empty_goal", 2, 1, 400),
    Scenario("academy_run_to_score", "run_to_score", 2, 6, 400),
    Scenario("academy_run_to_score_with_keeper", "rsk", 2, 6, 400),
    Scenario("academy_pass_and_shoot_with_keeper", "psk", 3, 2, 400),
    Scenario("academy_run_pass_and_shoot_with_keeper", "rpsk", 3, 2, 400),
    Scenario("academy_3_vs_1_with_keeper", "3v1", 4, 2, 400),
    Scenario("academy_corner", "corner", 11, 11, 400),
    Scenario("academy_counterattack_easy", "counterattack_easy", 11, 11, 400),
    Scenario("academy_counterattack_hard", "counterattack_hard", 11, 11, 400),
    Scenario("academy_single_goal_versus_lazy", "lazy", 11, 11, 3000),
    Scenario("1_vs_1_easy", "1v1", 1, 1, 500),
    Scenario("5_vs_5", "5v5", 4, 4, 3000),
    Scenario("11_vs_11_easy_stochastic", "11v11_easy", 11, 11, 3000),
    Scenario("11_vs_11_stochastic", "11v11_stochastic", 11, 11, 3000),
    Scenario("11_vs_11_hard_stochastic", "11v11_hard", 11, 11, 3000),
    Scenario("11_vs_11_competition", "11v11_competition", 11, 11, 3000),
    Scenario("11_vs_11_kaggle", "11v11_kaggle", 11, 11, 3000),
)

SCENARIOS = {scenario.full: scenario for scenario in _ALL}
"""Full name to scenario, easiest first."""

_NAMES = {
    name: scenario.full
    for scenario in _ALL
    for name in (scenario.short, scenario.full.removeprefix("academy_"), scenario.full)
}


def resolve(name: str) -> str:
    """The full name for a short or full one, with or without `academy_`."""
    if name not in _NAMES:
        said = f"gfootball has no scenario {name!r}" if name else "gfootball needs a scenario"
        raise BadName(f"{said}{hint(name, _NAMES) or ', such as gfootball:3v1'}")
    return _NAMES[name]


Representation = Literal["extracted", "simple115v2", "pixels", "raw"]
Rewards = Literal["scoring", "scoring,checkpoints"]
Clock = Literal["ends", "truncates"]


@dataclass(frozen=True)
class Options:
    """What can be said behind the `?`; each scenario has its own bounds on the players."""

    representation: Representation = option(
        "extracted",
        "what a player sees: a 72x96 map of 4 planes, 115 numbers, the picture, or everything",
    )
    rewards: Rewards = option(
        "scoring,checkpoints",
        "goals alone, or also 0.1 for each of 10 rings around the goal that is reached",
    )
    agents: int = option(1, "players of the left team that are led")
    right_agents: int = option(0, "players of the right team that are led; they see it mirrored")
    clock: Clock = option("ends", "is full time an end of the game, or does it only cut it short")

    def __post_init__(self) -> None:
        if self.representation == "pixels" and self.right_agents:
            raise BadOption(
                "gfootball: representation=pixels shows the left team's camera, "
                "so right_agents must be 0 with it"
            )


def options(scenario: Scenario) -> type[Options]:
    """The options of this scenario, which bound the players that can be led."""
    return _OPTIONS[scenario.left, scenario.right]


def _bounded(left: int, right: int) -> type[Options]:
    """Options with these bounds, findable by name in this module so that they can be pickled."""
    declared = {field.name: field for field in dataclasses.fields(Options)}
    bounds: list[tuple[str, Any, Any]] = [
        ("agents", Annotated[int, Range(1, left)], _again(declared["agents"])),
        ("right_agents", Annotated[int, Range(0, right)], _again(declared["right_agents"])),
    ]
    name = f"Options{left}v{right}"
    made: type[Options] = dataclasses.make_dataclass(
        name, bounds, bases=(Options,), frozen=True, namespace={"__module__": __name__}
    )
    globals()[name] = made
    return made


def _again(field: dataclasses.Field[Any]) -> Any:
    return option(field.default, field.metadata["help"])


_OPTIONS = {sides: _bounded(*sides) for sides in sorted({(each.left, each.right) for each in _ALL})}
