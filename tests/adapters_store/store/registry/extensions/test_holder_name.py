"""The names of processes that hold trainings and batches."""

from peltier_store.registry import create_holder_name


def test_no_two_holders_have_one_name() -> None:
    """Also with the same host name and process id, as containers may have."""
    names = {create_holder_name() for _ in range(3)}
    assert len(names) == 3
    assert len({name.rpartition(":")[0] for name in names}) == 1
