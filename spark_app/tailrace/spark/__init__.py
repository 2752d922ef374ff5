"""Everything that is Spark's start: session, jars, archive of classes, Python daemon."""
