"""What the HTS-RL paper prints in its tables, word for word, and which runs each is about.

Figures are those of its machine: 16 replicas, 4 actors, GPUs, five seeds. '-' stands where it
prints one, and where it prints nothing. Tables 1 and A7, and 2 and A10, are the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SPEED, SCORE, DIGEST, IN_TIME, MINUTES = "steps/s", "score", "digest", "final time", "minutes"
"""What of our runs may stand in a table; `hts.report.tables` says how each is made."""

Rows = Mapping[tuple[str, str], tuple[str, ...]]


@dataclass(frozen=True)
class Table:
    """One table: what its rows are, what of ours stands in them, and what the paper prints."""

    title: str
    rows: Rows  # by environment and value: the cells below `theirs`
    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    value: str = ""  # by which rows of an environment differ: of a configuration, or ?option
    schedules: tuple[str, ...] = ()  # each in columns of its own
    targets: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # by environment
    same: bool = False  # no row may differ in anything but its value


def _rows(family: str, text: str) -> Rows:
    """Lines of a name and cells, between bars."""
    cut = [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]
    return {(f"{family}:{name}", ""): tuple(cells) for name, *cells in cut}


def _valued(env: str, values: str, *cells: str) -> Rows:
    """Rows of one environment: their values, and the cells below each head, in words."""
    columns = [column.split() for column in cells]
    return {(env, value): tuple(row) for value, *row in zip(values.split(), *columns, strict=True)}


_3V1 = "gfootball:3v1"

_ATARI_IN_TIME = """
BankHeist     | 339 ± 10    | 775 ± 166    | 942 ± 100
BeamRider     | 4000 ± 690  | 4392 ± 134   | 6995 ± 420
Breakout      | 201 ± 133   | 362 ± 29     | 413 ± 37
Frostbite     | 73 ± 2      | 272 ± 14     | 315 ± 12
Jamesbond     | 82 ± 10     | 438 ± 59     | 474 ± 88
Krull         | 2546 ± 551  | 7560 ± 892   | 7737 ± 609
KungFuMaster  | 9516 ± 3311 | 30752 ± 6641 | 30020 ± 3559
MsPacman      | 807 ± 170   | 1236 ± 292   | 1675 ± 459
Qbert         | 4116 ± 610  | 12479 ± 1965 | 13682 ± 1873
Seaquest      | 458 ± 2     | 1833 ± 6     | 1831 ± 7
SpaceInvaders | 1142 ± 207  | 596 ± 69     | 731 ± 80
StarGunner    | 8560 ± 918  | 41414 ± 3826 | 52666 ± 5182
"""

_ATARI_MINUTES = """
BankHeist     | -/-       | 28.9/62.1  | 18.9/116.8
BeamRider     | 36.4/60.4 | 32.1/54.5  | 10.3/30.9
Breakout      | 77.8/-    | 21.7/43.5  | 17.7/38.9
Frostbite     | -/-       | 5.0/10.0   | 3.4/6.8
Jamesbond     | -/-       | 39.4/49.2  | 21.8/31.1
Krull         | -/-       | 13.9/37.0  | 7.5/37.6
KungFuMaster  | -/-       | 39.5/192.6 | 18.8/118.1
MsPacman      | 75.8/-    | 49.3/160.3 | 22.9/94.3
Qbert         | 94.2/-    | 53.3/83.8  | 52.2/67.7
Seaquest      | -/-       | 6.7/28.4   | 4.0/17.2
SpaceInvaders | 9.65/19.9 | 14.1/26.4  | 6.9/21.8
StarGunner    | 47.1/-    | 28.7/41.1  | 17.8/25.4
"""

_ATARI_TARGETS = {
    "atari:BankHeist": (480.0, 960.0),
    "atari:BeamRider": (1600.0, 3200.0),
    "atari:Breakout": (160.0, 320.0),
    "atari:Frostbite": (104.0, 208.0),
    "atari:Jamesbond": (200.0, 400.0),
    "atari:Krull": (3600.0, 7200.0),
    "atari:KungFuMaster": (15200.0, 30420.0),
    "atari:MsPacman": (880.0, 1760.0),
    "atari:Qbert": (4000.0, 8000.0),
    "atari:Seaquest": (640.0, 1280.0),
    "atari:SpaceInvaders": (240.0, 480.0),
    "atari:StarGunner": (8400.0, 16800.0),
}
"""40 % and 80 % of what OpenAI's A2C is reported to reach, as the paper prints them."""

_ATARI_SPEED = """
BankHeist     | 1382 ± 6  | 991 ± 14  | 1737 ± 39 | 2111 ± 21
BeamRider     | 1663 ± 14 | 1081 ± 18 | 2086 ± 32 | 2586 ± 14
Breakout      | 1225 ± 12 | 829 ± 31  | 1508 ± 60 | 1885 ± 15
Frostbite     | 1337 ± 8  | 962 ± 15  | 1803 ± 17 | 1973 ± 24
Jamesbond     | 1353 ± 5  | 1014 ± 1  | 1991 ± 24 | 2139 ± 31
Krull         | 1443 ± 6  | 1057 ± 11 | 2001 ± 29 | 2657 ± 16
KungFuMaster  | 1532 ± 15 | 1056 ± 8  | 1979 ± 55 | 2483 ± 15
MsPacman      | 1574 ± 9  | 1052 ± 3  | 1972 ± 13 | 2364 ± 5
Qbert         | 1232 ± 13 | 953 ± 7   | 1621 ± 43 | 1860 ± 6
Seaquest      | 1593 ± 10 | 946 ± 21  | 1918 ± 25 | 2633 ± 32
SpaceInvaders | 1514 ± 20 | 1010 ± 7  | 1899 ± 32 | 2318 ± 12
StarGunner    | 1622 ± 19 | 1110 ± 5  | 2066 ± 24 | 2616 ± 25
"""

_FOOTBALL_MINUTES = """
empty_goal_close   | 1.7/2.6   | 5.4/15.5   | 1.0/2.0
empty_goal         | 8.4/11.7  | 12.8/19.2  | 2.0/3.9
run_to_score       | 27.0/34.6 | 16.2/32.5  | 6.3/11.4
rsk                | 52.3/-    | 51.2/68.2  | 11.5/18.8
psk                | -/-       | 70.0/-     | 38.8/-
rpsk               | 22.3/25.4 | 45.2/90.8  | 13.5/27.1
3v1                | -/-       | 67.4/144.2 | 15.9/25.6
corner             | -/-       | -/-        | -/-
counterattack_easy | -/-       | 223.2/-    | 91.3/-
counterattack_hard | -/-       | 383.4/-    | 61.8/-
lazy               | 58.2/-    | 95.8/260.9 | 14.4/72.1
"""

_FOOTBALL_IN_TIME = """
empty_goal_close   | 1.00 ± 0.00  | 1.00 ± 0.00  | 1.00 ± 0.00
empty_goal         | 1.00 ± 0.00  | 0.89 ± 0.05  | 0.94 ± 0.04
run_to_score       | 0.65 ± 0.42  | 0.89 ± 0.05  | 0.93 ± 0.03
rsk                | 0.03 ± 0.03  | 0.52 ± 0.21  | 0.88 ± 0.06
psk                | 0.00 ± 0.00  | 0.05 ± 0.04  | 0.41 ± 0.02
rpsk               | 0.67 ± 0.06  | 0.49 ± 0.06  | 0.80 ± 0.03
3v1                | 0.23 ± 0.01  | 0.20 ± 0.09  | 0.81 ± 0.02
corner             | -0.10 ± 0.33 | -0.06 ± 0.08 | 0.03 ± 0.10
counterattack_easy | 0.00 ± 0.00  | 0.01 ± 0.01  | 0.39 ± 0.02
counterattack_hard | 0.00 ± 0.00  | 0.01 ± 0.02  | 0.53 ± 0.09
lazy               | 0.46 ± 0.21  | 0.33 ± 0.07  | 0.72 ± 0.09
"""

_A2C, _PPO = ("IMPALA", "A2C", "HTS-RL (A2C)"), ("IMPALA", "PPO", "HTS-RL (PPO)")
_BOTH = ("sync", "hts")
_SPEED_AND_SCORE = (SPEED, SCORE, DIGEST)
_FOOTBALL = _rows("gfootball", _FOOTBALL_MINUTES)

_TABLE_1 = Table(
    "Atari in the final time metric (tables 1 and A7)",
    _rows("atari", _ATARI_IN_TIME),
    _A2C,
    (IN_TIME,),
    schedules=_BOTH,
)
_TABLE_2 = Table(
    "football in the required time metric, minutes to score 0.4 / 0.8 (tables 2 and A10)",
    _FOOTBALL,
    _PPO,
    (MINUTES,),
    schedules=_BOTH,
    targets={env: (0.4, 0.8) for env, _ in _FOOTBALL},
)

TABLES: Mapping[str, Table] = {
    "1": _TABLE_1,
    "2": _TABLE_2,
    "3": Table(
        "numbers of agents on 3 vs. 1 with keeper from raw images, 8M steps (table 3)",
        _valued(f"{_3V1}?representation=pixels", "1 3", "0.30±0.11 0.63±0.15"),
        ("score",),
        _SPEED_AND_SCORE,
        value="?agents",
    ),
    "4": Table(
        "numbers of actors on 3 vs. 1 with keeper (table 4)",
        _valued(_3V1, "1 4 8 16", "1229 1362 1393 1388", "0.82 0.82 0.82 0.82"),
        ("steps/s", "score"),
        _SPEED_AND_SCORE,
        value="machine.actors",
        same=True,
    ),
    "5": Table(
        "synchronisation intervals on 3 vs. 1 with keeper (table 5)",
        _valued(
            _3V1,
            "4 16 64 128 256 512",
            "445 1070 1345 1349 1360 1377",
            "0.82 0.81 0.81 0.82 0.81 0.83",
        ),
        ("steps/s", "score"),
        _SPEED_AND_SCORE,
        value="experiment.rollout",
    ),
    "A1": Table(
        "corrections on Atari (table A1)",
        {
            **_valued("atari:BankHeist", "delayed truncated_is none", "987 881 877"),
            **_valued("atari:Breakout", "delayed truncated_is none", "415 390 402"),
            **_valued("atari:Seaquest", "delayed truncated_is none", "1831 1827 1784"),
        },
        ("score",),
        _SPEED_AND_SCORE,
        value="experiment.correction",
    ),
    "A2": Table(
        "steps/s of A2C on Atari (table A2)",
        _rows("atari", _ATARI_SPEED),
        ("Kostrikov", "OpenAI Baselines", "rlpyt", "HTS-RL"),
        (SPEED,),
        schedules=_BOTH,
    ),
    "A7": _TABLE_1,
    "A8": Table(
        "Atari in the required time metric, minutes to both targets (table A8)",
        _rows("atari", _ATARI_MINUTES),
        _A2C,
        (MINUTES,),
        schedules=_BOTH,
        targets=_ATARI_TARGETS,
    ),
    "A9": Table(
        "football in the final time metric (table A9)",
        _rows("gfootball", _FOOTBALL_IN_TIME),
        _PPO,
        (IN_TIME,),
        schedules=_BOTH,
    ),
    "A10": _TABLE_2,
}
