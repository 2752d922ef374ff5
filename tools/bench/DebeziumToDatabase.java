import io.debezium.connector.jdbc.JdbcSinkConnectorTask;
import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's engine with its JDBC sink behind it, in one process and without Kafka in between: `bench.debezium` runs it.
 *
 * <p>The only argument is a properties file: names that begin with `sink.` are the sink's, all others the engine's. Each
 * batch of the engine is one call of the sink, and is acknowledged once that has returned.
 */
public final class DebeziumToDatabase {
    private static long number = 0;

    public static void main(String[] arguments) throws Exception {
        Properties all = new Properties();
        try (var reader = Files.newBufferedReader(Path.of(arguments[0]))) {
            all.load(reader);
        }
        Properties source = new Properties();
        Map<String, String> sink = new HashMap<>();
        for (String name : all.stringPropertyNames()) {
            if (name.startsWith("sink.")) {
                sink.put(name.substring("sink.".length()), all.getProperty(name));
            } else {
                source.setProperty(name, all.getProperty(name));
            }
        }
        JdbcSinkConnectorTask task = new JdbcSinkConnectorTask();
        task.initialize(context(sink));
        task.start(sink);
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine =
                DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
                        .using(source)
                        .using((success, message, error) -> {
                            System.err.println("the engine has ended: " + message);
                            if (error != null) {
                                error.printStackTrace();
                            }
                            System.exit(success ? 0 : 1);
                        })
                        .notifying((events, committer) -> {
                            task.put(records(events));
                            for (RecordChangeEvent<SourceRecord> event : events) {
                                committer.markProcessed(event);
                            }
                            committer.markBatchFinished();
                        })
                        .build();
        engine.run();
    }

    private static List<SinkRecord> records(List<RecordChangeEvent<SourceRecord>> events) {
        List<SinkRecord> records = new ArrayList<>(events.size());
        for (RecordChangeEvent<SourceRecord> event : events) {
            SourceRecord r = event.record();
            records.add(new SinkRecord(
                    r.topic(), 0, r.keySchema(), r.key(), r.valueSchema(), r.value(), number++));
        }
        return records;
    }

    /** Kafka Connect's side of a sink, of which there is none. */
    private static SinkTaskContext context(Map<String, String> configuration) {
        return (SinkTaskContext) Proxy.newProxyInstance(
                DebeziumToDatabase.class.getClassLoader(),
                new Class<?>[] {SinkTaskContext.class},
                (proxy, method, values) -> switch (method.getName()) {
                    case "configs" -> configuration;
                    case "assignment" -> Set.of();
                    default -> null;
                });
    }
}
