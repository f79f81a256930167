"""TLS certificate of the service, and reasons of TLS failures."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

from decima.service.errors import ServeError

__all__ = ["load_certificate", "tls_reason"]


def load_certificate(cert: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS context of the service, for TLS 1.2 or later.

    Args:
        cert: file of the certificate chain in PEM, beginning with the service's certificate.
        key: file of the certificate's private key in PEM, without a passphrase.

    Raises:
        ServeError: a file cannot be read or is malformed, the key does not belong to the certificate, or every user
            can read the key.
    """
    for path in (cert, key):
        try:
            path.open("rb").close()
        except OSError as error:
            raise ServeError(f"{path}: cannot be read: {error.strerror}") from None
    if stat.S_IMODE(key.stat().st_mode) & stat.S_IROTH:
        raise ServeError(f"{key}: every user can read this key: chmod 600 it")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key, password="")  # do not ask for the passphrase of an encrypted key
    except (OSError, ValueError) as error:
        raise ServeError(
            f"{cert}, {key}: not a certificate and its key in PEM: {tls_reason(error)}"
        ) from None
    return context


def tls_reason(error: Exception) -> str:
    """Return the reason of a TLS failure in one line, such as ``tlsv1 alert unknown ca``."""
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(reason or type(error).__name__).lower().replace("_", " ")
