"""How a process tells of itself: one event per line, as JSON or, on a terminal, for the eye.

Events have a name and fields (`shard`, `epoch`, ...), never a sentence with numbers in it.  What
other libraries log goes the same way.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

import structlog

Logger = structlog.stdlib.BoundLogger


def configure(level: str, form: Literal["auto", "json", "console"]) -> None:
    """Of this process, once: everything goes to standard error."""
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.ExtraAdder(),
    ]
    on_terminal = form == "console" or (form == "auto" and sys.stderr.isatty())
    last: list[Any] = (
        [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
        if on_terminal
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    # It tells of every request, of which a probe makes one each second.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def logger_of(part: str, **fields: object) -> Logger:
    found: Logger = structlog.get_logger(f"shardlog.{part}", **fields)
    return found
