"""Checksums of files in the headers of an answer, as web servers and object stores send them.

``Repr-Digest`` is of RFC 9530, ``Digest`` of RFC 3230; the other headers are documented by their
stores: https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html,
https://cloud.google.com/storage/docs/xml-api/reference-headers#xgooghash,
https://learn.microsoft.com/rest/api/storageservices/get-blob.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping

from maxtool.weights.remote.checksum import Checksum, computable, strongest

# Algorithms by the names that headers have for them.
ALGORITHMS: Mapping[str, str] = {
    "sha-512": "SHA-512",
    "sha-256": "SHA-256",
    "sha": "SHA-1",
    "md5": "MD5",
    "crc32c": "CRC-32C",
}
LISTS = ("repr-digest", "digest", "x-goog-hash")
SINGLE: Mapping[str, str] = {
    "content-md5": "MD5",
    "x-ms-blob-content-md5": "MD5",
    "x-amz-checksum-sha256": "SHA-256",
    "x-amz-checksum-sha1": "SHA-1",
    "x-amz-checksum-crc32c": "CRC-32C",
    "x-amz-checksum-crc32": "CRC-32",
}
# What S3's ETag of an object that was put in one piece is, unless another key encrypts it.
MD5 = re.compile(r'"?([0-9a-f]{32})"?')
# And of one that was put in parts: the MD5 of their MD5s, and how many they were.
OF_PARTS = re.compile(r'"?([0-9a-f]{32})-(\d+)"?')
OWN_KEYS = ("x-amz-server-side-encryption-customer-algorithm",)
PLAIN = (None, "AES256")


def announced(headers: Mapping[str, str], first: bytes, size: int) -> Checksum | None:
    """The checksum of a whole file that an answer to a request for its first byte tells, if any.

    ``headers`` are by names in small letters. A checksum of that byte alone tells nothing.
    """
    found = computable([*_told(headers), *etag_of_s3(headers)])
    whole = [one for one in found if len(first) == size or not first or not one.fits(first)]
    return strongest(whole)


def etag_of_s3(headers: Mapping[str, str]) -> list[Checksum]:
    """The MD5 that the ETag of an object in S3 is; none where it is something else."""
    match = MD5.fullmatch(headers.get("etag", ""))
    encrypted = headers.get("x-amz-server-side-encryption") not in PLAIN
    if not match or encrypted or "x-amz-request-id" not in headers or headers.keys() & {*OWN_KEYS}:
        return []
    return [Checksum("MD5", match[1])]


def of_base64(kind: str, text: str) -> list[Checksum]:
    """The checksum that a text has in base64; none if it has none."""
    try:
        return [Checksum(kind, base64.b64decode(text, validate=True).hex())]
    except (binascii.Error, ValueError):
        return []


def _told(headers: Mapping[str, str]) -> Iterator[Checksum]:
    """The checksums of the headers that have nothing else."""
    for name in LISTS:
        if name == "x-goog-hash" and headers.get("x-goog-stored-content-encoding") == "gzip":
            continue  # of the compressed file
        for item in headers.get(name, "").split(","):
            algorithm, _, value = item.strip().partition("=")
            if kind := ALGORITHMS.get(algorithm.lower()):
                yield from of_base64(kind, value.strip().strip(":"))
    for name, kind in SINGLE.items():
        value = headers.get(name, "")
        if value and not (name.startswith("x-amz-") and _is_of_parts(headers)):
            yield from of_base64(kind, value)


def _is_of_parts(headers: Mapping[str, str]) -> bool:
    """Return whether a checksum that S3 tells is that of the checksums of an object's parts.

    Of an object that was put in parts, which its ETag shows, it is unless the store says otherwise.
    """
    kind = headers.get("x-amz-checksum-type", "").upper()
    is_parted = bool(OF_PARTS.fullmatch(headers.get("etag", "")))
    return kind == "COMPOSITE" or (is_parted and kind != "FULL_OBJECT")
