"""From a name to its simulator on torch; imported only when a world is made."""

from __future__ import annotations

from hts_envs.batched.ball_balance import BallBalance
from hts_envs.batched.cartpole import CartPole
from hts_envs.batched.options import BallOptions, TorchOptions
from hts_envs.batched.pendulum import Pendulum
from hts_envs.batched.shell import Simulator, TorchWorld, device_of


def make(name: str, options: TorchOptions, replicas: int) -> TorchWorld:
    """The batched world of this name."""
    device = device_of(options.device, f"batched:{name}")
    return TorchWorld(_simulator(name, options), replicas, device)


def _simulator(name: str, options: TorchOptions) -> Simulator:
    if isinstance(options, BallOptions):
        assert name == "ball_balance", name
        return BallBalance(options.observation)
    return {"cartpole": CartPole, "pendulum": Pendulum}[name]()
