"""Certificates for tests of TLS, made by the program openssl."""

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

__all__ = ["Pair", "make_ca", "make_certificate", "needs_openssl", "trusting"]

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the program openssl")


class Pair(NamedTuple):
    """Files in PEM of a certificate and its key."""

    cert: Path
    key: Path


def make_ca(folder: Path, name: str = "ca") -> Pair:
    """Make a certificate authority."""
    return _make(folder, name)


def make_certificate(folder: Path, ca: Pair, name: str = "localhost", *names: str) -> Pair:
    """Make a certificate for these subject alternative names (``DNS:localhost`` and ``IP:127.0.0.1`` if none)."""
    wanted = ",".join(names or ("DNS:localhost", "IP:127.0.0.1"))
    signed = ("-CA", str(ca.cert), "-CAkey", str(ca.key), "-addext", "basicConstraints=critical,CA:FALSE")
    return _make(folder, name, *signed, "-addext", f"subjectAltName={wanted}")


def _make(folder: Path, name: str, *options: str) -> Pair:
    pair = Pair(folder / f"{name}.pem", folder / f"{name}.key")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(pair.key))
    command = ("openssl", "req", "-x509", *key, "-out", str(pair.cert), "-days", "2", "-subj", f"/CN={name}")
    subprocess.run([*command, *options], check=True, capture_output=True)
    pair.key.chmod(0o600)
    return pair


def trusting(ca: Pair) -> ssl.SSLContext:
    """Return the context of a client that trusts this certificate authority only."""
    return ssl.create_default_context(cafile=str(ca.cert))
