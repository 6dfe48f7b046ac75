"""The configuration of a run: records, their sources, and how one is made from the other."""

from hts.config.choose import configure
from hts.config.records import A2C, PPO, PQL, Config, Conv, Experiment, Impala, Machine, Mlp
from hts.config.resolve import Resolved, flatten
from hts.config.sources import Given, ready_configs

__all__ = [
    "A2C",
    "PPO",
    "PQL",
    "Config",
    "Conv",
    "Experiment",
    "Given",
    "Impala",
    "Machine",
    "Mlp",
    "Resolved",
    "configure",
    "flatten",
    "ready_configs",
]
