"""The operator's log: one JSON document per line on standard error. Secrets never come here."""

import json
import logging
from typing import Any

from typing_extensions import override


class JsonFormatter(logging.Formatter):
    @override
    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if hasattr(record, "object"):
            document["object"] = record.object
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=False)


def configure(level: str) -> None:
    """Ours from `level` on, libraries from warnings on."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("tailrace_operator").setLevel(level.upper())
