"""A proxy between simulators and a run, and the weather in it: bytes that come late, or never."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from typing import Self


class Proxy:
    """Passes bytes on in both directions, from an address of its own; all links alike."""

    def __init__(self, to: str, seed: int = 0) -> None:
        self.delay = 0.0  # seconds that each piece takes, at the most
        self.refuses = False  # whoever connects is cut at once
        self.swallows = False  # nothing arrives any more, and nobody is told
        self.left: int | None = None  # bytes until everything is cut; None: it is not
        self._to = _host_and_port(to)
        self._chance = random.Random(seed)
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._passes = asyncio.Event()
        self._passes.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        made = asyncio.start_server(self._link, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(made, self._loop).result()
        port = self._server.sockets[0].getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._server.close)
        self.cut()
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Cut every link."""
        self._do(self._cut)

    def hold(self) -> None:
        """Hold back whatever comes."""
        self._do(self._passes.clear)

    def let_go(self) -> None:
        """Pass on what was held back, and what comes."""
        self._do(self._passes.set)

    def _do(self, what: Callable[[], None]) -> None:
        async def now() -> None:
            what()

        asyncio.run_coroutine_threadsafe(now(), self._loop).result()

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, and the one behind it."""
        task = asyncio.current_task()
        assert task is not None, "a link is a task"
        self._tasks.add(task)
        ends = [writer]
        try:
            if self.refuses:
                return
            there, behind = await asyncio.open_connection(*self._to)
            ends.append(behind)
            self._writers.update(ends)
            await asyncio.gather(self._pass(reader, behind), self._pass(there, writer))
        except (OSError, asyncio.CancelledError):
            return  # it is cut: that is what this is for
        finally:
            for end in ends:
                end.transport.abort()
            self._writers.difference_update(ends)
            self._tasks.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            await self._passes.wait()
            if self.delay:
                await asyncio.sleep(self._chance.uniform(0, self.delay))
            if self.swallows:
                continue
            if self.left is not None:
                data = data[: self.left]
                self.left -= len(data)
            writer.write(data)
            if self.left == 0:
                self.left = None
                self._cut()
        raise ConnectionResetError("one side has closed")


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return host, int(port)
