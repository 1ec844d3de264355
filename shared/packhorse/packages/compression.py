"""Zstd frames, made and read in constant memory, never beyond the declared length (R30).

Several frames behind each other are read as one, as zstd's own tools do.
"""

import threading
from collections.abc import Iterable, Iterator
from typing import IO, cast

import zstandard

from packhorse.packages.limits import PackageCorrupt

_LEVEL = 3
_CHUNK_BYTES = 128 * 1024
AT_ONCE_BYTES = 1024**2
"""What is no longer is made and read in one piece, which costs less than a stream."""
_PIECE_BYTES = 1024
"""A block of zstd takes 4 bytes at least and unfolds to 128 KiB at most: 32 MiB a piece."""
_WINDOW_BYTES = 8 * 1024**2
"""Largest history that a frame may ask its reader to keep."""

_OWN = threading.local()
"""Each thread's contexts: making one costs more than a small body."""


def compress(data: bytes) -> bytes:
    """Return `data` as one frame that names its length."""
    return _compressor().compress(data)


def compress_stream(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield one frame of all chunks."""
    frame = zstandard.ZstdCompressor(level=_LEVEL).chunker(chunk_size=_CHUNK_BYTES)
    for chunk in chunks:
        yield from frame.compress(chunk)
    yield from frame.finish()  # type: ignore[no-untyped-call]


def content_of(frames: bytes, content_length: int) -> Iterable[bytes]:
    """Return what `decompress_stream` does of frames in memory, in one piece where that is small.

    A frame may claim any length and gets memory for that, so no claim above 1 MiB is believed.
    """
    try:
        if (
            0 < content_length <= AT_ONCE_BYTES
            and zstandard.frame_content_size(frames) == content_length
        ):
            return [_decompressor().decompress(frames, allow_extra_data=False)]
    except zstandard.ZstdError as error:
        raise PackageCorrupt(f"the body is no zstd frame: {error}") from error
    return decompress_stream([frames], content_length)


def decompress_stream(chunks: Iterable[bytes], content_length: int) -> Iterator[bytes]:
    """Yield the content of frames, and raise `PackageCorrupt` unless it has `content_length`.

    Takes every chunk, also those behind the last frame, so that a digest over them is complete.
    """
    source = _File(chunks)
    reader = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES).stream_reader(
        cast(IO[bytes], source), read_across_frames=True
    )
    length = 0
    try:
        while data := reader.read(_CHUNK_BYTES):
            length += len(data)
            if length > content_length:
                break
            yield data
    except zstandard.ZstdError as error:
        raise PackageCorrupt(f"the body is no zstd frame: {error}") from error
    if length != content_length:
        raise PackageCorrupt(
            f"the body does not hold the {content_length} bytes that the package declares"
        )
    source.drain()


def decompress_up_to(chunks: Iterable[bytes], most: int) -> Iterator[bytes]:
    """Yield the content of whole frames whose length is not known, at most `most` bytes.

    Raises `PackageCorrupt` for more, for a frame that is cut short, and for what is no frame.
    """
    context = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
    frame = context.decompressobj()
    length = 0
    try:
        for rest in _pieces(chunks):
            while rest:
                if frame.eof:
                    frame = context.decompressobj()
                data = frame.decompress(rest)
                length += len(data)
                if length > most:
                    raise PackageCorrupt(f"the body holds more than {most} bytes")
                if data:
                    yield data
                rest = frame.unused_data  # noqa: PLW2901 - the beginning of the next frame
    except zstandard.ZstdError as error:
        raise PackageCorrupt(f"the body is no zstd frame: {error}") from error
    if not frame.eof:
        raise PackageCorrupt("the body does not end with a whole zstd frame")


def _pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Cut chunks so small that what one of them unfolds to lies in memory easily."""
    for chunk in chunks:
        for start in range(0, len(chunk), _PIECE_BYTES):
            yield chunk[start : start + _PIECE_BYTES]


def _compressor() -> zstandard.ZstdCompressor:
    if not hasattr(_OWN, "compressor"):
        _OWN.compressor = zstandard.ZstdCompressor(level=_LEVEL)
    compressor: zstandard.ZstdCompressor = _OWN.compressor
    return compressor


def _decompressor() -> zstandard.ZstdDecompressor:
    if not hasattr(_OWN, "decompressor"):
        _OWN.decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
    decompressor: zstandard.ZstdDecompressor = _OWN.decompressor
    return decompressor


class _File:
    """A stream of chunks as the file that the decompressor reads from."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes, none at the end."""
        if not self._rest:
            self._rest = next((chunk for chunk in self._chunks if chunk), b"")
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def drain(self) -> None:
        """Take what is left."""
        for _ in self._chunks:
            pass
