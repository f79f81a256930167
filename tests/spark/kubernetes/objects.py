"""Objects of the Kubernetes API as Spark uses them: selectors, patches, and a store with a history for watches."""

import asyncio
import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

#: A resource, as in the JSON of the API.
Resource = dict[str, Any]
#: Plural in the path -> kind.
KINDS = {
    "pods": "Pod", "services": "Service", "configmaps": "ConfigMap", "secrets": "Secret",
    "persistentvolumeclaims": "PersistentVolumeClaim",
}  # fmt: skip


class ApiError(Exception):
    """An error of the API; its arguments are HTTP status, reason, and message."""

    def status(self) -> Resource:
        """Return the error as the API writes it."""
        code, reason, message = self.args
        failure = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
        return {**failure, "reason": reason, "message": message, "code": code}


def now() -> str:
    """Return the time as the API writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def selects(labels: str, fields: str, resource: Resource) -> bool:
    """Return whether a label selector and a field selector match a resource; empty selectors match all."""
    own = resource["metadata"].get("labels") or {}
    terms = re.findall(r"(!?)([\w./-]+)\s*(?:(==|=|!=)\s*([\w./-]*)|(in|notin)\s*\(([^)]*)\))?(?:,|$)", labels)
    for absent, key, sign, value, member, values in terms:
        if member:
            met = (own.get(key) in re.split(r"\s*,\s*", values.strip())) == (member == "in")
        elif sign:
            met = (own.get(key) == value) == (sign != "!=")
        else:
            met = (key in own) == (not absent)
        if not met:
            return False
    for term in filter(None, fields.split(",")):
        path, sign, value = re.split(r"(==|!=|=)", term, maxsplit=1)
        found: Any = resource
        for part in path.split("."):
            found = (found or {}).get(part)
        if (found == value) != (sign != "!="):
            return False
    return True


def patched(resource: Any, patch: Any) -> Any:
    """Return a copy of a resource with a merge patch (a dict) or a JSON patch (a list)."""
    if isinstance(patch, list):
        out = json.loads(json.dumps(resource))
        for each in patch:
            *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in each["path"].split("/")[1:])
            place = out
            for part in parents:
                place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
            if isinstance(place, list):
                raise ApiError(422, "Invalid", f"patches of lists are not supported: {each}")
            if each["op"] == "remove":
                place.pop(last, None)
            elif each["op"] in ("add", "replace"):
                place[last] = each["value"]
        return out
    if not isinstance(patch, dict):
        return patch
    out = dict(resource) if isinstance(resource, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = patched(out.get(key), value)
    return out


@dataclass
class Store:
    """All resources of a cluster. Each change has a number, its resource version, and is kept for watches.

    Attributes:
        version: version of the last change.
        oldest: watches from an earlier version are refused, as after a compaction.
    """

    version: int = 0
    oldest: int = 0
    _resources: dict[tuple[str, str, str], Resource] = field(default_factory=dict)
    _history: list[tuple[int, str, str, Resource]] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def create(self, plural: str, namespace: str, resource: Resource) -> Resource:
        """Add a resource."""
        metadata = resource["metadata"]
        if "name" not in metadata:
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        key = plural, namespace, metadata["name"]
        if key in self._resources:
            raise ApiError(409, "AlreadyExists", f'{plural} "{key[2]}" already exists')
        metadata.update(uid=str(uuid.uuid4()), creationTimestamp=now(), namespace=namespace)
        self._resources[key] = resource
        self.changed("ADDED", plural, resource)
        return resource

    def get(self, plural: str, namespace: str, name: str) -> Resource:
        """Return a resource."""
        try:
            return self._resources[plural, namespace, name]
        except KeyError:
            raise ApiError(404, "NotFound", f'{plural} "{name}" not found') from None

    def select(self, plural: str, namespace: str, query: Mapping[str, str]) -> list[Resource]:
        """Return the resources that the selectors of a query match, in order of creation."""
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        return [
            resource
            for (kind, place, _), resource in self._resources.items()
            if kind == plural and place == namespace and selects(labels, fields, resource)
        ]

    def update(self, plural: str, namespace: str, name: str, changed: Resource) -> Resource:
        """Change a resource, except its status, which only its controller changes."""
        resource = self.get(plural, namespace, name)
        resource.update({key: value for key, value in changed.items() if key != "status"})
        self.changed("MODIFIED", plural, resource)
        return resource

    def every(self, plural: str) -> list[Resource]:
        """Return all resources of a kind, in order of creation."""
        return [resource for (kind, _, _), resource in self._resources.items() if kind == plural]

    def has(self, plural: str, resource: Resource) -> bool:
        """Return whether a resource still exists."""
        metadata = resource["metadata"]
        return (plural, metadata["namespace"], metadata["name"]) in self._resources

    def remove(self, plural: str, resource: Resource) -> None:
        """Remove a resource."""
        metadata = resource["metadata"]
        self._resources.pop((plural, metadata["namespace"], metadata["name"]))
        self.changed("DELETED", plural, resource)

    def changed(self, event: str, plural: str, resource: Resource) -> None:
        """Record a change that has been made."""
        self.version += 1
        resource["metadata"]["resourceVersion"] = str(self.version)
        self._history.append((self.version, plural, event, json.loads(json.dumps(resource))))

        async def notify() -> None:
            async with self._changed:
                self._changed.notify_all()

        self._waking = asyncio.get_running_loop().create_task(notify())

    def since(self, version: int, plural: str, namespace: str, query: Mapping[str, str]) -> Iterator[Resource]:
        """Yield the events of a watch after a version."""
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        for number, kind, event, resource in self._history[max(version, 0) :]:
            assert number > version
            here = kind == plural and resource["metadata"]["namespace"] == namespace
            if here and selects(labels, fields, resource):
                yield {"type": event, "object": resource}

    async def wait(self, version: int) -> None:
        """Wait for a change after a version."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.version > version)
