"""A write-ahead log: records that are on the disk before `append` returns.

Each record is a frame (magic, length, CRC of both) and a sealed archive. A process that dies while it writes leaves the
beginning of a record, which is dropped when the log is read; any other damage is refused, for it would lose records
that were acknowledged.
"""

import contextlib
import io
import os
import struct
import zlib
from typing import Any

import numpy as np

from jaxbounds.storage import packed, sync_folder, unpack

_MAGIC = b"jbLR"
_FRAME = struct.Struct("<4sQ")
_FRAME_SIZE = _FRAME.size + 4


def _framed(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    body = packed("record", content, arrays)
    head = _FRAME.pack(_MAGIC, len(body))
    return head + struct.pack("<I", zlib.crc32(head)) + body


def read(path: str) -> tuple[list[tuple[dict[str, Any], dict[str, np.ndarray]]], int]:
    """(records, bytes they take); ValueError if anything but a beginning of the last record is wrong."""
    with open(path, "rb") as file:
        data = memoryview(file.read())
    records, at = [], 0
    while len(data) - at >= _FRAME_SIZE:
        head, check = bytes(data[at : at + _FRAME.size]), bytes(data[at + _FRAME.size : at + _FRAME_SIZE])
        magic, size = _FRAME.unpack(head)
        if magic != _MAGIC or struct.pack("<I", zlib.crc32(head)) != check:
            raise ValueError(_damaged(path, at))
        if at + _FRAME_SIZE + size > len(data):
            break
        try:
            records.append(unpack(io.BytesIO(data[at + _FRAME_SIZE : at + _FRAME_SIZE + size]), "record"))
        except ValueError as error:
            raise ValueError(_damaged(path, at)) from error
        at += _FRAME_SIZE + size
    return records, at


def _damaged(path: str, at: int) -> str:
    return (
        f"path: the log {path} is damaged at byte {at}; if the machine lost power while that record was written, it "
        f"was never acknowledged, and cutting the log to {at} bytes repairs it"
    )


class Journal:
    """A log that this process alone writes.

    Args:
        path: of the log. identity: of what it belongs to. fresh: to start one; otherwise it must be there.
    """

    def __init__(self, path: str, identity: str, fresh: bool = False):
        self.path = path
        if not fresh and not os.path.exists(path):
            raise ValueError(f"path: the log {path} is missing; pushes that were acknowledged may be in it")
        if fresh and os.path.exists(path):
            if len(read(path)[0]) > 1:
                raise FileExistsError(f"path: the log {path} exists; remove it, or choose another path")
            os.unlink(path)  # of a monitor whose process died before it was there
        self._process = os.getpid()
        self._handle: Any = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(self._handle, path)
            self.records, self._end = read(path)
            self._check(identity)
            os.ftruncate(self._handle, self._end)
            if not self.records:
                self.append({"log": identity}, {})
                sync_folder(os.path.dirname(os.path.abspath(path)))
                self.records = [({"log": identity}, {})]
        except BaseException:
            self.close()
            raise
        self._start = len(_framed(*self.records[0]))

    def _check(self, identity: str) -> None:
        if self.records and self.records[0][0] != {"log": identity}:
            raise ValueError(f"path: the log {self.path} belongs to another monitor; remove it, or take another path")

    @property
    def size(self) -> int:
        """Bytes in use."""
        return self._end

    def append(self, content: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Write a record; it is on the disk when this returns. After a failure the log is as it was."""
        if self._handle is None:
            raise ValueError("this monitor was closed, or its log could not be written; load it again")
        if os.getpid() != self._process:
            raise ValueError("this monitor writes its log in the process that opened it; this is a copy made by fork")
        data = memoryview(_framed(content, arrays))
        try:
            os.lseek(self._handle, self._end, os.SEEK_SET)
            while data:
                data = data[os.write(self._handle, data) :]
            os.fsync(self._handle)
        except BaseException:
            try:
                os.ftruncate(self._handle, self._end)
            except OSError:
                self.close()  # what is in the file now is only known after reading it again
            raise
        self._end = os.lseek(self._handle, 0, os.SEEK_CUR)

    def restart(self) -> None:
        """Forget all records: a snapshot holds them."""
        os.ftruncate(self._handle, self._start)
        self._end = self._start
        os.fsync(self._handle)

    def close(self) -> None:
        """Let others open it."""
        if self._handle is not None:
            with contextlib.suppress(OSError):
                os.close(self._handle)
        self._handle = None


def _lock(handle: int, path: str) -> None:
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ValueError(f"path: {path} is open in another monitor; call its close() first") from error
