"""The position of a job in a long queue, and the first node with room among many, are those that a full scan finds."""

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from turnout.control import ranking
from turnout.control.node_index import NodeIndex
from turnout.control.ranking import Ranking
from turnout.job.resources import Share

ranks = st.tuples(st.booleans(), st.integers(-3, 3), st.integers(0, 60))
shares = st.builds(Share, st.integers(0, 8), st.integers(0, 8), st.integers(0, 3))
free = st.builds(Share, st.integers(-2, 16), st.integers(-2, 16), st.integers(-2, 6))


@given(changes=st.lists(ranks, max_size=80))
def test_positions_are_those_in_the_sorted_list(changes: list[ranking.Rank]) -> None:
    """What is there already is removed."""
    there: set[ranking.Rank] = set()
    with patch.object(ranking, "_MOST", 5):
        ordered = Ranking()
        for rank in changes:
            ordered.remove(rank) if rank in there else ordered.add(rank)
            there ^= {rank}
            assert list(ordered) == sorted(there)
            assert [ordered.position(one) for one in ordered] == list(range(len(there)))


@given(nodes=st.lists(free, max_size=20), gangs=st.lists(st.lists(shares, max_size=5), max_size=10))
def test_each_replica_gets_the_first_node_with_room(nodes: list[Share], gangs: list[list[Share]]) -> None:
    left = {str(number): share for number, share in enumerate(nodes)}
    index = NodeIndex(left)
    for wants in gangs:
        found = index.first_fit(wants)
        assert found == scanned(wants, left)
        assert all(index[name] == share for name, share in left.items()), "nothing is taken yet"
        for name, want in zip(found or (), wants, strict=False):
            index.change(name, want.times(-1))
            left[name] -= want


def scanned(wants: list[Share], left: dict[str, Share]) -> list[str] | None:
    left, nodes = dict(left), list[str]()
    for want in wants:
        node = next((name for name, share in left.items() if want.fits(share)), None)
        if node is None:
            return None
        left[node] -= want
        nodes.append(node)
    return nodes
