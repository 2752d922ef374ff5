package dev.tailrace;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DeltaOperations$Operation;
import org.apache.spark.sql.delta.DeltaOperations$StreamingUpdate;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.Action$;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.streaming.OutputMode;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A commit to a table that is left to Delta, prepared in one call over py4j and sent in another (docs/decisions/0055):
 * what fails in the first has written nothing. Compiled with the log store.
 */
public class Transaction extends OptimisticTransaction {
    private Seq actions;
    private DeltaOperations$Operation operation;

    private Transaction(DeltaLog log, Option snapshot) {
        super(log, Option.empty(), snapshot);
    }

    /**
     * `base`, `metadata`: null where the table is created, where it stays. Actions are JSON, one a line. The history names
     * the commit a streaming update of the record's number: for a `ManualUpdate` Delta derives no checksum from the last
     * one, and would read its whole log again after every commit.
     */
    public static Transaction prepare(
            SparkSession session, DeltaLog log, Snapshot base, String metadata, String lines, String query,
            long record) {
        SparkSession.setActiveSession(session); // Delta asks for the thread's, and one of Python's has none
        if (base == null) {
            log.createLogDirectoriesIfNotExists();
        }
        Transaction made = new Transaction(log, Option.apply(base));
        if (metadata != null) {
            Metadata wanted = (Metadata) Action$.MODULE$.fromJson(metadata);
            if (base == null) {
                made.updateMetadataForNewTable(wanted);
            } else {
                made.updateMetadata(wanted, false);
            }
        }
        made.readWholeTable(); // whatever others add or remove meanwhile concerns us: our keys may be in it
        List found = new ArrayList();
        String[] each = lines.split("\n");
        for (int number = 0; number < each.length; number++) {
            found.add(Action$.MODULE$.fromJson(each[number]));
        }
        made.actions = CollectionConverters.asScala(found).toSeq();
        made.operation = new DeltaOperations$StreamingUpdate(OutputMode.Update(), query, record, Option.empty());
        return made;
    }

    /** The new version. */
    public long send() {
        return commit(actions, operation);
    }
}
