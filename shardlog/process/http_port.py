"""What the HTTP sides of all programs have in common."""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

IDLE_S = 30.0
"""So long a connection may take for the head of a request, or be kept without one."""
SHUTDOWN_S = 1.0


def runner_of(app: web.Application, idle_s: float = IDLE_S) -> web.AppRunner:
    """Closes connections on which no request comes, and logs nothing of requests that are none."""
    logging.getLogger("aiohttp.server").addFilter(_is_own_fault)
    return web.AppRunner(
        app, access_log=None, shutdown_timeout=SHUTDOWN_S, keepalive_timeout=idle_s
    )


def _is_own_fault(record: logging.LogRecord) -> bool:
    """Garbage in place of a request is not: whoever sent it has been told, and may send a lot."""
    failure = record.exc_info[1] if record.exc_info else None
    return not isinstance(failure, HttpProcessingError)
