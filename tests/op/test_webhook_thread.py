"""What answers the API server runs in a thread of its own, so that no other work keeps a pod's creation waiting."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from berth_operator.runtime.loop_threads import LoopThread
from waiting import soon


@pytest.fixture
def loop_thread() -> Iterator[LoopThread]:
    thread = LoopThread("test")
    thread.start()
    yield thread
    thread.stop()
    assert not thread.is_alive


async def name_of_thread() -> str:
    return threading.current_thread().name


@pytest.mark.asyncio
async def test_work_is_done_there_and_its_result_comes_back(loop_thread: LoopThread) -> None:
    assert await loop_thread.run(name_of_thread()) == "test"


@pytest.mark.asyncio
async def test_what_is_raised_there_is_raised_here(loop_thread: LoopThread) -> None:
    async def fail() -> None:
        raise ValueError("no address")

    with pytest.raises(ValueError, match="no address"):
        await loop_thread.run(fail())


@pytest.mark.asyncio
async def test_it_goes_on_while_the_loop_that_asked_is_held_up(loop_thread: LoopThread) -> None:
    ticks: list[int] = []

    async def tick() -> None:
        for number in range(5):
            ticks.append(number)
            await asyncio.sleep(0.01)

    running = asyncio.ensure_future(loop_thread.run(tick()))
    await asyncio.sleep(0)
    soon("the other loop goes on", lambda: len(ticks) == 5)  # this one is held up meanwhile
    await running


def test_what_is_called_soon_is_done_there(loop_thread: LoopThread) -> None:
    names: list[str] = []
    done = threading.Event()

    def note() -> None:
        names.append(threading.current_thread().name)
        done.set()

    loop_thread.call_soon(note)
    assert done.wait(30)
    assert names == ["test"]


def test_one_that_never_ran_can_be_stopped() -> None:
    LoopThread("never").stop()


@pytest.mark.asyncio
async def test_what_still_waits_is_cancelled_at_the_end() -> None:
    thread = LoopThread("test")
    thread.start()
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def begin() -> asyncio.Task[None]:
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        return task

    task = await thread.run(begin())
    thread.stop()
    assert cancelled.is_set()
    assert task.cancelled()
