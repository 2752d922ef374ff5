package dev.tailrace;

import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.Snapshot;
import scala.Option;

/**
 * A commit after which Delta neither writes a checkpoint nor counts the table's files, which are both Spark jobs: Tailrace
 * writes the checkpoint (docs/decisions/0062). Compiled with the log store.
 */
public class Transaction extends OptimisticTransaction {
    public Transaction(DeltaLog log, Option table, Option snapshot) {
        super(log, table, snapshot);
    }

    public boolean isCheckpointNeeded(long version, Snapshot after) {
        return false;
    }
}
