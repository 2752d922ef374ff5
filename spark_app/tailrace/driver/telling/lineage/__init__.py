"""Lineage events in OpenLineage's format (`spec.lineage`): which table of the source becomes which one of the target.

    change log, progress ── LineageReporter ──> runs (what is to be said) ──> events ──> Sender ── thread ──> transport

`open_lineage` is the only name that the driver uses. The client library is imported by it, where the manifest asks for
it, and nowhere else.
"""
