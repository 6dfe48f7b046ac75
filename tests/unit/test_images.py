"""Images in a replay: what came out went in, and memory is taken only by what is written."""

from __future__ import annotations

import lz4.block
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hts.errors import HtsError
from hts.machine import SharedArray, Sizes, replay_arrays
from hts.memory.arena import Arena
from hts.memory.room import Room
from hts.replay.ring import Asked, Places, Ring
from hts.roles import q_learner
from hts_envs.contract import Array, Box

REPLICAS, WINDOW, WINDOWS = 3, 4, 5
SHAPE = (16, 16, 3)
BOTH = Asked(seen=("sight",), behind=("sight", "a"))
MIB = 2**20


def declared() -> tuple[SharedArray, ...]:
    """Windows of four steps of three replicas, of pictures and a number beside them."""
    seen = {"sight": Box(SHAPE, "uint8"), "a": Box((1,))}
    return replay_arrays(Sizes(REPLICAS, WINDOW, 1, 0), WINDOWS, seen, Box((1,)))


def empty() -> Ring:
    return Ring({each.name: np.zeros(each.shape, each.dtype) for each in declared()}, WINDOW)


def pictures(random: np.random.Generator, count: int) -> Array:
    """Plain ones, drawings, and noise that nothing makes smaller."""
    kinds = random.integers(0, 3, (count, 1, 1, 1))
    noise = random.integers(0, 256, (count, *SHAPE))
    drawing = np.where(noise > 250, noise, 0)
    return np.select([kinds == 0, kinds == 1], [kinds * 0 + 7, drawing], noise).astype(np.uint8)


def windows(seed: int, count: int) -> list[dict[str, Array]]:
    """A run in which some episodes end, so that what is behind a step is not what comes next."""
    random = np.random.default_rng(seed)
    steps = count * WINDOW
    seen = pictures(random, (steps + 1) * REPLICAS).reshape(steps + 1, REPLICAS, *SHAPE)
    ends = random.random((steps, REPLICAS)) < 0.3
    final = pictures(random, steps * REPLICAS).reshape(steps, REPLICAS, *SHAPE)
    behind = np.where(ends[..., None, None, None], final, seen[1:])
    a = np.arange(steps * REPLICAS, dtype=np.float32).reshape(steps, REPLICAS, 1)
    whole = {
        "seen.sight": seen[:-1],
        "behind.sight": behind,
        "seen.a": a,
        "behind.a": a + 0.5,
        "action": a,
        "reward": a[..., 0],
        "terminated": np.zeros_like(ends),
        "truncated": ends,
    }
    cuts = [slice(window * WINDOW, (window + 1) * WINDOW) for window in range(count)]
    return [{name: array[cut] for name, array in whole.items()} for cut in cuts]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9))
def test_what_comes_out_went_in(seed: int, count: int) -> None:
    """Every image of every window that is still there, seen and behind, also around the ring; and
    the same from a copy that was pasted into another one, as a run that goes on does."""
    ring, run = empty(), windows(seed, count)
    for window, columns in enumerate(run):
        ring.write(window, columns)
    there = range(max(0, count - WINDOWS), count)
    copied = ring.copy(there)
    other = empty()
    form = other.form(len(there), copied)
    assert {name: (array.shape, array.dtype) for name, array in copied.items()} == form
    other.paste(there, copied)
    for each in (ring, other):
        for window in there:
            steps, replicas = (grid.ravel() for grid in np.indices((WINDOW, REPLICAS)))
            places = Places(window * WINDOW + steps, replicas)
            found = each.transitions(places, places.steps.max() + 1, 1, 0.9, BOTH)
            expected = run[window]
            assert set(found.seen) == {"sight"}
            assert (found.seen["sight"] == expected["seen.sight"][steps, replicas]).all()
            assert (found.behind["sight"] == expected["behind.sight"][steps, replicas]).all()
            assert (found.behind["a"] == expected["behind.a"][steps, replicas]).all()


def test_what_comes_next_stands_there_once() -> None:
    """Four different plain images in a window, and one behind its last step."""
    ring, (columns,) = empty(), windows(0, 1)
    plain = np.broadcast_to(np.arange(WINDOW + 1)[:, None, None, None, None], (5, 3, *SHAPE))
    columns |= {"seen.sight": plain[:-1].astype(np.uint8), "behind.sight": plain[1:].astype("u1")}
    ring.write(0, columns)
    at = ring.arrays["at.sight"][:WINDOW]
    assert len(np.unique(at[..., 0])) == (WINDOW + 1) * REPLICAS
    assert (at[:-1, :, 1] == at[1:, :, 0]).all()
    whole = (WINDOW + 1) * REPLICAS * np.prod(SHAPE)
    assert len(ring.copy([0])["images.sight"]) < whole / 10, "a plain picture is small"


def noise(random: np.random.Generator, *lead: int) -> Array:
    """Pictures that nothing makes smaller."""
    return random.integers(0, 256, (*lead, *SHAPE), np.uint8)


def all_images(ring: Ring, window: int) -> tuple[Array, Array]:
    """What stands in a window, seen and behind: (steps, replicas, ...)."""
    steps, replicas = (grid.ravel() for grid in np.indices((WINDOW, REPLICAS)))
    places = Places(window * WINDOW + steps, replicas)
    found = ring.transitions(places, (window + 1) * WINDOW, 1, 0.9, BOTH)
    shape = (WINDOW, REPLICAS, *SHAPE)
    return found.seen["sight"].reshape(shape), found.behind["sight"].reshape(shape)


def test_a_window_of_noise_fills_its_room() -> None:
    """No image is like another, none becomes smaller: there is a byte for each byte, and no more;
    of those that are seen again in the next step, whatever others do, there is one."""
    ring, (columns,), random = empty(), windows(0, 1), np.random.default_rng(0)
    columns["seen.sight"] = noise(random, WINDOW, REPLICAS)
    columns["behind.sight"] = noise(random, WINDOW, REPLICAS)
    ring.write(0, columns)
    size, count = int(np.prod(SHAPE)), 2 * WINDOW * REPLICAS
    assert len(ring.copy([0])["images.sight"]) == count * size
    assert ring.grows(1) == (WINDOWS - 1) * count * size
    assert ring.grows(WINDOWS + 1) == 0, "all of it is written"
    columns["behind.sight"][0, 1] = columns["seen.sight"][1, 1]
    ring.write(0, columns)
    assert len(ring.copy([0])["images.sight"]) == (count - 1) * size
    seen, behind = all_images(ring, 0)
    assert (seen == columns["seen.sight"]).all()
    assert (behind == columns["behind.sight"]).all()


def test_growth_is_told_by_the_latest_window() -> None:
    """A plain one first, then noise: what is still to come is taken to be noise."""
    ring, (plain, loud), random = empty(), windows(0, 2), np.random.default_rng(0)
    for name in ("seen.sight", "behind.sight"):
        plain[name], loud[name] = plain[name] * 0, noise(random, WINDOW, REPLICAS)
    ring.write(0, plain)
    ring.write(1, loud)
    assert ring.grows(2) == 3 * 2 * WINDOW * REPLICAS * np.prod(SHAPE)
    assert ring.names == ("sight", "a")


def test_a_pasted_copy_writes_what_was_copied_and_no_more() -> None:
    """Memory that images do not need is not even touched; and a copy without places, as a damaged
    record may be, has no images."""
    ring, other, (columns,) = empty(), empty(), windows(0, 1)
    ring.write(0, columns)
    other.paste([0], ring.copy([0]))
    for name, array in ring.arrays.items():
        np.testing.assert_array_equal(other.arrays[name], array, err_msg=name)
    assert ring.form(1, {})["images.sight"] == ((0,), np.uint8)


def test_an_image_that_is_as_large_packed_as_plain_comes_out() -> None:
    """Only its size tells whether it is packed, so of equal sizes it must be the plain one."""
    random, size = np.random.default_rng(0), int(np.prod(SHAPE))
    flat, plain = noise(random).reshape(-1), 0
    while len(lz4.block.compress(flat, store_size=False)) != size:
        plain += 1
        flat[100 : 100 + plain] = 0
        assert plain < 100, "some number of zeros saves what the frame around them takes"
    ring, (columns,) = empty(), windows(0, 1)
    columns["seen.sight"][:] = flat.reshape(SHAPE)
    ring.write(0, columns)
    assert (all_images(ring, 0)[0] == flat.reshape(SHAPE)).all()


def test_memory_is_taken_by_what_is_written() -> None:
    """Room for 1 TiB of images can be declared; it costs nothing until they are there."""
    sparse = SharedArray("images", (1024, 2**30), "uint8", "learner", "learners", sparse=True)
    plain = SharedArray("number", (8,), "int64", "learner", "learners")
    arena = Arena.create([[plain, sparse, plain]])
    first, images, last = (arena.arrays([each])[each.name] for each in (plain, sparse, plain))
    images[1023, -3:] = 7
    first[:], last[:] = 1, 2
    assert images[1023, -4:].tolist() == [0, 7, 7, 7]
    assert (first.sum(), last.sum()) == (8, 16)
    arena.close()


def test_images_that_will_not_fit_are_told_before_the_kernel_acts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Noise: what is written so far says what the rest will take."""
    ring, run = empty(), windows(0, 4)
    free = Room(3 * 10_000, "on this machine")
    monkeypatch.setattr(q_learner, "available", lambda: free)
    for window, columns in enumerate(run):
        columns["seen.sight"] = np.random.default_rng(window).integers(
            0, 256, columns["seen.sight"].shape, np.uint8
        )
        ring.write(window, columns)
    assert ring.grows(4) >= WINDOW * REPLICAS * np.prod(SHAPE)
    q_learner._have_room(ring, 4)
    assert ring.grows(1) > free.size
    with pytest.raises(HtsError, match=r"the images of 60 transitions will take 0 MiB more, and 0"):
        q_learner._have_room(ring, 1)
