"""Credentials of the service: files with secrets, TLS certificate, and access tokens with rate limits and expiry dates.

Drivers, and HTTP clients of page and metrics (``check_request``), send tokens.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import logging
import math
import os
import ssl
import stat
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Literal

from decima.service.service import DeniedError, ServeError
from workloads.reading import open_regular, read_bytes

__all__ = [
    "CHALLENGE", "Role", "Token", "Tokens", "certificate_end", "check_request", "load_certificate", "read_secret",
    "tls_reason",
]  # fmt: skip

#: Challenge to a client without a token. A browser then asks for a user name, which is ignored, and for a password,
#: which is the token.
CHALLENGE = 'Basic realm="decima", charset="UTF-8"'

log = logging.getLogger("decima.service")


def read_secret(path: Path) -> str:
    """Return the text of a file of tokens, which only its owner may read.

    A file of root may be readable by its group, too: so the service cannot write it.

    Raises:
        ServeError: the file cannot be read, is too large or not text, or other users can read it.
    """
    try:
        with TextIOWrapper(open_regular(path), encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            forbidden = 0o037 if status.st_uid == 0 != os.geteuid() else 0o077
            if stat.S_IMODE(status.st_mode) & forbidden:
                raise ServeError(f"{path}: other users can read this file of tokens: chmod 600 it")
            text = file.read(MOST_IN_FILE + 1)
    except UnicodeDecodeError:
        raise ServeError(f"{path}: this file of tokens is not text in UTF-8") from None
    except OSError as error:
        if isinstance(error, ServeError):
            raise
        raise ServeError(f"{path}: this file of tokens cannot be read: {error.strerror}") from None
    if len(text) > MOST_IN_FILE:
        raise ServeError(f"{path}: this file of tokens has more than {MOST_IN_FILE} characters")
    return text


def load_certificate(cert: Path, key: Path, *used: ssl.SSLContext) -> ssl.SSLContext:
    """Return the TLS context of the service, for TLS 1.2 or later.

    Args:
        cert: file of the certificate chain in PEM, beginning with the service's certificate.
        key: file of the certificate's private key in PEM, without a passphrase.
        used: contexts in use, whose new connections then have this certificate too.

    Raises:
        ServeError: a file cannot be read or is malformed, the key does not belong to the certificate, or every user
            can read the key.
    """
    for path in (cert, key):
        try:
            read_bytes(path, MOST_IN_FILE)  # OpenSSL itself would wait for a pipe and read a device
        except OSError as error:
            raise ServeError(f"{path}: cannot be read: {error.strerror}") from None
    if stat.S_IMODE(key.stat().st_mode) & stat.S_IROTH:
        raise ServeError(f"{key}: every user can read this key: chmod 600 it")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        for each in (context, *used):
            each.load_cert_chain(cert, key, password="")  # do not ask for the passphrase of an encrypted key
    except (OSError, ValueError) as error:
        raise ServeError(
            f"{cert}, {key}: not a certificate and its key in PEM: {tls_reason(error)}"
        ) from None
    return context


def certificate_end(cert: Path) -> datetime.datetime:
    """Return the end of validity of the first certificate in a PEM file, UTC.

    Raises:
        ServeError: the file cannot be read, or contains no certificate; or the library ``cryptography`` is missing.
    """
    try:
        from cryptography.x509 import load_pem_x509_certificate
    except ImportError:
        raise ServeError("--tls-cert needs cryptography: pip install -e '.[serve]'") from None
    try:
        return load_pem_x509_certificate(read_bytes(cert, MOST_IN_FILE)).not_valid_after_utc
    except OSError as error:
        raise ServeError(f"{cert}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise ServeError(f"{cert}: no certificate in PEM") from None


def tls_reason(error: Exception) -> str:
    """Return the reason of a TLS failure in one line, such as ``tlsv1 alert unknown ca``."""
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(reason or type(error).__name__).lower().replace("_", " ")


#: Minimum and maximum length of a token in a file of tokens, characters.
FEWEST_CHARACTERS, MOST_CHARACTERS = 16, 256
#: Maximum length of a file of tokens, characters, and of a file of certificates or keys, bytes.
MOST_IN_FILE = 1 << 20
Role = Literal["driver", "reader"]
#: What a token of each role is valid for.
_VALID_FOR = {"driver": "drivers", "reader": "page and metrics"}


@dataclass(frozen=True)
class Token:
    """Access token with its rate limit and expiry date; only a digest of its text is kept.

    Attributes:
        name: name of the token in messages.
        digest: SHA-256 of the token's text.
        per_second: maximum number of requests per second.
        expires: last day of validity, UTC; None: the token does not expire.
        role: whether the token is valid for drivers, or for page and metrics.
        tenant: name of the tenant for which a driver may speak; None: the token names none.
    """

    name: str
    digest: bytes
    per_second: float = math.inf
    expires: datetime.date | None = None
    role: Role = "driver"
    tenant: str | None = None

    @classmethod
    def of(cls, name: str, secret: str, **limits: object) -> Token:
        """Return a token with the text ``secret``; ``limits``: the other attributes."""
        return cls(name, _digest(secret), **limits)  # type: ignore[arg-type]


class Tokens:
    """Checks tokens and counts their requests. Thread-safe.

    Args:
        tokens: tokens of all roles.
        clock: returns monotonic time, s.
        today: returns the current date, UTC.
        role: role that a token must have.
    """

    def __init__(
        self,
        tokens: Sequence[Token],
        clock: Callable[[], float] = time.monotonic,
        today: Callable[[], datetime.date] = lambda: datetime.datetime.now(datetime.UTC).date(),
        role: Role = "driver",
    ) -> None:
        self._tokens, self._role = tokens, role
        self._clock, self._today = clock, today
        self._lock = threading.Lock()
        # Token bucket of each token: number of requests that are still allowed, and time of the last update, s.
        self._left = {token.name: (_burst(token), clock()) for token in tokens}

    def __reduce__(self) -> tuple[type[Tokens], tuple[Sequence[Token]]]:
        """Return a pickle. Each process counts its own requests."""
        return Tokens, (self._tokens,)

    @classmethod
    def of_readers(cls, token: str, tokens: Tokens | None) -> Tokens | None:
        """Return the tokens of page and metrics; None if drivers need none. The single ``token`` has both roles."""
        if tokens is not None:
            return cls(tokens._tokens, role="reader")
        return cls([Token.of("the token file", token, role="reader")], role="reader") if token else None

    def replace(self, other: Tokens) -> None:
        """Accept the tokens of ``other`` from now on; a token in both keeps its counted requests."""
        with self._lock:
            self._left = {
                **other._left,
                **{name: self._left[name] for name in other._left.keys() & self._left},
            }
            self._tokens = other._tokens

    def find(self, secret: str) -> Token:
        """Return the token with this text, in a time that does not depend on the correct characters.

        Raises:
            DeniedError: the token is unknown, has expired or has another role.
        """
        digest = _digest(secret)
        # Compare all tokens, so that the time does not depend on the token's line in the file.
        matching = [token for token in self._tokens if hmac.compare_digest(token.digest, digest)]
        if not matching:
            raise DeniedError(401, "wrong token: none of the service's tokens")
        self._check(matching[0])
        return matching[0]

    def count(self, token: Token) -> Token:
        """Count a request with a token, and return the token with its current limits.

        Bursts of up to one second's requests are allowed.

        Raises:
            DeniedError: the token has been removed, has expired, has another role or exceeds its rate limit.
        """
        same = [current for current in self._tokens if current.digest == token.digest]
        if not same:
            raise DeniedError(401, f"the token of {token.name} has been removed")
        [token] = same
        self._check(token)
        if math.isinf(token.per_second):
            return token
        with self._lock:
            now_s = self._clock()
            left, then_s = self._left[token.name]
            left = min(_burst(token), left + (now_s - then_s) * token.per_second)
            self._left[token.name] = (left - 1 if left >= 1 else left), now_s
        if left < 1:
            raise DeniedError(429, f"more than {token.per_second:g} requests per second of {token.name}")
        return token

    def _check(self, token: Token) -> None:
        if token.role != self._role:
            raise DeniedError(403, f"the token of {token.name} is for {_VALID_FOR[token.role]} only")
        if token.expires is not None and self._today() > token.expires:
            raise DeniedError(403, f"the token of {token.name} expired after {token.expires}")


def check_request(tokens: Tokens, authorization: str, peer: str, what: str) -> DeniedError | None:
    """Check the token of an HTTP request, count the request, and log a refusal.

    Args:
        authorization: value of the ``Authorization`` header: ``Bearer TOKEN``, or ``Basic`` with the token as password.
        peer: address of the client, for the log.
        what: name of the requested resource, for the log.

    Returns:
        Reason for a refusal; None if the request is allowed.
    """
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() == "basic":
        try:
            token = base64.b64decode(token, validate=True).decode().partition(":")[2]
        except ValueError:
            token = ""
    elif scheme.lower() != "bearer":
        token = ""
    try:
        tokens.count(tokens.find(token.strip()))
    except DeniedError as error:
        log.warning("%s refused at the %s: %s", peer, what, error)
        return error
    return None


def _burst(token: Token) -> float:
    return max(token.per_second, 1.0)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()
