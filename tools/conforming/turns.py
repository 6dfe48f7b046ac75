"""Cases: what a seat does at its turns."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

from .case import case
from .command import Wishes
from .reference import BOTH, TERMINATED, TRUNCATED, Model, Order, seeds_that_end
from .said import Wrong, same
from .side import PATIENCE, Client, Trial

_TURNS = 45  # more than two episodes, however they end
_FAR = (1 << 32) + 7


def _episode(client: Client, seat: Model, next_seed: int) -> int:
    """Steps until an episode ends, whose next one has this seed; how it ended."""
    while True:
        order = seat.step([next_seed])
        client.play(order)
        ends = int(order.expected.frames["ends"][0])
        if ends:
            return ends


@case("episodes")
def episodes(trial: Trial) -> None:
    """Plays episodes as the reference simulator does: observations, rewards, ends and facts."""
    with trial.client() as client:
        (seat,) = client.enter()
        client.play(seat.begin(0), *(seat.step() for _ in range(_TURNS)))


@case("ends")
def ends(trial: Trial) -> None:
    """Sends the last observation of an episode where ends is 2 (not 0, 1, 3), the next one's
    first in every case."""
    with trial.client() as client:
        (seat,) = client.enter()
        wanted = [TRUNCATED, TERMINATED, BOTH, TRUNCATED, BOTH, TERMINATED]
        seeds = [
            next(itertools.islice(seeds_that_end(how), at, None)) for at, how in enumerate(wanted)
        ]
        client.play(seat.begin(0, seeds[:1]))
        for how, seed in zip(wanted, [*seeds[1:], 0], strict=True):
            same(_episode(client, seat, seed), how, "the suite plays the ends that it chose")


@case("seeds")
def seeds(trial: Trial) -> None:
    """Begins each episode with its own seed, of all 64 bits; the same seed gives the same one."""
    with trial.client() as client:
        (seat,) = client.enter()
        for turn, seed in enumerate((0, 5, (1 << 53) + 1, (1 << 63) - 1, (1 << 64) - 1, 5)):
            client.play(seat.begin(turn, [seed]))
        for turn in range(_TURNS):
            client.play(seat.step([(1 << 64) - 2 * turn - 1]))


@case("begin-anew")
def begin_anew(trial: Trial) -> None:
    """Begins in the middle of an episode when it is asked to, at any turn, and goes on there."""
    with trial.client() as client:
        (seat,) = client.enter()
        for turn in (0, 4, 5, 2, 2, _FAR, 1):
            client.play(seat.begin(turn), *(seat.step() for _ in range(3)))


@case("replay")
def replay(trial: Trial) -> None:
    """Is led through recorded turns, where the rows in begins begin episodes once (3 rows)."""
    with trial.client(Wishes(rows=3)) as client:
        (seat,) = client.enter()
        client.play(seat.begin(9), seat.step(), seat.step())
        client.play(seat.begin(4))
        for begins in ((), (1,), (), (0, 2), (2,), (1, 1), (), (0, 1, 2)):
            client.play(seat.step(begins=begins))
        client.play(seat.step(), *_ended_though_told_to_begin(seat), seat.step())


def _ended_though_told_to_begin(seat: Model) -> list[Order]:
    """Turns until rows end that begin anyway: neither ends, facts nor last observations then."""
    given = {how: next(seeds_that_end(how)) for how in (TERMINATED, TRUNCATED)}
    orders = [seat.begin(30, [given[TRUNCATED], given[TRUNCATED], given[TERMINATED]])]
    orders += [seat.step(seeds=[given[TRUNCATED]] * 3, begins=[2]) for _ in range(19)]
    return [*orders, seat.step(begins=[0])]


@case("agents")
def agents(trial: Trial) -> None:
    """Plays with two agents: their observations, actions and rewards, and the mean in return."""
    with trial.client(Wishes(agents=2)) as client:
        (seat,) = client.enter()
        client.play(seat.begin(0), *(seat.step() for _ in range(_TURNS)))


@case("rows")
def rows(trial: Trial) -> None:
    """Plays two seats of three rows with two agents each, rows ending when they do."""
    with trial.client(Wishes(seats=2, rows=3, agents=2)) as client:
        seats = client.enter()
        client.play(*(seat.begin(0) for seat in seats))
        for _ in range(_TURNS):
            client.play(*(seat.step() for seat in seats))


@case("pipelining")
def pipelining(trial: Trial) -> None:
    """Holds several seats: one that is not answered does not hold up the others."""
    with trial.client(Wishes(seats=4)) as client:
        seats = client.enter()
        client.play_at_once(*(seat.begin(0) for seat in seats))
        since = time.monotonic()
        for _ in range(_TURNS):
            client.play(seats[2].step())
        seconds = time.monotonic() - since
        if seconds > PATIENCE:
            came = f"{seconds:.1f} s for {_TURNS} turns of one seat"
            raise Wrong("three seats wait, the fourth is served at once", came=came)
        for _ in range(3):
            client.play_at_once(*(seat.step() for seat in seats))


@case("again")
def again(trial: Trial) -> None:
    """Says the same stand once more at again, byte for byte, and nothing for another turn."""
    with trial.client() as client:
        (seat,) = client.enter()
        client.say("again", 0, 0)
        client.quiet("an again of a turn that it has not said is ignored")
        for order in (seat.begin(0), *(seat.step() for _ in range(_TURNS))):
            client.ask(order)
            first = client.hear(f"stand of {order}")
            order.check(first)
            client.say("again", 0, order.turn)
            second = client.hear(f"stand of {order} once more")
            same(str(second), str(first), "again is answered with the same stand")
            same(second.frames, first.frames, "again is answered with the same frames")
        for turn in (order.turn - 1, order.turn + 1):
            client.say("again", 0, turn)
        client.quiet("an again of a turn that it has not said last is ignored")


@case("double")
def double(trial: Trial) -> None:
    """Ignores an act that is double, late or ahead, and a begin like the last act."""
    with trial.client() as client:
        (seat,) = client.enter()
        begin, step, after = seat.begin(0), seat.step(), seat.step()
        for early in (step, replace(step, turn=0)):
            client.ask(early)
        client.quiet("an act with actions before anything has begun is ignored")
        client.play(begin)
        client.ask(begin)
        client.quiet("a begin with the turn and seeds of the last act is double, and ignored")
        client.ask(after)
        client.quiet("an act two turns ahead is ignored")
        client.play(step)
        client.ask(step)
        client.quiet("an act of the turn that it has said is double, and ignored")
        client.play(after)
        client.ask(step)
        client.quiet("an act of an earlier turn is late, and ignored")
        client.play(begin, step, after, seat.step())  # it is another one: there were acts since


@case("overtaken")
def overtaken(trial: Trial) -> None:
    """Takes the later one of acts that come at once: what it says last belongs to that."""
    with trial.client() as client:
        (seat,) = client.enter()
        client.play(seat.begin(0))
        for turn in (20, 21, 1):
            orders = [seat.step(), *(seat.begin(turn + at) for at in range(5))]
            client.ask(*orders)
            _last_of(client, orders)
            client.play(seat.step())


def _last_of(client: Client, orders: list[Order]) -> None:
    """Any of these may be answered, in their order; the last one is."""
    while orders:
        said = client.hear(f"stand of {orders[-1]}")
        while orders and said.values[:2] != [orders[0].seat, orders[0].turn]:
            orders.pop(0)
        if not orders:
            raise Wrong("only what was asked is said", came=said)
        orders.pop(0).check(said)


@case("beyond-the-offer")
def beyond_the_offer(trial: Trial) -> None:
    """Takes a seat more than it offers: the run may not have heard of a smaller offer yet."""
    with trial.client(Wishes(seats=1)) as client:
        client.hello()
        client.welcome()
        first, second = client.take(0, 3)
        client.play(first.begin(0), second.begin(0), first.step(), second.step())
        _holds(client, [[0, 1], [3, 1]], "it holds one seat more than it offers")


@case("seats")
def seats(trial: Trial) -> None:
    """Gives a seat back at drop, takes another one, and ignores what it does not hold."""
    with trial.client(Wishes(seats=3)) as client:
        client.hello()
        client.welcome()
        first, second = client.take(2, 6)
        client.play(first.begin(0), second.begin(0), first.step())
        client.take(2)
        _holds(client, [[2, 1], [6, 0]], "a take of a seat that it holds changes nothing")
        client.say("drop", 2)
        client.ask(first.step())
        client.say("again", 2, 1)
        _holds(client, [[6, 0]], "what is asked of a seat that was dropped is ignored")
        client.ask(Model(9).begin(0))
        for kind, values in (("again", [9, 0]), ("drop", [9]), ("here", [])):
            client.say(kind, *values)
        _holds(client, [[6, 0]], "what is asked of a seat that it never held is ignored")
        (third,) = client.take(4)
        client.play(third.begin(11), second.step(), third.step())
        (first,) = client.take(2)
        _holds(client, [[2, -1], [4, 12], [6, 1]], "a seat that came back has said nothing yet")
        client.play(first.begin(3), first.step(), third.step())


def _holds(client: Client, held: list[list[int]], why: str) -> None:
    same(sorted(client.quiet(why)["held"]), held, f"{why}; held")
