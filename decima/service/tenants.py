"""Tenants of the service, with their quotas, weights, priorities and access tokens, from one YAML file.

A tenant is a group of applications, such as a team. A driver belongs to the tenant of its token; without a tenant in
the token, to the first tenant that its application's name matches; else to the tenant ``default``.
"""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from decima.service.credentials import FEWEST_CHARACTERS, MOST_CHARACTERS, Role, Token, Tokens, read_secret
from decima.service.protocol import Hello
from decima.service.service import DeniedError, ServeError, first_error
from decima.service.snapshot import NO_QUOTA, Share
from decima.settings import parse_yaml
from workloads.attributes import DEFAULT_TENANT
from workloads.errors import DecimaError

__all__ = ["Tenants", "read_tenants"]

Name = Annotated[str, StringConstraints(pattern=r"^[\w.-]{1,100}$")]
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
Weight = Annotated[float, Field(ge=1e-9, le=1e9)]
Slots = Annotated[int, Field(ge=1, le=NO_QUOTA)]


class _Declared(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class DeclaredPool(_Declared):
    """Share of a Spark pool within each application of a tenant; quota and minimum share are numbers of slots."""

    weight: Weight = 1.0
    min_share: Annotated[int, Field(ge=0, le=NO_QUOTA)] = 0
    quota: Slots | None = None


class DeclaredTenant(_Declared):
    """A tenant.

    Attributes:
        applications: patterns of its applications' names, such as ``nightly-*``.
        quota: maximum number of slots of all its applications.
        weight: share of the slots relative to tenants of the same priority.
        priority: tenants of a higher priority get slots first.
        pools: Spark's pools that its jobs may name; jobs of other pools count as jobs without a pool. None: any pool,
            with the weights and minimum shares of the driver.
    """

    applications: Annotated[tuple[Pattern, ...], Field(strict=False)] = ("*",)
    quota: Slots | None = None
    weight: Weight = 1.0
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    pools: dict[Name, DeclaredPool] | None = None


class DeclaredToken(_Declared):
    """An access token.

    Attributes:
        secret: text that a driver or an HTTP client sends.
        role: ``driver`` for the drivers' port, ``reader`` for page and metrics.
        tenant: tenant for which a driver may speak; None: the tenant that the application's name matches.
        requests_per_second: maximum rate; None: no maximum.
        expires: last day of validity, UTC; None: the token does not expire.
    """

    secret: Annotated[str, Field(min_length=FEWEST_CHARACTERS, max_length=MOST_CHARACTERS)]
    role: Role = "driver"
    tenant: str | None = None
    requests_per_second: Annotated[float, Field(gt=0)] | None = None
    expires: datetime.date | None = None


class Tenants(_Declared):
    """Content of the file: tenants and tokens by name."""

    tenants: dict[Name, DeclaredTenant] = Field(default_factory=dict)
    tokens: dict[Name, DeclaredToken] = Field(default_factory=dict)

    @property
    def shares(self) -> dict[str, Share]:
        """Share of the slots of each tenant."""
        return {
            name: Share(name, tenant.weight, quota=tenant.quota or NO_QUOTA, priority=tenant.priority)
            for name, tenant in self.tenants.items()
        }

    def access_tokens(self) -> Tokens | None:
        """Return the tokens that drivers need; None without any."""
        tokens = [
            Token.of(
                name,
                token.secret,
                per_second=token.requests_per_second or math.inf,
                expires=token.expires,
                role=token.role,
                tenant=token.tenant,
            )
            for name, token in self.tokens.items()
        ]
        return Tokens(tokens) if tokens else None

    def tenant_of(self, hello: Hello, token: Token | None) -> str:
        """Return the name of a driver's tenant.

        Raises:
            DeniedError: the tenant of the token has no application of this name.
        """
        bound = None if token is None else token.tenant
        for name, tenant in self.tenants.items() if bound is None else ((bound, self.tenants.get(bound)),):
            if tenant is not None and any(fnmatchcase(hello.name, each) for each in tenant.applications):
                return name
        if bound is not None:
            assert token is not None
            raise DeniedError(
                403,
                f"the token of {token.name} is not valid for an application of this name, {hello.name!r:.60}",
            )
        return DEFAULT_TENANT

    def pools_of(self, tenant: str) -> dict[str, Share] | None:
        """Return the shares of the pools that a tenant's jobs may name; None: any pool."""
        declared = self.tenants.get(tenant)
        if declared is None or declared.pools is None:
            return None
        return {
            name: Share(name, pool.weight, pool.min_share, pool.quota or NO_QUOTA)
            for name, pool in declared.pools.items()
        }

    def changes(self, earlier: Tenants) -> list[str]:
        """Describe the differences from an earlier declaration, one text each, without secrets."""
        before, after = (dict(_values(each.without_secrets())) for each in (earlier, self))
        return [
            f"{key}: {before.get(key, 'none')} -> {after.get(key, 'none')}"
            for key in sorted(before.keys() | after.keys())
            if before.get(key) != after.get(key)
        ]

    def without_secrets(self) -> dict[str, Any]:
        """Return all values, with digests in place of secrets."""
        values = self.model_dump(mode="json", exclude_none=True)
        for token in values["tokens"].values():
            token["secret"] = f"sha256:{hashlib.sha256(token['secret'].encode()).hexdigest()[:8]}"
        return values


def _values(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from _values(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)


def read_tenants(path: Path, with_tokens: bool, with_slots: bool) -> Tenants:
    """Read a file of tenants, which only its owner may read.

    Args:
        with_tokens: whether drivers need tokens of this file; otherwise it has none.
        with_slots: whether applications share slots; otherwise quota, weight and priority of a tenant are errors.

    Raises:
        ServeError: the file cannot be read, other users can read it, or it is malformed.
    """
    try:
        document = parse_yaml(read_secret(path), str(path))
        tenants = Tenants.model_validate({} if document is None else document)
    except ServeError:
        raise
    except ValidationError as error:
        raise ServeError(f"{path}: {first_error(error)}") from None  # never quotes a value
    except DecimaError as error:
        raise ServeError(str(error)) from None
    if problem := _problem(tenants, with_tokens, with_slots):
        raise ServeError(f"{path}: {problem}")
    return tenants


def _problem(tenants: Tenants, with_tokens: bool, with_slots: bool) -> str:
    """Return the first contradiction in a file, with its place; empty if there is none."""
    if with_tokens and not any(token.role == "driver" for token in tenants.tokens.values()):
        return "tokens: expected at least one for drivers (or --token-file, or --no-token)"
    if tenants.tokens and not with_tokens:
        return "tokens: not together with --token-file and --no-token"
    name_of: dict[str, str] = {}
    for name, token in tenants.tokens.items():
        if name_of.setdefault(token.secret, name) != name:
            return f"tokens.{name}: the same secret as {name_of[token.secret]}"
        if not token.secret.isprintable():
            return f"tokens.{name}.secret: expected printable characters"
        if token.tenant is not None and token.role == "reader":
            return f"tokens.{name}.tenant: a reader sees all tenants"
        if token.tenant is not None and token.tenant not in tenants.tenants:
            return f"tokens.{name}.tenant: {token.tenant!r:.60} is not among the tenants"
    for name, tenant in tenants.tenants.items():
        for key in ("quota", "weight", "priority"):
            if not with_slots and getattr(tenant, key) != DeclaredTenant.model_fields[key].default:
                return f"tenants.{name}.{key}: needs --slots, the number of slots that applications share"
    return ""
