# SPDX-License-Identifier: Apache-2.0
"""Tunnels: unix sockets of our own that lead to ports of pods.

gRPC wants an address. Each pod gets a socket in a folder that only we may enter, never a TCP
port, which any user of this machine could use. One thread moves the bytes of all tunnels.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import socket
import tempfile
import threading
import time
import weakref
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from igsdk._errors import IgsdkError
from igsdk.client.k8s.frames import ping
from igsdk.client.k8s.link import Link
from igsdk.client.k8s.way import Way

if TYPE_CHECKING:
    from collections.abc import Callable

#: macOS allows 103 bytes, Linux 107
_LONGEST_PATH = 103
_PING_SECONDS = 20.0
_FIRST_WORDS = 1.0
_NO_ROOM = 0.05


class Tunnel:
    """One pod's socket.

    Attributes:
        target: what to connect to.
        why: why the latest connection came to nothing or ended; "" where nothing was said.
    """

    def __init__(self, tunnels: Tunnels, path: Path, open_way: Callable[[], socket.socket]) -> None:
        self.target = f"unix://{path}"
        self.why = ""
        self._tunnels, self._path = tunnels, path
        self.open_way = open_way
        self._ready: deque[Way] = deque()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen(128)
        self.listener.setblocking(False)

    def prepare(self) -> str:
        """Opens a way now, which the next connection will take, so that the caller sees why
        there is none.

        Returns:
            Why it leads nowhere; "" as far as is known.

        Raises:
            IgsdkError: what `open_way` raises.
        """
        self.discard()
        way = Way(self.open_way())
        way.hear(_FIRST_WORDS)
        self.why = way.why
        if way.why:
            way.close()
        else:
            self._ready.append(way)
        return way.why

    def take(self) -> Way | None:
        """A way that was prepared, and is still of use."""
        with contextlib.suppress(IndexError):
            return self._ready.popleft()
        return None

    def discard(self) -> None:
        """Lets go of ways that nobody took."""
        while (way := self.take()) is not None:
            way.close()

    def close(self) -> None:
        """Takes no more connections; those there are end when one of their sides does, so
        that what a pod said last still comes."""
        self._tunnels.remove(self)

    def clear(self) -> None:
        self.discard()
        self.listener.close()
        with contextlib.suppress(OSError):
            self._path.unlink()


class Tunnels:
    """All tunnels of one target, their folder and their thread."""

    def __init__(self) -> None:
        self._folder = _folder()
        # For who ends without closing.
        self._clean = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._selector = selectors.DefaultSelector()
        self._tasks: deque[Callable[[], None]] = deque()
        self._links: dict[Link, Tunnel] = {}
        self._tunnels: set[Tunnel] = set()
        self._number = 0
        self._stopping = self._closed = False
        self._lock = threading.Lock()
        self._wake, self._woken = os.pipe()[::-1]
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        self._selector.register(self._woken, selectors.EVENT_READ, self._run_tasks)
        self._thread = threading.Thread(target=self._loop, name="igsdk-tunnels", daemon=True)
        self._thread.start()

    def add(self, open_way: Callable[[], socket.socket]) -> Tunnel:
        """A socket whose connections each get a way of their own.

        Args:
            open_way: called in threads of its own; raises IgsdkError.
        """
        with self._lock:
            self._number += 1
            tunnel = Tunnel(self, self._folder / str(self._number), open_way)
            self._tunnels.add(tunnel)
        self._do(lambda: self._listen(tunnel))
        return tunnel

    def remove(self, tunnel: Tunnel) -> None:
        with self._lock:
            known = tunnel in self._tunnels
            self._tunnels.discard(tunnel)
        if known:
            self._do(lambda: self._forget(tunnel))

    def close(self) -> None:
        """Ends all of it; nothing stays, neither thread nor socket nor folder."""
        self._do(self._stop)
        self._thread.join()
        with self._lock:
            left, self._tunnels, closed = self._tunnels, set(), self._closed
            self._closed = True
        if closed:
            return
        self._run_tasks(0)  # such as ways that were opened too late, to be closed
        for tunnel in left:
            tunnel.clear()
        os.close(self._wake)
        os.close(self._woken)
        self._clean()

    def _do(self, task: Callable[[], None]) -> bool:
        """Has the thread do something; whether it will."""
        with self._lock:
            if self._closed:
                return False
            self._tasks.append(task)
            with contextlib.suppress(BlockingIOError):  # then it is being woken already
                os.write(self._wake, b"\0")
            return True

    def _stop(self) -> None:
        self._stopping = True

    def _loop(self) -> None:
        pinged = time.monotonic()
        while not self._stopping:
            for key, events in self._selector.select(_PING_SECONDS):
                key.data(events)
            for link in [link for link in self._links if link.done]:
                self._drop(link)
            if time.monotonic() - pinged >= _PING_SECONDS:
                pinged = time.monotonic()
                for link in list(self._links):
                    link.push(ping())
        for link in list(self._links):
            self._drop(link)
        self._selector.close()

    def _run_tasks(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)
        while self._tasks:
            self._tasks.popleft()()

    def _listen(self, tunnel: Tunnel) -> None:
        if self._stopping:
            return
        self._selector.register(
            tunnel.listener, selectors.EVENT_READ, lambda _: self._accept(tunnel)
        )

    def _accept(self, tunnel: Tunnel) -> None:
        try:
            local, _ = tunnel.listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # it went again
        except OSError:
            time.sleep(_NO_ROOM)  # no more files: it stays to be accepted, and we would spin
            return
        local.setblocking(False)
        link = Link(self._selector, local, lambda: self._find_way(tunnel, link))
        self._links[link] = tunnel

    def _find_way(self, tunnel: Tunnel, link: Link) -> None:
        """The client spoke: now it needs a way (one that only knocks gets none)."""
        if (way := tunnel.take()) is not None:
            link.begin(way)
            return
        opener = threading.Thread(
            target=self._open, args=(tunnel, link), name="igsdk-open", daemon=True
        )
        opener.start()

    def _open(self, tunnel: Tunnel, link: Link) -> None:
        try:
            way = Way(tunnel.open_way())
        except IgsdkError as error:
            tunnel.why = str(error)
            self._do(link.end)
            return
        if not self._do(lambda: link.begin(way)):
            way.close()

    def _drop(self, link: Link) -> None:
        tunnel = self._links.pop(link)
        tunnel.why = link.close() or tunnel.why

    def _forget(self, tunnel: Tunnel) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(tunnel.listener)
        tunnel.clear()


def _folder() -> Path:
    """A folder for nobody but us (0700), whose path leaves room for a socket's name."""
    folder = Path(tempfile.mkdtemp(prefix="igsdk-"))
    if len(os.fsencode(folder)) + len("/1234567") > _LONGEST_PATH:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="igsdk-", dir="/tmp"))
    return folder
