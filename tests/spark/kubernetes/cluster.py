"""A Kubernetes cluster for Spark: API server, scheduler with a capacity, and pods that are processes of this machine.

It serves unmodified Spark in client mode (``k8s://http://127.0.0.1:PORT``): create, list, watch, patch and delete pods
and other resources, with resource versions, selectors, and graceful deletion. It has no authentication, no kubelet, no
network policy and no images.
"""

import asyncio
import copy
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple, Self

from aiohttp import web

from tests.spark.harness import spark_environment, spark_home
from tests.spark.kubernetes.objects import KINDS, ApiError, Resource, Store, now, patched

#: Time between two looks at the processes of pods, s.
POLL_S = 0.1
#: A process that gets SIGTERM is killed after this time, s.
GRACE_S = 30.0
ENDED = ("Succeeded", "Failed")


class Call(NamedTuple):
    """A request: its time in seconds since 1970, method, path with its query, and the status of the answer."""

    time_s: float
    method: str
    path: str
    status: int


class PodChange(NamedTuple):
    """A change of a pod: time in seconds since 1970, application, pod, its phase, and the numbers of pods after it.

    Attributes:
        pods: pods that have not ended.
        placed: of these, pods that occupy a slot.
    """

    time_s: float
    application: str
    pod: str
    phase: str
    pods: int
    placed: int


class Kubernetes:
    """A cluster with a fixed number of slots; a context manager. Pods beyond the slots stay pending.

    Args:
        folder: folder for the logs of the pods and of the API server.
        slots: number of pods that the nodes can hold at once.

    Attributes:
        calls: all requests.
        changes: all changes of pods.
        image_missing: whether the pods that are placed from now on never start.
        late_s: time from "Running" to the start of the process, for pods that start from now on, s.
    """

    def __init__(self, folder: Path, slots: int) -> None:
        folder.mkdir(parents=True)
        self.folder, self.slots = folder, slots
        self.calls: list[Call] = []
        self.changes: list[PodChange] = []
        self.image_missing = False
        self.late_s = 0.0
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._deleted_s: dict[str, float] = {}
        self._placed: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watches: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="kubernetes")

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for process in self._processes.values():
            process.kill()
            process.wait()

    @property
    def master(self) -> str:
        """Value of ``spark.master``."""
        return f"k8s://http://127.0.0.1:{self.port}"

    def pods(self) -> list[Resource]:
        """Return all pods that have not ended."""

        async def live() -> list[Resource]:
            return copy.deepcopy(self._live())

        pods: list[Resource] = self._do(live())
        return pods

    def evict(self, name: str) -> None:
        """Evict a pod, as a node under pressure does: it fails, and its process gets SIGTERM."""

        async def evict() -> None:
            pod = next(pod for pod in self._live() if pod["metadata"]["name"] == name)
            pod["status"].update(phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
            if process := self._processes.get(name):
                process.terminate()
            self._note(pod)

        self._do(evict())

    def drop_watches(self, compact: bool = False) -> None:
        """Close all watches, as API servers do now and then; ``compact``: forget the versions before now."""

        async def drop() -> None:
            if compact:
                self._store.oldest = self._store.version
            for watch in self._watches:
                watch.cancel()

        self._do(drop())

    def log(self, pod: str) -> str:
        """Return the output of a pod."""
        return (self.folder / f"{pod}.log").read_text(errors="replace")

    # ---- in the thread of the server

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self) -> None:
        self._store = Store()
        application = web.Application()
        application.router.add_route("*", "/api/v1/namespaces/{namespace}/{plural}", self._answer)
        application.router.add_route("*", "/api/v1/namespaces/{namespace}/{plural}/{name}", self._answer)
        application.router.add_route("*", "/{other:.*}", self._answer)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port: int = self._runner.addresses[0][1]
        self._spawn(self._kubelet())

    async def _stop(self) -> None:
        for task in [*self._tasks, *self._watches]:
            task.cancel()
        await self._runner.cleanup()

    def _live(self) -> list[Resource]:
        return [pod for pod in self._store.every("pods") if pod["status"]["phase"] not in ENDED]

    def _note(self, pod: Resource) -> None:
        """Record a change of a pod, and place pending pods in the slots that it frees."""
        name, phase = pod["metadata"]["name"], pod["status"]["phase"]
        present = self._store.has("pods", pod)
        if not present or phase in ENDED:
            self._placed.discard(name)
        if present:
            self._store.changed("MODIFIED", "pods", pod)
        application = (pod["metadata"].get("labels") or {}).get("spark-app-name", "")
        self.changes.append(
            PodChange(
                time.time(), application, name, phase if present else "Deleted", len(self._live()), len(self._placed)
            )
        )
        for other in self._live():
            if len(self._placed) >= self.slots:
                return
            if other["metadata"]["name"] not in self._placed:
                self._placed.add(other["metadata"]["name"])
                self._spawn(self._run(other))

    async def _run(self, pod: Resource) -> None:
        name, status = pod["metadata"]["name"], pod["status"]
        names = [container["name"] for container in pod["spec"]["containers"]]
        status["conditions"] = [{"type": "PodScheduled", "status": "True"}]
        if self.image_missing:
            state: Resource = {"waiting": {"reason": "ImagePullBackOff"}}
        else:
            state = {"running": {"startedAt": now()}}
            status.update(phase="Running", podIP="127.0.0.1", startTime=now())
        status["containerStatuses"] = [
            {"name": each, "ready": "running" in state, "restartCount": 0, "image": "", "imageID": "", "state": state}
            for each in names
        ]
        self._note(pod)
        if not self.image_missing:
            await asyncio.sleep(self.late_s)
            if self._store.has("pods", pod) and status["phase"] == "Running" and name not in self._deleted_s:
                self._processes[name] = start_executor(pod, self.folder)

    async def _kubelet(self) -> None:
        """Report processes that have ended, and complete deletions."""
        while True:
            await asyncio.sleep(POLL_S)
            for pod in self._store.every("pods"):
                name, status = pod["metadata"]["name"], pod["status"]
                process = self._processes.get(name)
                ended = None if process is None else process.poll()
                if ended is not None and status["phase"] == "Running":
                    status["phase"] = "Failed" if ended else "Succeeded"
                    for container in status["containerStatuses"]:
                        container["state"] = {"terminated": {"exitCode": ended, "finishedAt": now()}}
                    self._note(pod)
                if name in self._deleted_s:
                    if process is not None and ended is None:
                        if time.monotonic() - self._deleted_s[name] > GRACE_S:
                            process.kill()
                        continue
                    self._store.remove("pods", pod)
                    del self._deleted_s[name]
                    self._note(pod)

    # ---- requests

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        status = 200
        try:
            if "plural" not in request.match_info or request.match_info["plural"] not in KINDS:
                raise ApiError(404, "NotFound", f"{request.path} is not served")
            if request.query.get("watch") in ("true", "1"):
                return await self._watch(request)
            status = 201 if request.method == "POST" else 200
            return web.json_response(await self._act(request), status=status)
        except ApiError as error:
            status = error.args[0]
            return web.json_response(error.status(), status=status)
        finally:
            call = Call(time.time(), request.method, request.path_qs, status)
            self.calls.append(call)
            with (self.folder / "api.log").open("a") as file:
                file.write(f"{call.time_s:.3f} {call.method} {call.path} {call.status}\n")

    async def _act(self, request: web.Request) -> Resource:
        plural = request.match_info["plural"]
        where = plural, request.match_info["namespace"]
        name = request.match_info.get("name")
        match request.method, name:
            case "POST", None:
                resource = await request.json()
                if plural == "pods":
                    resource["status"] = {"phase": "Pending"}
                self._store.create(*where, resource)
                if plural == "pods":
                    self._note(resource)
                return resource  # type: ignore[no-any-return]
            case "GET", None:
                version = {"resourceVersion": str(self._store.version)}
                listed = {"kind": f"{KINDS[plural]}List", "apiVersion": "v1", "metadata": version}
                return {**listed, "items": self._store.select(*where, request.query)}
            case "DELETE", None:
                for resource in self._store.select(*where, request.query):
                    self._delete(plural, resource)
                return {"kind": "Status", "apiVersion": "v1", "status": "Success"}
            case "GET", str(name):
                return self._store.get(*where, name)
            case "DELETE", str(name):
                resource = self._store.get(*where, name)
                self._delete(plural, resource)
                return resource
            case "PATCH" | "PUT", str(name):
                body = await request.json()
                whole = request.method == "PUT"
                return self._store.update(*where, name, body if whole else patched(self._store.get(*where, name), body))
        raise ApiError(405, "MethodNotAllowed", f"{request.method} {request.path}")

    def _delete(self, plural: str, resource: Resource) -> None:
        name = resource["metadata"]["name"]
        if plural != "pods":
            self._store.remove(plural, resource)
        elif name not in self._deleted_s:
            self._deleted_s[name] = time.monotonic()
            resource["metadata"]["deletionTimestamp"] = now()
            if process := self._processes.get(name):
                process.terminate()
            self._note(resource)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        where = request.match_info["plural"], request.match_info["namespace"]
        version = int(request.query.get("resourceVersion") or self._store.version)
        if 0 < version < self._store.oldest:
            raise ApiError(410, "Expired", f"too old resource version: {version}")
        send: Callable[[str], Coroutine[Any, Any, None]]
        socket = web.WebSocketResponse()
        response: web.StreamResponse = socket
        if socket.can_prepare(request):
            await socket.prepare(request)
            send = socket.send_str
        else:
            response = plain = web.StreamResponse(headers={"Content-Type": "application/json"})
            await plain.prepare(request)

            async def send(text: str) -> None:
                await plain.write(text.encode() + b"\n")

        async def follow() -> None:
            seen = version
            if seen == 0:  # any version: all that exist, then changes
                seen = self._store.version
                for resource in self._store.select(*where, request.query):
                    await send(json.dumps({"type": "ADDED", "object": resource}))
            while True:
                until = self._store.version
                for event in self._store.since(seen, *where, request.query):
                    await send(json.dumps(event))
                seen = until
                await self._store.wait(seen)

        watch = self._loop.create_task(follow())
        self._watches.add(watch)
        try:
            await asyncio.wait(
                [watch, *([self._loop.create_task(_ended(socket))] if response is socket else [])],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            watch.cancel()
            self._watches.discard(watch)
        return response


async def _ended(socket: web.WebSocketResponse) -> None:
    async for _ in socket:
        pass


def start_executor(pod: Resource, folder: Path) -> subprocess.Popen[bytes]:
    """Start the process of an executor's pod, as the entry point of Spark's image does."""
    [container] = pod["spec"]["containers"]
    values = {each["name"]: each.get("value") or "" for each in container["env"]}
    command = [f"{spark_environment()['JAVA_HOME']}/bin/java"]
    command += [value for name, value in values.items() if name.startswith("SPARK_JAVA_OPT_")]
    command += [f"-Xmx{values['SPARK_EXECUTOR_MEMORY']}", "-cp", f"{spark_home()}/jars/*"]
    command += ["org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"]
    arguments = {
        "driver-url": values["SPARK_DRIVER_URL"],
        "executor-id": values["SPARK_EXECUTOR_ID"],
        "cores": values["SPARK_EXECUTOR_CORES"],
        "app-id": values["SPARK_APPLICATION_ID"],
        "hostname": "127.0.0.1",
        "resourceProfileId": values.get("SPARK_RESOURCE_PROFILE_ID", "0"),
        "podName": pod["metadata"]["name"],
    }
    for name, value in arguments.items():
        command += [f"--{name}", value]
    local = folder / "local" / pod["metadata"]["name"]
    local.mkdir(parents=True)
    environment = {**os.environ, **spark_environment(), "SPARK_USER": "spark", "SPARK_EXECUTOR_DIRS": str(local)}
    with (folder / f"{pod['metadata']['name']}.log").open("wb") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=local, start_new_session=True
        )
