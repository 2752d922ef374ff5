from tailrace.changelog.records import Seq
from tailrace.errors import SchemaChangeUnsupported, TableStop, ValueUnsupported, met_at
from tailrace.sources.stops import stopped


def test_a_stopped_table_says_where_its_error_was_met_and_the_source_if_nobody_has() -> None:
    plain = stopped(7, Seq(3), SchemaChangeUnsupported("s.t", "m", "f"))
    assert (plain.error, plain.message, plain.fix, plain.where) == ("SchemaChangeUnsupported", "m", "f", "source")
    try:
        with met_at("storage"):
            raise ValueUnsupported("s.t", "m")
    except TableStop as error:
        assert stopped(7, Seq(3), error).where == "storage"
