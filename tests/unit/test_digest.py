"""The digest chain: every input changes it, and its value is the one that is documented."""

from __future__ import annotations

import numpy as np
from blake3 import blake3

from hts.determinism.digest import Digest, marked, marks, rollout_digest

PARAMETERS = np.arange(4, dtype=np.float32)


def hashed(content: bytes) -> str:
    return str(blake3(content).hexdigest(length=16))


def chain(*updates: tuple[str, list[float]], identity: str = "identity") -> str:
    """Return the chain after these updates: a rollout's digest and parameters each."""
    digest = Digest(identity)
    for rollout, parameters in updates:
        digest.fold(rollout, np.array(parameters, np.float32))
    return digest.chain


def test_a_link_is_the_hash_of_the_chain_the_rollout_and_the_parameters() -> None:
    """Written out: the chain begins with the identity, and each link names what it covers."""
    digest = Digest("identity")
    assert digest.chain == hashed(b"identity")
    link = digest.fold("rollout", PARAMETERS)
    made = hashed(PARAMETERS.tobytes())
    assert (link.update, link.rollout, link.parameters) == (1, "rollout", made)
    assert link.chain == hashed(f"{hashed(b'identity')} rollout {made}".encode())
    assert digest.chain == link.chain
    assert digest.fold("rollout", PARAMETERS).update == 2


def test_everything_that_is_folded_changes_the_chain() -> None:
    """Identity, rollout, any bit of the parameters, and the order of updates."""
    one, two = ("r0", [1.0, 0.0]), ("r1", [2.0, 0.0])
    chains = [
        chain(one, two),
        chain(two, one),
        chain(one),
        chain(one, two, identity="other"),
        chain(one, ("r2", two[1])),
        chain(one, ("r1", [2.0, -0.0])),
        chain(("r0", [2.0, 0.0]), two),
    ]
    assert len(set(chains)) == len(chains)
    assert chain(one, two) == chain(one, two)


def test_a_chain_continues_where_it_was_left() -> None:
    """After a resume the next link is the one of the undisturbed run."""
    digest = Digest("identity")
    digest.fold("r0", PARAMETERS)
    again = Digest("identity").after(1, digest.chain)
    assert again.fold("r1", PARAMETERS) == digest.fold("r1", PARAMETERS)


def test_replicas_are_folded_in_their_order() -> None:
    """Swapped replicas are another rollout; the marks say which ones differ."""
    a, b, c = (bytes([n]) * 16 for n in range(3))
    assert rollout_digest([a, b]) == hashed(a + b)
    assert rollout_digest([a, b]) != rollout_digest([b, a])
    ours, theirs = marks([a, b, c]).split(), marks([a, c, c]).split()
    assert [one == other for one, other in zip(ours, theirs, strict=True)] == [True, False, True]


def test_many_replicas_share_64_marks() -> None:
    """Each replica has exactly one mark."""
    for count in (1, 64, 65, 1000):
        groups = marked(count)
        assert len(groups) == min(count, 64)
        assert [replica for group in groups for replica in group] == list(range(count))
