"""The note of a first start: written before publication and slot are made, removed once record 0 stands.

A slot without a journal is ours only where this note says so: the next start drops it and makes another,
`tailrace drop` drops it for good.
"""

from pydantic import ValidationError

from tailrace.changelog.paths import FIRST_START
from tailrace.changelog.records import Closed
from tailrace.errors import CorruptLog
from tailrace.storage.store import NotFound, Storage


class FirstStart(Closed):
    slot: str | None
    """What is made; None: it was given."""
    publication: str | None
    log_id: str | None = None
    """Of the change log to be. This and what follows: None in notes from before logs had owners."""
    owner: str | None = None
    system_identifier: str | None = None
    database: str | None = None

    def made_slot(self, name: str, owner: str) -> bool:
        return self.slot == name and self.owner in (None, owner)

    def write(self, storage: Storage) -> None:
        storage.put(FIRST_START, self.model_dump_json().encode())

    @classmethod
    def read(cls, storage: Storage) -> "FirstStart | None":
        """None: no first start was interrupted."""
        try:
            return cls.model_validate_json(storage.get(FIRST_START))
        except NotFound:
            return None
        except ValidationError as error:
            raise CorruptLog(
                f"{storage.uri(FIRST_START)} is not readable", "Remove it, and drop the slot that it was written for."
            ) from error

    @staticmethod
    def forget(storage: Storage) -> None:
        storage.delete(FIRST_START)
