"""Ids of jobs whose end this process has not seen: they may run on, and change something after what came later. Called
by `rest`."""

from collections.abc import Hashable

WHY = "BigQuery still runs a statement whose answer was lost, and what follows waits for its end (docs/bigquery.md)"


class UnseenJobs:
    """Thread-safe: one operation of a dictionary each."""

    def __init__(self) -> None:
        self._ids = dict[tuple[Hashable, str], None]()

    def add(self, place: Hashable, job_id: str) -> None:
        self._ids[place, job_id] = None

    def of(self, place: Hashable) -> list[str]:
        """Those of one place, in the order in which they were lost."""
        return [job_id for there, job_id in list(self._ids) if there == place]

    def seen(self, place: Hashable, job_id: str) -> None:
        self._ids.pop((place, job_id), None)


UNSEEN = UnseenJobs()
"""The jobs of this process."""
