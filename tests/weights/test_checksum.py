"""Checksums of sources beside published values, and headers that announce them, also wrong ones."""

from __future__ import annotations

import hashlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxtool.urls import identity, is_url, redacted
from maxtool.weights.remote.announced import ALGORITHMS, LISTS, SINGLE, announced
from maxtool.weights.remote.checksum import DIGITS, GIT, KINDS, Checksum, computable, strongest

# Of the text 123456789: the check values of https://reveng.sourceforge.io/crc-catalogue/, those of
# sha1sum and its kin, and git hash-object.
PUBLISHED = {
    "SHA-512": "d9e6762dd1c8eaf6d61b3c6192fc408d4d6d5f1176d0c29169bc24e71c3f274a"
    "d27fcd5811b313d681f7e55ec02d73d499c95455b6b5bb503acf574fba8ffe85",
    "SHA-256": "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
    GIT: "e2e107ac61ac259b87c544f6e7a4eb03422c6c21",
    "SHA-1": "f7c3bc1d808e04732adf679965ccc34ca7ae3441",
    "MD5": "25f9e794323b453885f5181f1b624d0b",
    "CRC-32C": "e3069283",
    "CRC-32": "cbf43926",
}
NAMES = st.sampled_from([*LISTS, *SINGLE, "etag", "x-amz-request-id", "x-amz-checksum-type"])
VALUES = st.text(max_size=40) | st.builds(
    "{}={}".format, st.sampled_from([*ALGORITHMS]), st.sampled_from(["AA==", ":AAAA:", "%", "é"])
)


@pytest.mark.parametrize("kind", KINDS)
def test_published_values(kind: str) -> None:
    if kind == "CRC-32C":
        pytest.importorskip("google_crc32c")
    assert Checksum(kind, PUBLISHED[kind]).fits(b"123456789")
    assert not Checksum(kind, PUBLISHED[kind]).fits(b"123456780")
    assert len(PUBLISHED[kind]) == DIGITS[kind]


@given(st.lists(st.binary(max_size=9), max_size=4))
def test_parts_are_counted_one_after_the_other(parts: list[bytes]) -> None:
    whole = b"".join(parts)
    values = {
        "SHA-256": hashlib.sha256(whole).hexdigest(),
        "CRC-32": f"{zlib.crc32(whole):08x}",
        GIT: hashlib.sha1(b"blob %d\0" % len(whole) + whole).hexdigest(),  # noqa: S324
    }
    for kind, value in values.items():
        running = Checksum(kind, value).begun(len(whole))
        for part in parts:
            running.update(part)
        assert running.hexdigest() == value


def test_the_strongest_that_can_be_computed_is_taken() -> None:
    every = [Checksum(kind, value) for kind, value in PUBLISHED.items()]
    assert strongest(every) == every[0]
    assert strongest(every[3:]) == every[3]
    assert strongest([]) is None
    assert computable([Checksum("MD5", "00"), every[1]]) == [every[1]]


@given(st.dictionaries(NAMES, VALUES), st.binary(max_size=1))
def test_any_headers_are_read(headers: dict[str, str], first: bytes) -> None:
    found = announced(headers, first, 9)
    assert found is None or len(found.value) == DIGITS[found.kind]


@pytest.mark.parametrize(
    ("etag", "kind", "is_whole"),
    [
        (f'"{"0" * 32}"', None, True),
        (f'"{"0" * 32}"', "COMPOSITE", False),
        (f'"{"0" * 32}-2"', "FULL_OBJECT", True),
        (f'"{"0" * 32}-2"', "COMPOSITE", False),
        (f'"{"0" * 32}-2"', None, False),  # as of stores that have no such header
    ],
)
def test_checksums_of_parts_are_not_taken(etag: str, kind: str | None, is_whole: bool) -> None:
    headers = {"etag": etag, "x-amz-checksum-crc32": "t8rAwQ=="}
    if kind is not None:
        headers["x-amz-checksum-type"] = kind
    found = announced(headers, b"", 9)
    assert found == (Checksum("CRC-32", "b7cac0c1") if is_whole else None)


@given(st.text(max_size=60))
def test_any_text_can_be_redacted(text: str) -> None:
    for url in (text, f"https://{text}"):
        if is_url(url):
            assert identity(url).startswith(redacted(url))


def test_who_asks_makes_no_other_file() -> None:
    plain = identity("s3://bucket/x")
    assert plain == identity("s3://key:secret@bucket/x?X-Amz-Signature=1#a") == "s3://bucket/x"
    other = identity("https://host/x?file=1&sig=2")
    assert other == identity("https://host/x?file=1&sig=3")
    assert identity("https://host/x?key=1") != identity("https://host/x?key=2"), "of an object"
    assert len({plain, other, identity("https://host/x"), identity("https://host/x?file=2")}) == 4
    assert "file" not in other
