"""Ed25519 signatures in plain Python (RFC 8032 §5.1).

Made for a key that lives for one report: it is not constant in time, which matters only where someone can
time many signatures of the same key. Keeps true: the vectors of RFC 8032 §7.1 (see the tests).
"""

from __future__ import annotations

import hashlib

P = 2**255 - 19
# Order of the base point.
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
BASE_Y = 4 * pow(5, -1, P) % P
# Extended coordinates (X, Y, Z, T) with x = X/Z, y = Y/Z, xy = T/Z.
Point = tuple[int, int, int, int]
NEUTRAL: Point = (0, 1, 1, 0)


def public_key(secret: bytes) -> bytes:
    """The public key of a 32-byte secret."""
    scalar, _ = _expand(secret)
    return _encode(_multiply(scalar, BASE))


def sign(secret: bytes, message: bytes) -> bytes:
    """The 64-byte signature of a message."""
    scalar, prefix = _expand(secret)
    public = _encode(_multiply(scalar, BASE))
    r = _hash(prefix, message)
    commitment = _encode(_multiply(r, BASE))
    s = (r + _hash(commitment, public, message) * scalar) % L
    return commitment + s.to_bytes(32, "little")


def _expand(secret: bytes) -> tuple[int, bytes]:
    digest = hashlib.sha512(secret).digest()
    scalar = int.from_bytes(digest[:32], "little") & ((1 << 254) - 8) | (1 << 254)
    return scalar, digest[32:]


def _hash(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % L


def _add(one: Point, other: Point) -> Point:
    a = (one[1] - one[0]) * (other[1] - other[0]) % P
    b = (one[1] + one[0]) * (other[1] + other[0]) % P
    c = 2 * one[3] * other[3] * D % P
    d = 2 * one[2] * other[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def _multiply(scalar: int, point: Point) -> Point:
    result = NEUTRAL
    while scalar:
        if scalar & 1:
            result = _add(result, point)
        point = _add(point, point)
        scalar >>= 1
    return result


def _encode(point: Point) -> bytes:
    inverse = pow(point[2], -1, P)
    x, y = point[0] * inverse % P, point[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _even_x(y: int) -> int:
    """The even x of a point with this y (RFC 8032 §5.1.3)."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    return P - x if x & 1 else x


_BASE_X = _even_x(BASE_Y)
BASE: Point = (_BASE_X, BASE_Y, 1, _BASE_X * BASE_Y % P)
