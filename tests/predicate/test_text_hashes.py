"""Hashes of texts: the same for ever, since state is stored by them, however the texts lie in memory."""

import hashlib
import random

import pyarrow as pa
import pytest

from watersmeet.predicate.numbers import LONG, hashes

ALL = 2**64 - 1


def mix(bits: int) -> int:
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & ALL
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & ALL
    return bits ^ bits >> 31


def plainly(text: bytes) -> int:
    """The hash of a text as it is defined: eight bytes at a time, the first the lowest."""
    if len(text) > LONG:
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    code = mix(len(text) + 1)
    for at in range(0, len(text), 8):
        code = mix(code * 0x9E3779B97F4A7C15 & ALL ^ int.from_bytes(text[at : at + 8], "little"))
    return code


@pytest.mark.parametrize("seed", range(20))
def test_texts_have_the_hashes_that_they_always_had(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [0, 1, 7, 8, 9, 16, 36, LONG - 1, LONG, LONG + 1]
    texts = [rng.randbytes(rng.choice(sizes)) for _ in range(30)]
    begin, end = sorted(rng.choices(range(len(texts) + 1), k=2))
    code = hashes(pa.array(texts, pa.binary()).slice(begin, end - begin))
    assert code.tolist() == [plainly(text) for text in texts[begin:end]]
