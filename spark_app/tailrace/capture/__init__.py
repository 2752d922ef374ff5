"""The capture process: one log connection, decoding, segments, the journal. No JVM."""
