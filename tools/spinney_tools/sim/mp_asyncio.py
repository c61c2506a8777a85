"""MicroPython's `asyncio` on a virtual board: a scheduler of its own, so that who blocks blocks one mote."""

from __future__ import annotations

import heapq
import itertools
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .board import Board

_Work = Coroutine[Any, Any, Any]


class CancelledError(BaseException):
    """As MicroPython's."""


class TimeoutError(Exception):  # noqa: A001 - its name in MicroPython
    """As MicroPython's."""


class _Wait:
    """What a task gives way for: `arm` is told how to wake it."""

    def __init__(self, arm: Callable[[Callable[[], None]], None]) -> None:
        self._arm = arm

    def __await__(self) -> Generator[_Wait, None, None]:
        yield self

    def arm(self, wake: Callable[[], None]) -> None:
        self._arm(wake)


class Task:
    """One coroutine that runs beside others."""

    def __init__(self, scheduler: Scheduler, work: _Work) -> None:
        self._scheduler = scheduler
        self._work = work
        self._round = 0
        self._cancelled = False
        self._is_done = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._waiting: list[Callable[[], None]] = []
        scheduler.ready.append((self, 0))

    def done(self) -> bool:
        return self._is_done

    def cancel(self) -> bool:
        if self._is_done:
            return False
        self._cancelled = True
        self._wake(self._round)
        return True

    def _wake(self, number: int) -> None:
        if number == self._round:
            self._round += 1
            self._scheduler.ready.append((self, self._round))
            self._scheduler.board.wake()

    def step(self, number: int) -> None:
        """Runs to where it gives way next."""
        if number != self._round or self._is_done:
            return
        try:
            if self._cancelled:
                self._cancelled = False
                wait = self._work.throw(CancelledError())
            else:
                wait = self._work.send(None)
        except StopIteration as end:
            self._end(end.value, None)
        except CancelledError as error:
            self._end(None, error)
        except Exception as error:  # noqa: BLE001 - it is raised again by who awaits the task, or reported
            self._end(None, error)
        else:
            round_ = self._round
            wait.arm(lambda: self._wake(round_))

    def _end(self, result: Any, error: BaseException | None) -> None:
        self._is_done, self._result, self._error = True, result, error
        if isinstance(error, Exception) and not self._waiting and self is not self._scheduler.main:
            self._scheduler.board.report(error)
        for wake in self._waiting:
            wake()

    def __await__(self) -> Generator[_Wait, None, Any]:
        if not self._is_done:
            yield from _Wait(self._waiting.append).__await__()
        if self._error is not None:
            raise self._error
        return self._result


class Scheduler:
    """Runs the tasks of one board in its fiber."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.ready: deque[tuple[Task, int]] = deque()
        self.main: Task | None = None
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.current: Task | None = None

    def run(self, work: _Work) -> Any:
        main = self.main = Task(self, work)
        while not main.done():
            self._turn()
        return _result(main)

    def _turn(self) -> None:
        for _ in range(len(self.ready)):
            task, number = self.ready.popleft()
            self.current = task
            task.step(number)
        now_s = self.board.seconds()
        while self._timers and self._timers[0][0] <= now_s + 1e-9:
            heapq.heappop(self._timers)[2]()
        if not self.ready and not (self.main and self.main.done()):
            self.board.sleep(self._timers[0][0] - now_s if self._timers else float("inf"), can_wake=True)

    def at(self, seconds: float, wake: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (self.board.seconds() + max(0.0, seconds), next(self._numbers), wake))

    async def sleep(self, seconds: float) -> None:
        await _Wait(lambda wake: self.at(seconds, wake))

    async def wait_for(self, work: _Work | Task, seconds: float | None) -> Any:
        task = work if isinstance(work, Task) else Task(self, work)
        if seconds is None:
            return await task
        if not task.done():

            def arm(wake: Callable[[], None]) -> None:
                task._waiting.append(wake)
                self.at(seconds, wake)

            await _Wait(arm)
        if not task.done():
            task.cancel()
            raise TimeoutError
        return await task

    async def gather(self, *works: _Work | Task, return_exceptions: bool = False) -> list[Any]:
        results: list[Any] = []
        for task in [work if isinstance(work, Task) else Task(self, work) for work in works]:
            try:
                results.append(await task)
            except Exception as error:
                if not return_exceptions:
                    raise
                results.append(error)
        return results


def _result(task: Task) -> Any:
    if task._error is not None:
        raise task._error
    return task._result


class _Event:
    """Event; and ThreadSafeFlag, which one waiter clears."""

    clears = False

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[Callable[[], None]] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()

    def clear(self) -> None:
        self._is_set = False

    async def wait(self) -> bool:
        while not self._is_set:
            await _Wait(self._waiting.append)
        if self.clears:
            self._is_set = False
        return True


class _ThreadSafeFlag(_Event):
    clears = True


class _Lock:
    def __init__(self) -> None:
        self._is_locked = False
        self._waiting: deque[Callable[[], None]] = deque()

    def locked(self) -> bool:
        return self._is_locked

    async def acquire(self) -> bool:
        while self._is_locked:
            await _Wait(self._waiting.append)
        self._is_locked = True
        return True

    def release(self) -> None:
        self._is_locked = False
        if self._waiting:
            self._waiting.popleft()()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_error: object) -> None:
        self.release()


def module(board: Board) -> types.ModuleType:
    """The `asyncio` of one boot."""
    scheduler = Scheduler(board)
    made = types.ModuleType("asyncio")
    made.__dict__.update(
        CancelledError=CancelledError,
        TimeoutError=TimeoutError,
        Event=_Event,
        ThreadSafeFlag=_ThreadSafeFlag,
        Lock=_Lock,
        Task=Task,
        run=scheduler.run,
        create_task=lambda work: Task(scheduler, work),
        current_task=lambda: scheduler.current,
        sleep=scheduler.sleep,
        sleep_ms=lambda ms: scheduler.sleep(ms / 1000),
        wait_for=scheduler.wait_for,
        wait_for_ms=lambda work, ms: scheduler.wait_for(work, ms / 1000),
        gather=scheduler.gather,
    )
    return made
