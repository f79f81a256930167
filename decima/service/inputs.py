"""Files that can be replaced while the service runs: policy, token or tenants, and certificate."""

from __future__ import annotations

import datetime
import hashlib
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from decima.policy.shipped import SHIPPED
from decima.registry import LEARNED, make_scheduler, policy_named
from decima.service.server import read_token
from decima.service.service import ServeError
from workloads.reading import read_bytes

if TYPE_CHECKING:
    from decima.service.credentials import Tokens
    from decima.service.tenants import Tenants
    from simulator.cluster.episode import DecidesStages

__all__ = ["Inputs", "private_folder", "read_inputs"]

#: Maximum size of a policy file, bytes.
LARGEST = 1 << 28
#: A certificate that ends within this time causes a warning.
WARNING_TIME = datetime.timedelta(days=14)

log = logging.getLogger("decima.service")


@dataclass(frozen=True)
class Inputs:
    """Contents of the files; picklable.

    Attributes:
        make_scheduler: returns a new scheduler. It does not depend on later changes of the policy file.
        token: secret that drivers must send; empty: drivers need none.
        tokens: access tokens with limits, instead of ``token``.
        tenants: tenants with their shares; None: all drivers are equal.
        certificate: files of certificate and private key; None: connections are not encrypted.
        certificate_end: end of the certificate's validity, UTC.
        policy_sha256: SHA-256 of the policy file, hexadecimal; empty for a rule.
        sha256: path of each file -> SHA-256 of its content, hexadecimal; without the file of a shipped policy.
    """

    make_scheduler: Callable[[], DecidesStages]
    token: str = ""
    tokens: Tokens | None = None
    tenants: Tenants | None = None
    certificate: tuple[Path, Path] | None = None
    certificate_end: datetime.datetime | None = None
    policy_sha256: str = ""
    sha256: Mapping[str, str] = field(default_factory=dict)


def read_inputs(
    scheduler: str,
    token_file: Path | None,
    tenants_file: Path | None,
    certificate: tuple[Path, Path] | None,
    folder: Path | None,
    has_tokens: bool = False,
    has_slots: bool = False,
) -> Inputs:
    """Read the policy file, the token or the tenants with their tokens, and the certificate.

    Args:
        scheduler: name of the scheduler.
        token_file: file with one token; None: drivers need none.
        tenants_file: file of tenants; None: all drivers are equal.
        certificate: files of certificate and private key; None: no encryption.
        folder: private folder for a copy of the policy file, so that all schedulers have the same policy; None: there
            is no copy, and a changed file is used for new drivers without a reload.
        has_tokens: whether drivers need a token of the file of tenants, instead of ``token_file``.
        has_slots: whether applications share slots, which quotas, weights and priorities of tenants need.

    Raises:
        ServeError: a file cannot be read or is malformed.
        SchedulerError: there is no such scheduler, or its policy file is malformed.
    """
    make_scheduler(scheduler)  # its error names the policy file, not the copy
    tenants = ends = None
    if tenants_file is not None:
        from decima.service.tenants import read_tenants

        tenants = read_tenants(tenants_file, has_tokens, has_slots)
    if certificate is not None:
        from decima.service.credentials import certificate_end, load_certificate

        load_certificate(*certificate)
        ends = certificate_end(certificate[0])
        left = ends - datetime.datetime.now(datetime.UTC)
        if left < WARNING_TIME:
            verb = "ends" if left > datetime.timedelta() else "ended"
            log.warning("the certificate %s %s on %s", certificate[0], verb, f"{ends:%Y-%m-%d %H:%M} UTC")
    fixed, digest = _copied(scheduler, folder)
    token = "" if token_file is None else read_token(token_file)
    files = (token_file and token_file.expanduser(), tenants_file, *(certificate or ()))
    digests = {str(path): hashlib.sha256(read_bytes(path, LARGEST)).hexdigest() for path in files if path}
    if digest and (path := policy_named(scheduler)) is not None and path not in SHIPPED:
        digests[path] = digest
    tokens = None if tenants is None else tenants.access_tokens()
    return Inputs(partial(make_scheduler, fixed), token, tokens, tenants, certificate, ends, digest, digests)


@contextmanager
def private_folder() -> Iterator[Path | None]:
    """Yield a temporary folder of this user; None, with a warning, if no temporary folder is writable."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="decima-")
    except OSError as error:
        log.warning("no temporary folder for a copy of the policy file: %s", error)
        yield None
        return
    with folder as path:
        yield Path(path)


def _copied(scheduler: str, folder: Path | None) -> tuple[str, str]:
    """Return the scheduler's name with a copy of its policy file, and the file's digest; empty without a file."""
    if (policy := policy_named(scheduler)) is None:
        return scheduler, ""
    path = SHIPPED.get(policy, Path(policy))
    if path.is_dir():
        from decima.policy.file_format import POLICY

        path /= POLICY
    try:
        data = read_bytes(path, LARGEST)
        digest = hashlib.sha256(data).hexdigest()
        if policy in SHIPPED or folder is None:
            return scheduler, digest
        copy = folder / f"{digest}.npz"
        copy.write_bytes(data)
    except OSError as error:
        raise ServeError(f"{path}: cannot be read or copied: {error.strerror or error}") from None
    return scheduler.replace(f"{LEARNED}:{policy}", f"{LEARNED}:{copy}", 1), digest
