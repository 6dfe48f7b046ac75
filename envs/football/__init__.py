"""`gfootball:` Google Research Football, the real engine.

    gfootball:3v1                                     one player, a map of 72x96 cells, goals
    gfootball:11v11_easy?agents=3&rewards=scoring,checkpoints
    gfootball:5v5?agents=4&right_agents=4&representation=simple115v2

*Chance.* The seed of an episode decides the engine's seed, which team the engine thinks for first,
and who kicks off where the scenario leaves that open: all that makes an episode. Nothing of the
episodes before, of the process or of the engine's age enters it.

*The clock.* Full time is part of the rules of football: nothing after it counts. So by default an
episode that reaches it is terminated (`clock=ends`); `clock=truncates` has it truncated instead,
for whoever wants values that do not depend on the time left.

*One step* is ten physics steps of 10 ms, gfootball's own; pauses of the game are skipped, as there.

*Pictures* (`representation=pixels`) are rendered off screen through EGL at 1280x720 and shrunk.
No display, virtual or real, is needed: without a graphics card Mesa draws in software (packages
libegl1, libegl-mesa0, libgl1-mesa-dri), at about three pictures a second on two idle cores, and a
reset draws 19 of them. The engine allows one rendering engine in a process. gfootball makes pauses
of the game longer when it renders; here a match is the same whatever it is looked at through.

*Snapshots* are bit-exact: what follows a restore is what followed the snapshot. Taking one costs
0.1 ms, going back to one some 5 to 20 ms, because the engine is put in order for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from hts_envs.contract import Place, World
from hts_envs.errors import MissingPackages
from hts_envs.football import scenarios
from hts_envs.registry import Family, Spec


class Football(Family):
    name = "gfootball"
    summary = "Google Research Football, the real engine"
    packages = ("gfootball", "gfootball_engine")
    extra = "football"

    def names(self) -> Sequence[str]:
        return [scenario.short for scenario in scenarios.SCENARIOS.values()]

    def resolve(self, name: str) -> str:
        return scenarios.resolve(name)

    def options(self, name: str) -> type[Any]:
        return scenarios.options(scenarios.SCENARIOS[name])

    def make(self, spec: Spec, place: Place) -> World:
        if spec.options.representation == "pixels" and find_spec("cv2") is None:
            raise MissingPackages(
                "gfootball: representation=pixels needs cv2, which is not installed here. "
                "Install it with: pip install opencv-python-headless"
            )
        from hts_envs.football.world import FootballWorld

        return FootballWorld(scenarios.SCENARIOS[spec.name], spec.options)

    def instead(self) -> str:
        return (
            "Where the engine cannot be built, envpool:gfootball/academy_3_vs_1_with_keeper-v1 "
            "needs no compiler, but has one player, the map and goals as only reward, "
            "and no snapshots."
        )


FAMILY = Football()
