"""How roles of different sizes share one allocation."""

from hypothesis import given
from hypothesis import strategies as st

from tests.slurm.harness import role
from turnout.engines.slurm.layout import Layout, Need, layouts
from turnout.job import Program, Resources, Role


def test_equal_replicas_have_a_slot_each():
    [only] = layouts([role("chief", cpus=2, memory=100), role("worker", 3, cpus=2, memory=100)])
    assert (only.slot, only.slots, only.seats) == (Need(2, 100, 0), 4, ((0,), (1, 2, 3)))


def test_small_replicas_are_put_into_the_slots_of_large_ones():
    best = layouts([role("worker", 2, cpus=8, memory=800, gpus=1), role("ps", 2, cpus=4, memory=400)])[0]
    assert (best.slot, best.slots) == (Need(12, 1200, 1), 2)


def test_small_replicas_share_a_slot():
    best = layouts([role("chief", cpus=4, memory=400), role("worker", 8, cpus=1, memory=100)])[0]
    assert (best.slot, best.slots) == (Need(4, 400, 0), 3)


def test_no_gpu_is_wasted():
    best = layouts([role("big", cpus=2, gpus=2), role("worker", 2, gpus=1), role("ps", 1)])[0]
    assert best.slots * best.slot.gpus == 4


def test_the_last_resort_is_everything_on_one_node():
    found = layouts([role("worker", 8, cpus=3), role("ps", 2, cpus=1)])
    assert (found[-1].slots, found[-1].slot.cpus) == (1, 26)


def test_cpus_are_whole_and_nothing_means_one():
    assert layouts([role("worker", cpus=0.5)])[0].slot.cpus == 1
    assert layouts([role("worker", cpus=2.1)])[0].slot.cpus == 3
    assert layouts([Role("worker", Program(), leads=True)])[0].slot == Need(1, 0, 0)


def test_memory_without_a_limit_beside_a_role_with_one():
    unlimited = Role("ps", Program(), resources=Resources.of(2))
    needs = layouts([role("worker", memory=300), unlimited])[0].needs
    assert needs == (Need(1, 300, 0), Need(2, 2048, 0))


def test_memory_is_a_whole_number_for_each_cpu():
    [only] = layouts([role("worker", cpus=3, memory=100)])
    assert (only.slot.memory, only.slot.memory_per_cpu) == (102, 34)


SIZES = st.tuples(
    st.integers(1, 20), st.integers(1, 16), st.integers(0, 4096), st.sampled_from([0, 0, 0, 1, 2, 4, 8])
)


@given(st.lists(SIZES, min_size=1, max_size=5))
def test_every_replica_fits_into_its_slot(sizes: list[tuple[int, int, int, int]]):
    roles = [role(f"r{number}", *size) for number, size in enumerate(sizes)]
    for layout in layouts(roles):
        assert [len(seats) for seats in layout.seats] == [size[0] for size in sizes]
        assert all(fits(layout, slot) for slot in range(layout.slots))
        assert layout.slots <= sum(size[0] for size in sizes)


def fits(layout: Layout, slot: int) -> bool:
    used = Need(0, 0, 0)
    for need, seats in zip(layout.needs, layout.seats, strict=True):
        used = used.plus(need.times(seats.count(slot)))
    # srun takes memory for each CPU, and so does the slot.
    room = Need(layout.slot.cpus, layout.slot.memory_per_cpu * layout.slot.cpus, layout.slot.gpus)
    return all(part <= whole for part, whole in zip(used, room, strict=True))


def test_a_large_gang_is_laid_out_quickly():
    found = layouts([role("chief"), role("worker", 5000, cpus=4, memory=900), role("ps", 500, cpus=2)])
    assert found[0].slots <= 5501
