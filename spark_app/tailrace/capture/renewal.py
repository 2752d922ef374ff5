"""The note of `tailrace resync --all`: the next start begins the stream anew, in the same change log.

After `PositionLost` no process can run that could be asked, so the request lies in the storage. `startup` finds it,
makes a new slot and records `SourceRenewed` with the note's id; every table is then taken in again, as a new
generation. The note goes last: a start that finds it with an id that the journal has only removes it.
"""

from pydantic import ValidationError

from tailrace.changelog.paths import RENEWAL
from tailrace.changelog.records import Closed
from tailrace.errors import CorruptLog
from tailrace.storage import NotFound, Storage


class Renewal(Closed):
    id: str

    def write(self, storage: Storage) -> None:
        storage.put(RENEWAL, self.model_dump_json().encode())

    @classmethod
    def read(cls, storage: Storage) -> "Renewal | None":
        """None: nobody has asked."""
        try:
            return cls.model_validate_json(storage.get(RENEWAL))
        except NotFound:
            return None
        except ValidationError as error:
            raise CorruptLog(f"{storage.uri(RENEWAL)} is not readable", "Remove it, and ask again.") from error

    @staticmethod
    def forget(storage: Storage) -> None:
        storage.delete(RENEWAL)
