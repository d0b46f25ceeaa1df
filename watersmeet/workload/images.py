"""Camera streams and the pixel similarity of the PSP paper (section 8: images of 5k, 10k and 20k pixels).

An image is the RGB bytes of its pixels. Each shows one of a few scenes with its own noise, so that images of one scene
are similar and all others are not: with ten scenes about one pair in ten matches.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Ints, Mask
from watersmeet.workload.tuples import START, TIME, arrivals

Bytes = NDArray[np.uint8]

THRESHOLD = 16
"""Two images are similar when the mean absolute difference of their bytes is below this."""

NOISE = 12
"""Noise changes a byte of an image by at most this much; two of one scene then differ by 8 or 9 on average."""

_BLOCK_BYTES = 64 << 20
_CACHE_BYTES = 256 << 10


def images(
    rate: float,
    seconds: float,
    pixels: int,
    rng: np.random.Generator,
    *,
    scenes: int = 10,
    place: int = 0,
    start: int = START,
) -> pa.Table:
    """A camera's stream: `id` (int64, from 0), `ts` (Poisson arrivals) and `img` (binary, three bytes a pixel).

    Args:
        rate: Mean number of images a second.
        seconds: Length of the stretch of event time.
        pixels: Pixels of an image.
        rng: Source of arrivals, of the choice of scene and of noise.
        scenes: Number of different scenes; a pair of images is similar with probability `1 / scenes`.
        place: The place the cameras look at: streams of one place, size and number of scenes show the same scenes.
        start: First moment of the stretch of event time, in microseconds since the epoch.

    Raises:
        ValueError: If there are no pixels or no scenes, or the rate or the length is negative.
    """
    if pixels < 1 or scenes < 1:
        raise ValueError(f"Images need at least one pixel and one scene, got {pixels} pixels and {scenes} scenes.")
    times = arrivals(rate, seconds, rng, start)
    looks = make_scenes(scenes, pixels, place)
    step = max(1, _BLOCK_BYTES // (3 * pixels))
    blocks = [_binary(_photograph(looks, min(step, len(times) - first), rng)) for first in range(0, len(times), step)]
    return pa.table(
        {
            "id": pa.array(np.arange(len(times), dtype=np.int64)),
            "ts": pa.array(times).cast(TIME),
            "img": pa.chunked_array(blocks, pa.binary()),
        }
    )


def make_scenes(scenes: int, pixels: int, place: int = 0) -> Bytes:
    """Return the scenes of a place, one a row of `3 * pixels` bytes: random gradients with rectangles.

    Any two differ by at least twice `THRESHOLD`, as a mean over their bytes. The same arguments give the same scenes.

    [!] Draws until enough differ: may not end for many scenes of few pixels.

    Args:
        scenes: How many, at least 1.
        pixels: Pixels of each, at least 1.
        place: The seed, with the two others.
    """
    rng = np.random.default_rng((place, pixels, scenes))
    pictures: list[Bytes] = []
    while len(pictures) < scenes:
        picture = _picture(pixels, rng)
        if not (pictures and differences(picture, pictures).min() < 2 * THRESHOLD * 3 * pixels):
            pictures.append(picture)
    return np.stack(pictures)


def shape(pixels: int) -> tuple[int, int]:
    """Height and width of an image with a number of pixels, as nearly square as possible."""
    height = next(h for h in range(int(pixels**0.5), 0, -1) if pixels % h == 0)
    return height, pixels // height


def similar(x: bytes, ys: Sequence[bytes] | NDArray[np.object_]) -> Mask:
    """Which of `ys` are similar to the image `x`: mean absolute difference of all bytes below `THRESHOLD`.

    It compares every byte, as the paper's user-defined function does, and is exact: sums are whole numbers.

    >>> similar(bytes([10, 10, 10]), [bytes([0, 0, 10]), bytes([0, 50, 10])]).tolist()
    [True, False]
    """
    return similar_rows(np.frombuffer(x, np.uint8), [np.frombuffer(y, np.uint8) for y in ys])


def similar_rows(x: Bytes, ys: Bytes | Sequence[Bytes]) -> Mask:
    """`similar` for images that are arrays already, such as the rows of `matrix`."""
    mask: Mask = differences(x, ys) < THRESHOLD * len(x)
    return mask


def differences(x: Bytes, ys: Bytes | Sequence[Bytes]) -> Ints:
    """The sum of absolute differences of the bytes of `x` and of each of `ys`, all of one length."""
    totals = np.empty(len(ys), np.int64)
    # Unsigned bytes throughout (a wider type would cost twice the time), in blocks that stay in the processor's cache.
    step = max(1, _CACHE_BYTES // max(1, len(x)))
    larger, smaller = np.empty((2, min(step, len(ys)), len(x)), np.uint8)
    for first in range(0, len(ys), step):
        block = ys[first : first + step]
        for row, y in enumerate(block):
            np.maximum(x, y, out=larger[row])
            np.minimum(x, y, out=smaller[row])
        high, low = larger[: len(block)], smaller[: len(block)]
        np.subtract(high, low, out=high)
        totals[first : first + len(block)] = high.sum(axis=1, dtype=np.uint32)
    return totals


def matrix(column: pa.Array) -> Bytes:
    """The images of an Arrow binary column as the rows of one array, without a copy.

    Raises:
        ValueError: If one is NULL, or they differ in size.
    """
    if len(column) == 0:
        return np.empty((0, 0), np.uint8)
    large = pa.types.is_large_binary(column.type)
    _, offsets, content = column.buffers()
    ends = np.frombuffer(offsets, np.int64 if large else np.int32)[column.offset : column.offset + len(column) + 1]
    size = int(ends[1] - ends[0])
    if column.null_count or not (np.diff(ends) == size).all():
        raise ValueError("The images of a matrix must all be present and of one size.")
    flat = np.frombuffer(content, np.uint8)[ends[0] : ends[-1]]
    return flat.reshape(len(column), size)


def _picture(pixels: int, rng: np.random.Generator) -> Bytes:
    """Return the pixels of a random picture: a vertical gradient behind six plain rectangles."""
    height, width = shape(pixels)
    down = np.linspace(0.0, 1.0, height)[:, None, None]
    top, bottom = rng.uniform(0, 255, (2, 3))
    canvas = np.broadcast_to(top * (1 - down) + bottom * down, (height, width, 3)).astype(np.uint8)
    for _ in range(6):
        y, x = rng.integers(0, height), rng.integers(0, width)
        canvas[y : y + height // 2 + 1, x : x + width // 2 + 1] = rng.integers(0, 256, 3)
    return canvas.reshape(-1)


def _photograph(looks: Bytes, count: int, rng: np.random.Generator) -> Bytes:
    """`count` noisy pictures of scenes chosen at random."""
    pictures = looks[rng.integers(0, len(looks), count)].astype(np.int16)
    pictures += rng.integers(-NOISE, NOISE + 1, pictures.shape, np.int16)
    return np.clip(pictures, 0, 255).astype(np.uint8)


def _binary(rows: Bytes) -> pa.Array:
    count, size = rows.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(size)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(rows)])
