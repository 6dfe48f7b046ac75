"""The physics and the frames of the batched worlds on torch, against slow references."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hts_envs.batched.ball_balance import BallBalance
from hts_envs.batched.cartpole import CartPole
from hts_envs.batched.exact import inverse_sqrt, sin_cos
from hts_envs.batched.pendulum import Pendulum
from hts_envs.batched.render import SIZE, Camera, Scene
from hts_envs.batched.shell import Simulator
from hts_envs.contract import Array
from hts_envs.randomness import fold_rows, uniform
from tests.unit.test_batched import build, one_thread, play

__all__ = ["one_thread"]  # the fixture counts here too

# One unit in the last place of numbers up to 2^10, a few times: the reference computes the same
# formulas with the C library's sine, whose last bit may differ.
CLOSE = 1e-12


class TestExact:
    def test_against_the_c_library(self) -> None:
        """Sine and cosine are within one unit in the last place of 1 of the C library's."""
        angles = uniform(np.arange(4, dtype=np.uint64), 5000).reshape(-1) * 2000.0 - 1000.0
        corners = np.arange(-400, 400) * (math.pi / 4)
        x = np.concatenate((angles, corners, [0.0]))
        sin, cos = sin_cos(torch.tensor(x))
        for i, value in enumerate(x):
            assert abs(sin[i].item() - math.sin(value)) <= 1.2e-16
            assert abs(cos[i].item() - math.cos(value)) <= 1.2e-16

    def test_inverse_square_roots(self) -> None:
        """On [1, 1.5] they are within two units in the last place, in both precisions."""
        x = np.linspace(1.0, 1.5, 5001)
        for dtype, close in ((np.float64, 2.3e-16), (np.float32, 1.2e-7)):
            got = inverse_sqrt(torch.tensor(x.astype(dtype))).numpy()
            wanted = 1.0 / np.sqrt(x.astype(dtype).astype(np.float64))
            assert np.abs(got - wanted).max() <= close


def slow_cartpole(state: list[float], action: int) -> tuple[list[float], bool]:
    """The published equations, one number at a time."""
    x, x_dot, theta, theta_dot = state
    force = 10.0 if action == 1 else -10.0
    cos, sin = math.cos(theta), math.sin(theta)
    temp = (force + 0.05 * theta_dot**2 * sin) / 1.1
    theta_acc = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    x_acc = temp - 0.05 * theta_acc * cos / 1.1
    after = [
        x + 0.02 * x_dot,
        x_dot + 0.02 * x_acc,
        theta + 0.02 * theta_dot,
        theta_dot + 0.02 * theta_acc,
    ]
    return after, abs(after[0]) > 2.4 or abs(after[2]) > math.pi / 15


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every operation that torch executes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


# Correctly rounded by IEEE 754, exact, or moving data without computing.
ROUNDED = {"add", "sub", "rsub", "mul", "div", "reciprocal"}
WITHOUT_ROUNDING = {"neg", "abs", "floor", "clamp", "maximum", "where", "eq", "ne", "gt", "ge"}
WITHOUT_ROUNDING |= {"lt", "le", "bitwise_and", "bitwise_or", "bitwise_not"}
MOVING = {"_to_copy", "cat", "clone", "copy_", "detach", "empty", "expand", "lift_fresh"}
MOVING |= {"ones_like", "permute", "select", "slice", "stack", "t", "transpose", "unbind"}
MOVING |= {"unsqueeze", "view", "zeros_like", "scalar_tensor", "numpy_T", "alias", "squeeze"}


@pytest.mark.parametrize("simulator", [CartPole(), Pendulum(), BallBalance("both")])
def test_only_operations_that_round_alike_everywhere(simulator: Simulator) -> None:
    """Start, step, observation and frame use no operation whose bits a build or device decides."""
    space = simulator.spaces.action
    action = torch.ones(20, *space.shape, dtype=torch.int64 if not space.shape else torch.float32)
    draws = torch.tensor(uniform(fold_rows(np.arange(20)), simulator.draws).T.copy())
    with Recorder() as recorder:
        state = simulator.start(draws)
        simulator.observe(simulator.advance(state, action).state)
    assert {"add", "mul", "stack"} <= recorder.names
    assert recorder.names - ROUNDED - WITHOUT_ROUNDING - MOVING == set()


class TestCartPole:
    def test_against_a_slow_transcription(self) -> None:
        """Each of 300 random states moves as the equations say, and falls at the same limits."""
        simulator = CartPole()
        numbers = uniform(fold_rows(np.arange(300)), 5)
        states = (numbers[:, :4] * 2.0 - 1.0) * [2.6, 3.0, 0.25, 3.0]
        actions = (numbers[:, 4] * 2).astype(np.int64)
        got = simulator.advance(torch.tensor(states.T.copy()), torch.tensor(actions))
        for i in range(300):
            wanted, fallen = slow_cartpole(states[i].tolist(), int(actions[i]))
            np.testing.assert_allclose(got.state[:, i].numpy(), wanted, rtol=0, atol=CLOSE)
            assert bool(got.terminated[i]) == fallen
        assert 30 < int(got.terminated.sum()) < 270
        assert (got.reward == 1.0).all()

    def test_it_ends_beyond_the_published_limits(self) -> None:
        """2.4 m and 12 degrees to either side, to within a billionth."""
        angle = 12 * math.pi / 180
        inside, outside = 1 - 1e-9, 1 + 1e-9
        sides = torch.tensor([inside, outside, -inside, -outside], dtype=torch.float64)
        states = torch.zeros(4, 8, dtype=torch.float64)
        states[0, :4] = sides * 2.4
        states[2, 4:] = sides * angle
        fallen = CartPole().advance(states, torch.zeros(8, dtype=torch.int64)).terminated
        assert fallen.tolist() == [False, True] * 4

    @pytest.mark.parametrize("balance", [False, True])
    def test_whole_episodes_equal_gymnasium(self, balance: bool) -> None:
        """From the same start and actions, Gymnasium ends at the same step in the same way."""
        world = build("cartpole", 1)
        seen = world.reset(np.array([0]), np.array([3], np.uint64))["observation"]
        game = gymnasium.make("CartPole-v1")
        game.reset(seed=0)
        draws = uniform(fold_rows(np.array([3], np.uint64), 0x57A27), 4)[0]
        game.unwrapped.state = tuple(draws * 0.1 - 0.05)  # type: ignore[attr-defined]
        for step in range(1, 502):
            x, x_dot, theta, theta_dot = (float(part) for part in seen[0, 0])
            leans = theta + 0.5 * theta_dot + 0.05 * x + 0.1 * x_dot > 0
            action = int(leans) if balance else step % 3 % 2
            theirs, reward, terminated, truncated, _ = game.step(action)
            ours = world.step(np.array([[action]]))
            seen = ours.observation["observation"]
            np.testing.assert_allclose(seen[0, 0], theirs, rtol=1e-6, atol=1e-7)  # float32
            assert (ours.reward[0, 0], ours.terminated[0]) == (reward, terminated)
            assert ours.truncated[0] == truncated
            if terminated or truncated:
                break
        assert (step, truncated) == (500, True) if balance else terminated


def slow_pendulum(state: list[float], action: np.float32) -> tuple[list[float], float]:
    """The published equations, one number at a time; float32 where the action's dtype decides."""
    theta, theta_dot = state
    u = np.clip(action, np.float32(-2.0), np.float32(2.0))
    off = (theta + math.pi) % (2 * math.pi) - math.pi
    cost = off**2 + 0.1 * theta_dot**2 + float(np.float32(0.001) * (u * u))
    push = float(np.float32(3.0) * u)
    faster = theta_dot + (15.0 * math.sin(theta) + push) * 0.05
    faster = min(max(faster, -8.0), 8.0)
    return [theta + faster * 0.05, faster], -cost


class TestPendulum:
    def test_against_a_slow_transcription(self) -> None:
        """Each of 300 random states moves and costs what the equations say."""
        simulator = Pendulum()
        numbers = uniform(fold_rows(np.arange(300), 1), 3)
        states = (numbers[:, :2] * 2.0 - 1.0) * [60.0, 8.0]
        actions = (numbers[:, 2:] * 6.0 - 3.0).astype(np.float32)
        got = simulator.advance(torch.tensor(states.T.copy()), torch.tensor(actions))
        for i in range(300):
            wanted, reward = slow_pendulum(states[i].tolist(), actions[i, 0])
            np.testing.assert_allclose(got.state[:, i].numpy(), wanted, rtol=0, atol=CLOSE)
            assert got.reward[i].item() == pytest.approx(reward, rel=0, abs=CLOSE * 20)
        assert not got.terminated.any()

    def test_whole_episode_equals_gymnasium(self) -> None:
        """From the same start and actions, 200 steps and the truncation equal Gymnasium's."""
        world = build("pendulum", 1)
        world.reset(np.array([0]), np.array([11], np.uint64))
        game = gymnasium.make("Pendulum-v1")
        game.reset(seed=0)
        draws = uniform(fold_rows(np.array([11], np.uint64), 0x57A27), 2)[0]
        start = np.array([draws[0] * 2 * math.pi - math.pi, draws[1] * 2 - 1])
        game.unwrapped.state = start  # type: ignore[attr-defined]
        for step in range(200):
            action = play(world, np.array([4]), step)
            theirs, reward, terminated, truncated, _ = game.step(action[0, 0])
            ours = world.step(action)
            # An ulp of difference grows by the pendulum's own instability; float32 hides the rest.
            seen = ours.observation["observation"][0, 0]
            np.testing.assert_allclose(seen, theirs, rtol=0, atol=1e-5)
            assert ours.reward[0, 0] == pytest.approx(float(reward), abs=1e-4)
            assert (ours.terminated[0], ours.truncated[0]) == (terminated, truncated)
        assert truncated


def slow_ball(state: list[float], action: list[float]) -> tuple[list[float], float, bool]:
    """The equations of the module's head, one number at a time, with trigonometry instead."""
    u, v, u_dot, v_dot = state[:4]
    heights, speeds = [], []
    for height, speed, asked in zip(state[4:7], state[7:10], action, strict=True):
        faster = speed + (0.3 * min(max(asked, -1.0), 1.0) - speed) * 0.02 / 0.08
        higher = height + faster * 0.02
        stopped = abs(higher) > 0.06
        heights.append(math.copysign(0.06, higher) if stopped else higher)
        speeds.append(0.0 if stopped else faster)
    p, q = slopes(heights)
    p_dot, q_dot = slopes(speeds)
    u, u_dot = slow_roll(u, u_dot, p, p_dot)
    v, v_dot = slow_roll(v, v_dot, q, q_dot)
    fallen = max(abs(u), abs(v)) > 0.3
    near = 1 / (1 + (u**2 + v**2) / 0.1**2)
    slow = 1 / (1 + (u_dot**2 + v_dot**2) / 0.5**2)
    return [u, v, u_dot, v_dot, *heights, *speeds], 0.0 if fallen else near * slow, fallen


def slopes(heights: list[float]) -> tuple[float, float]:
    """Of the plane through three legs on a circle, by solving for it."""
    angles = [math.radians(degrees) for degrees in (90, 210, 330)]
    places = [[1.0, 0.25 * math.cos(angle), 0.25 * math.sin(angle)] for angle in angles]
    _, p, q = np.linalg.solve(np.array(places), np.array(heights)).tolist()
    return p, q


def slow_roll(place: float, rate: float, slope: float, slope_rate: float) -> tuple[float, float]:
    angle, turning = math.atan(slope), slope_rate / (1 + slope**2)
    rate += (5 / 7 * (place * turning**2 - 9.81 * math.sin(angle)) - 0.1 * rate) * 0.02
    return place + rate * 0.02, rate


class TestBallBalance:
    def test_against_a_slow_transcription(self) -> None:
        """Each of 300 random states moves, falls and is rewarded as the documented physics say."""
        simulator = BallBalance()
        numbers = uniform(fold_rows(np.arange(300), 2), 13) * 2.0 - 1.0
        scale = [0.31, 0.31, 1.0, 1.0, 0.06, 0.06, 0.06, 0.3, 0.3, 0.3]
        states, actions = numbers[:, :10] * scale, numbers[:, 10:] * 1.5
        got = simulator.advance(torch.tensor(states.T.copy()), torch.tensor(actions))
        for i in range(300):
            wanted, reward, fallen = slow_ball(states[i].tolist(), actions[i].tolist())
            np.testing.assert_allclose(got.state[:, i].numpy(), wanted, rtol=0, atol=CLOSE)
            assert got.reward[i].item() == pytest.approx(reward, rel=0, abs=CLOSE)
            assert bool(got.terminated[i]) == fallen
        assert 10 < int(got.terminated.sum()) < 290

    def test_it_rolls_downhill_by_five_sevenths_of_gravity(self) -> None:
        """On a still plate that rises along x, a ball at rest gains 5/7 g sin dt along -x."""
        state = torch.zeros(10, 1, dtype=torch.float64)
        state[5], state[6] = -0.05, 0.05  # legs at 210 and 330 degrees
        slope = 0.1 / (math.sqrt(3) * 0.25)
        after = BallBalance().advance(state, torch.zeros(1, 3)).state[:, 0]
        sine = slope / math.sqrt(1 + slope**2)
        assert after[2].item() == pytest.approx(-5 / 7 * 9.81 * sine * 0.02, rel=1e-12)
        assert after[3].item() == 0.0

    def test_it_can_be_held_and_falls_by_itself(self) -> None:
        """A linear controller holds all balls to the clock near the middle; idleness loses them."""
        world = build("ball_balance", 32)
        rows = np.arange(32)
        seen = world.reset(rows, rows.astype(np.uint64))["observation"]
        for _ in range(500):
            result = world.step(hold(seen[:, 0])[:, None])
            seen = result.observation["observation"]
            assert not result.terminated.any()
        assert result.truncated.all()
        assert float(result.facts["return"].min()) > 350
        world.reset(rows, rows.astype(np.uint64))
        fallen = np.zeros(32, np.bool_)
        for _ in range(100):
            result = world.step(np.zeros((32, 1, 3), np.float32))
            fallen |= result.terminated
            ended = np.flatnonzero(result.terminated)
            if len(ended):
                world.reset(ended, ended.astype(np.uint64) + 100)
        assert fallen.sum() > 24

    def test_observed_numbers_are_the_documented_ones(self) -> None:
        """The ten numbers are place, velocity, slopes, their rates and lift, in their units."""
        state = torch.tensor([0.15, -0.3, 0.5, -0.6, 0.03, 0.03, 0.03, 0.3, -0.3, -0.3])
        seen = BallBalance().observe(state.double()[:, None])["observation"][0].numpy()
        rate = 2 * 0.6 / 0.75
        wanted = [0.5, -1.0, 0.5, -0.6, 0.0, 0.0, 0.0, rate, 0.5, -1 / 3]
        np.testing.assert_allclose(seen, wanted, rtol=0, atol=1e-6)  # float32 inputs


def hold(seen: Array) -> Array:
    """Tilt against the ball's place and velocity; the legs towards the tilt and the middle."""
    p = np.clip(0.45 * seen[:, 0] + 0.45 * seen[:, 2], -0.2, 0.2)
    q = np.clip(0.45 * seen[:, 1] + 0.45 * seen[:, 3], -0.2, 0.2)
    speed_p = 12.0 * (p - seen[:, 4])
    speed_q = 12.0 * (q - seen[:, 5])
    lift = -0.5 * seen[:, 8] * 0.06
    legs = []
    for degrees in (90, 210, 330):
        x, y = 0.25 * math.cos(math.radians(degrees)), 0.25 * math.sin(math.radians(degrees))
        legs.append((lift + speed_p * x + speed_q * y) / 0.3)
    return np.clip(np.stack(legs, axis=1), -1.0, 1.0).astype(np.float32)


def scene(u: float, v: float, lift: float = 0.0, p: float = 0.0, q: float = 0.0) -> Array:
    """The frame of one scene, as whole numbers that can be subtracted."""
    parts = Scene(*(torch.tensor([part], dtype=torch.float64) for part in (u, v, lift, p, q)))
    return Camera(0.3, 0.045).render(parts)[0].numpy().astype(np.int64)


def red(frame: Array) -> Array:
    return np.asarray(frame[:, :, 0] > 2 * frame[:, :, 1])


def ball_middle(frame: Array) -> tuple[float, float]:
    """Mean (row, column) of the pixels of the ball."""
    rows, columns = np.nonzero(red(frame))
    assert len(rows) >= 9, "the ball is not to be seen"
    return float(rows.mean()), float(columns.mean())


class TestRender:
    def test_a_frame_is_48_by_48_rgb_and_full_of_plate(self) -> None:
        """Frames have the declared shape, and the plate covers a third of them or more."""
        frame = scene(0.0, 0.0)
        assert frame.shape == (SIZE, SIZE, 3) == (48, 48, 3)
        sky = (frame == [60, 70, 90]).all(axis=2)
        assert 0.2 < sky.mean() < 0.67

    def test_the_ball_is_where_it_is(self) -> None:
        """Right is right, further away is higher up, and every place on the plate is in view."""
        row, column = ball_middle(scene(0.0, 0.0))
        assert column == pytest.approx(23.5, abs=0.3)  # lit from the right
        for place in (-0.29, -0.1, 0.1, 0.29):
            assert (ball_middle(scene(place, 0.0))[1] - column) * place > 0.1
            assert (row - ball_middle(scene(0.0, place))[0]) * place > 0.1

    def test_what_is_near_is_large(self) -> None:
        """The ball covers more pixels at the near side of the plate than at the far side."""
        sizes = [red(scene(0.0, v)).sum() for v in (-0.25, 0.25)]
        assert sizes[0] > sizes[1] >= 9

    def test_small_movements_and_tilts_show(self) -> None:
        """A millimetre of the ball, a degree of tilt or lift of 5 mm changes some pixels."""
        still = scene(0.01, 0.02, 0.0, 0.0, 0.0)
        for other in (
            scene(0.011, 0.02),
            scene(0.01, 0.021),
            scene(0.01, 0.02, lift=0.005),
            scene(0.01, 0.02, p=0.0175),
            scene(0.01, 0.02, q=0.0175),
        ):
            assert (still != other).any(axis=2).sum() >= 5

    def test_the_plate_is_brighter_towards_the_light(self) -> None:
        """Tilted to the light's side, the plate's mean brightness rises; away from it, it falls."""
        means = [scene(0.0, 0.0, p=p)[16:32, 16:32].mean() for p in (0.2, 0.0, -0.2)]
        assert means[0] < means[1] < means[2]

    def test_frames_come_out_beside_the_numbers(self) -> None:
        """`observation` chooses the fields, and frames equal those rendered from the same state."""
        fields = {
            choice: set(build(f"ball_balance?observation={choice}", 1).spaces.observation)
            for choice in ("state", "pixels", "both")
        }
        assert fields == {
            "state": {"observation"},
            "pixels": {"pixels"},
            "both": {"observation", "pixels"},
        }
        world = build("ball_balance?observation=both", 70)
        seen = world.reset(np.arange(70), np.arange(70, dtype=np.uint64))
        numbers = seen["observation"][69, 0].astype(np.float64)
        frame = scene(0.3 * numbers[0], 0.3 * numbers[1], 0.06 * numbers[8], numbers[4], numbers[5])
        # The numbers are rounded to float32, so a pixel at an edge may differ.
        assert (np.abs(seen["pixels"][69, 0] - frame) > 2).any(axis=2).sum() <= 6
