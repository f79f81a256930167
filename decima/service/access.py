"""Token authentication of HTTP requests for the page and the metrics."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterable
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from decima.service.credentials import DeniedError, Tokens

__all__ = ["TokenMiddleware", "check_request", "with_tokens"]

#: Challenge to a client without a token. A browser then asks for a user name, which is ignored, and for a password,
#: which is the token.
CHALLENGE = 'Basic realm="decima", charset="UTF-8"'
_PHRASES = {401: "Unauthorized", 403: "Forbidden", 429: "Too Many Requests"}

log = logging.getLogger("decima.service")


def check_request(tokens: Tokens, authorization: str, peer: str, what: str) -> DeniedError | None:
    """Check the token of an HTTP request, count the request, and log a refusal.

    Args:
        tokens: tokens of the service.
        authorization: value of the ``Authorization`` header: ``Bearer TOKEN``, or ``Basic`` with the token as password.
        peer: address of the client, for the log.
        what: name of the requested resource, for the log.

    Returns:
        Reason for a refusal; None if the request is allowed.
    """
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except ValueError:
            given = ""
    elif scheme.lower() != "bearer":
        given = ""
    try:
        tokens.count(tokens.find(given.strip()))
    except DeniedError as error:
        log.warning("%s refused at the %s: %s", peer, what, error)
        return error
    return None


class TokenMiddleware:
    """ASGI middleware that refuses requests without a valid token."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app, self._tokens = app, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request with a valid token to the application; refuse other requests."""
        if scope["type"] == "http":
            peer = (scope.get("client") or ("?",))[0]
            given = Headers(scope=scope).get("authorization", "")
            if (denied := check_request(self._tokens, given, peer, "page")) is not None:
                headers = {"WWW-Authenticate": CHALLENGE} if denied.status == 401 else {}
                await PlainTextResponse(f"{denied}\n", denied.status, headers)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def with_tokens(app: Callable[..., Iterable[bytes]], tokens: Tokens) -> Callable[..., Iterable[bytes]]:
    """Return a WSGI application that refuses requests without a valid token."""

    def checked(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        given, peer = environ.get("HTTP_AUTHORIZATION", ""), environ.get("REMOTE_ADDR", "?")
        if (denied := check_request(tokens, given, peer, "metrics")) is None:
            return app(environ, start_response)
        headers = [("Content-Type", "text/plain; charset=utf-8")]
        if denied.status == 401:
            headers.append(("WWW-Authenticate", CHALLENGE))
        start_response(f"{denied.status} {_PHRASES[denied.status]}", headers)
        return [f"{denied}\n".encode()]

    return checked
