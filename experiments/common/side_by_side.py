"""Several trainings at the same time, each in a thread.

Of a small model XLA compiles for longer than it trains, and to compile takes a core and not Python's lock. The calling
thread is one of the workers, so that a signal reaches a training that saves upon it; those of other threads go on to
their end, and leave a save for every minute (config.train.checkpoint.every_minutes) if they can't.
"""

import queue as queues
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

WORKERS = 2
"""Of studies whose trainings are many and short: small machines have two cores.

What comes out does not depend on it. It does on how many cores the machine has, by rounding.
"""

Item = TypeVar("Item")


def in_threads(job: Callable[[Item], None], items: Iterable[Item], workers: int) -> None:
    """Calls `job` of every item, in order, `workers` at a time.

    After one that raises no other is begun; what was raised first is raised again once all that had begun are done.
    """
    queue, errors = queues.SimpleQueue(), []
    for item in items:
        queue.put(item)

    def work():
        while not errors:
            try:
                job(queue.get_nowait())
            except queues.Empty:
                return
            except BaseException as error:  # KeyboardInterrupt, and what a signal raises, end the others too
                errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(workers - 1)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
