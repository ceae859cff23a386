"""Jobs side by side: each once, several at a time, and no new one after one that failed."""

import threading

import pytest

from experiments.common.side_by_side import in_threads


def test_one_worker_is_the_caller_and_keeps_the_order():
    done = []
    in_threads(lambda item: done.append((item, threading.current_thread())), range(4), workers=1)
    assert done == [(item, threading.current_thread()) for item in range(4)]


def test_two_workers_do_two_at_a_time_the_caller_among_them():
    both, done = threading.Barrier(2, timeout=20), []

    def job(item):
        both.wait()  # which one alone never passes
        done.append((item, threading.current_thread()))

    in_threads(job, range(6), workers=2)
    assert sorted(item for item, _ in done) == list(range(6))
    assert len({thread for _, thread in done}) == 2 and threading.current_thread() in {thread for _, thread in done}


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
@pytest.mark.parametrize("workers", [1, 2])
def test_what_fails_is_raised_and_ends_the_others(error, workers):
    begun = []

    def job(item):
        begun.append(item)
        raise error

    with pytest.raises(type(error)):
        in_threads(job, range(10), workers)
    assert len(begun) <= workers
