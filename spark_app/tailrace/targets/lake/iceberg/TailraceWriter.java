package org.apache.iceberg;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import org.apache.iceberg.encryption.PlaintextEncryptionManager;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.RuntimeIOException;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.parquet.ParquetUtil;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.org.apache.parquet.ParquetReadOptions;
import org.apache.iceberg.shaded.org.apache.parquet.conf.PlainParquetConfiguration;
import org.apache.iceberg.shaded.org.apache.parquet.format.converter.ParquetMetadataConverter;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.metadata.ParquetMetadata;
import org.apache.iceberg.util.JsonUtil;

/**
 * Small commits to one Iceberg table (docs/decisions/0058): two calls over py4j, and no manifest is read that this
 * process has written or read before. `prepare` writes manifests and their list; `send` swaps the metadata, or throws.
 *
 * A commit is based on exactly the snapshot that the caller names: on any other it is refused, so there is nothing in
 * between to validate. Compiled by Spark's Janino, hence no generics and no lambdas.
 */
public class TailraceWriter {
    /** Manifests with so few live files are written into the newest one. */
    static final int SMALL = 50;
    /** The live files of larger ones are not kept in memory. */
    static final int KEPT = 1000;
    /** Bytes that a live file takes, and each column's metrics. */
    static final int FILE = 1000;
    static final int COLUMN = 400;
    /** The lists of live files by the path of their manifest, which never changes; the one last used is the last. */
    private static final LinkedHashMap KNOWN = new LinkedHashMap(16, 0.75f, true);
    private static final Map SIZES = new HashMap();
    private static long size = 0;
    private static long most = Runtime.getRuntime().maxMemory() / 10;

    final Table table;
    private final TableOperations operations;
    private final ParquetMetadataConverter footers = new ParquetMetadataConverter(
            ParquetReadOptions.builder(new PlainParquetConfiguration()).build());
    /** The manifests of one snapshot, as its list has them. */
    Long listed;
    List manifests;
    private TailraceChange pending;
    private TailraceManifests ofData;
    private TailraceManifests ofVectors;

    public TailraceWriter(Table table) {
        this.table = table;
        this.operations = ((HasTableOperations) table).operations();
    }

    /** Reads the table's newest version: its uuid and its snapshot's id, if it has one. */
    public static String look(Table table) {
        table.refresh();
        Snapshot current = table.currentSnapshot();
        return table.uuid() + (current == null ? "" : " " + current.snapshotId());
    }

    /**
     * Returns JSON: the snapshot and the added files; or nothing, if the table's columns or partitions are not those
     * that the caller knows, or too much is to be read. `text`: see `small.py`.
     */
    public String prepare(String text, byte[] bytes) throws IOException {
        JsonNode change = JsonUtil.mapper().readTree(text);
        TableMetadata base = operations.current();
        if (!base.uuid().equals(change.get("uuid").asText())) {
            throw new ValidationException("Table UUID does not match: current=%s", new Object[] {base.uuid()});
        }
        if (base.specs().size() > 1 || !partitioned(base.spec(), change.get("days"))
                || base.currentSchemaId() != change.get("schema").asInt()) {
            return "";
        }
        List files = added(base.spec(), change.get("add"), bytes);
        pending = new TailraceChange(this, operations, base, change, files);
        return pending.write();
    }

    /** Says if the table is partitioned by the days of this field, or not at all if there is none. */
    private static boolean partitioned(PartitionSpec spec, JsonNode field) {
        if (field.isNull()) {
            return spec.isUnpartitioned();
        }
        PartitionField only = spec.fields().size() == 1 ? (PartitionField) spec.fields().get(0) : null;
        return only != null && only.sourceId() == field.asInt() && only.transform().toString().equals("day");
    }

    public void send() {
        TailraceChange sent = pending;
        pending = null;
        sent.send();
    }

    /** What writes small manifests with these partitions. */
    TailraceManifests manifests(PartitionSpec spec, boolean data) throws IOException {
        TailraceManifests known = data ? ofData : ofVectors;
        if (known == null || !known.fits(spec)) {
            known = new TailraceManifests(spec, data);
            ofData = data ? known : ofData;
            ofVectors = data ? ofVectors : known;
        }
        return known;
    }

    private List added(PartitionSpec spec, JsonNode files, byte[] bytes) throws IOException {
        MetricsConfig config = MetricsConfig.forTable(table);
        List made = new ArrayList();
        int at = 0;
        for (int number = 0; number < files.size(); number++) {
            JsonNode file = (JsonNode) files.get(number);
            int length = file.get("footer").asInt();
            DataFiles.Builder builder = DataFiles.builder(spec);
            builder.withPath(file.get("path").asText());
            builder.withFileSizeInBytes(file.get("size").asLong());
            builder.withFormat("parquet");
            if (!spec.isUnpartitioned()) {
                String name = ((PartitionField) spec.fields().get(0)).name();
                builder.withPartitionPath(name + "=" + file.get("day").asText());
            }
            ParquetMetadata footer = footers.readParquetMetadata(new ByteArrayInputStream(bytes, at, length));
            builder.withMetrics(ParquetUtil.footerMetrics(footer, Collections.emptyList().stream(), config));
            made.add(builder.build());
            at += length;
        }
        return made;
    }

    /** Sets how many bytes the known files of all tables may take; returns how many they take. */
    public static synchronized long keep(long bytes) {
        most = bytes;
        shrink();
        return size;
    }

    static synchronized List known(String path) {
        return (List) KNOWN.get(path);
    }

    static synchronized void learn(String path, List entries, int columns) {
        if (entries.size() <= KEPT) {
            forget(path);
            long bytes = (long) entries.size() * (FILE + COLUMN * Math.min(columns, 100)); // Iceberg measures no more
            KNOWN.put(path, entries);
            SIZES.put(path, Long.valueOf(bytes));
            size += bytes;
            shrink();
        }
    }

    static synchronized void forget(String path) {
        if (KNOWN.remove(path) != null) {
            size -= ((Long) SIZES.remove(path)).longValue();
        }
    }

    private static void shrink() {
        while (size > most) {
            forget((String) KNOWN.keySet().iterator().next());
        }
    }
}

/** More files are to be read than `small.READ`. */
class TailraceTooMuch extends RuntimeException {
}

/** The snapshot: Iceberg's own, but for the choice of manifests. */
class TailraceChange extends BaseRowDelta {
    /** Columns of files, all together, up to which a manifest is small. */
    private static final int SMALL_VALUES = 200;
    private final TailraceWriter writer;
    private final TableOperations operations;
    private final TableMetadata checked;
    private final JsonNode change;
    private final List files;
    private final List vectors = new ArrayList();
    private final SnapshotSummary.Builder summary = SnapshotSummary.builder();
    private final Map written = new HashMap();
    private final List manifests = new ArrayList();
    private final List all = new ArrayList();
    private final Set listed = new HashSet();
    private final Set former = new HashSet();
    private int read = 0;
    private Snapshot snapshot;
    private TableMetadata updated;

    TailraceChange(
            TailraceWriter writer, TableOperations operations, TableMetadata checked, JsonNode change, List files) {
        super(writer.table.name(), operations);
        this.writer = writer;
        this.operations = operations;
        this.checked = checked;
        this.change = change;
        this.files = files;
    }

    String write() throws IOException {
        try {
            snapshot = apply();
            String mark = ",\"snapshot\":" + snapshot.snapshotId() + ",\"sequence\":" + snapshot.sequenceNumber() + "}";
            String state = change.get("state").asText();
            Map properties = new HashMap();
            properties.put(change.get("property").asText(), state.substring(0, state.length() - 1) + mark);
            updated = TableMetadata.buildFrom(current())
                    .setBranchSnapshot(snapshot, "main").setProperties(properties).build();
        } catch (TailraceTooMuch error) {
            cleanAll();
            return "";
        } catch (RuntimeException error) {
            cleanAll();
            throw error;
        }
        StringBuilder out = new StringBuilder("{\"snapshot\":" + snapshot.snapshotId());
        out.append(",\"sequence\":" + snapshot.sequenceNumber() + ",\"files\":[");
        for (int number = 0; number < files.size(); number++) {
            out.append(number == 0 ? "" : ",");
            out.append(ContentFileParser.toJson((ContentFile) files.get(number), current().spec()));
        }
        return out.append("]}").toString();
    }

    /** Deletes nothing if it fails: a catalog may say so of a commit that did happen. The sweep finds what is left. */
    void send() {
        operations.commit(current(), updated);
        for (Iterator each = former.iterator(); each.hasNext();) {
            String path = (String) each.next();
            if (!listed.contains(path)) {
                TailraceWriter.forget(path);
            }
        }
        for (Iterator each = written.keySet().iterator(); each.hasNext();) {
            String path = (String) each.next();
            learn(path, (List) written.get(path));
        }
        writer.manifests = assigned();
        writer.listed = Long.valueOf(snapshot.snapshotId());
    }

    /** The manifests with what Iceberg gave them when it wrote the list; null: it gave them something else. */
    private List assigned() {
        List found = new ArrayList();
        long row = current().nextRowId();
        for (Iterator each = all.iterator(); each.hasNext();) {
            ManifestFile manifest = (ManifestFile) each.next();
            Long first = manifest.firstRowId();
            if (manifest.content() == ManifestContent.DATA && first == null) {
                first = Long.valueOf(row);
                row += manifest.addedRowsCount().longValue() + manifest.existingRowsCount().longValue();
            }
            if (manifest.sequenceNumber() < 0) {
                long sequence = snapshot.sequenceNumber();
                boolean young = manifest.minSequenceNumber() < 0;
                manifest = new GenericManifestFile(
                        manifest.path(), manifest.length(), manifest.partitionSpecId(), manifest.content(), sequence,
                        young ? sequence : manifest.minSequenceNumber(), manifest.snapshotId(), manifest.partitions(),
                        manifest.keyMetadata(), manifest.addedFilesCount(), manifest.addedRowsCount(),
                        manifest.existingFilesCount(), manifest.existingRowsCount(), manifest.deletedFilesCount(),
                        manifest.deletedRowsCount(), first);
            }
            found.add(manifest);
        }
        return Long.valueOf(row - current().nextRowId()).equals(snapshot.addedRows()) ? found : null;
    }

    private List former(Snapshot parent, ManifestContent content) {
        if (parent == null) {
            return Collections.emptyList();
        }
        boolean remembered = writer.manifests != null && Long.valueOf(parent.snapshotId()).equals(writer.listed);
        List found = new ArrayList();
        List all = remembered ? writer.manifests : parent.allManifests(operations.io());
        for (Iterator each = all.iterator(); each.hasNext();) {
            ManifestFile manifest = (ManifestFile) each.next();
            if (manifest.content() == content) {
                found.add(manifest);
            }
        }
        return found;
    }

    public List apply(TableMetadata base, Snapshot parent) {
        String present = parent == null ? "null" : String.valueOf(parent.snapshotId());
        if (base != checked || !present.equals(change.get("base").asText())) { // Iceberg has just looked for a newer one
            throw new CommitFailedException(
                    "The version of snapshot %s is not the one that the batch was located at", new Object[] {present});
        }
        JsonNode added = change.get("vectors");
        for (int number = 0; number < added.size(); number++) {
            vectors.add(vector(base.spec(), (JsonNode) added.get(number)));
        }
        try {
            // New files get the first row ids, so the manifest that has them comes first.
            all.addAll(manifests(base, former(parent, ManifestContent.DATA), files, paths(change.get("remove"))));
            all.addAll(manifests(base, former(parent, ManifestContent.DELETES), vectors, paths(change.get("gone"))));
        } catch (IOException error) {
            throw new RuntimeIOException(error);
        }
        for (Iterator each = all.iterator(); each.hasNext();) {
            listed.add(((ManifestFile) each.next()).path());
        }
        JsonNode texts = change.get("summary");
        for (Iterator names = texts.fieldNames(); names.hasNext();) {
            String name = (String) names.next();
            summary.set(name, texts.get(name).asText());
        }
        return all;
    }

    /** The manifests of one kind: the new files and those of small and changed manifests in one, before the others. */
    private List manifests(TableMetadata base, List former, List added, Set gone) throws IOException {
        Map parts = new HashMap();
        List order = new ArrayList();
        for (Iterator each = former.iterator(); each.hasNext();) {
            ManifestFile manifest = (ManifestFile) each.next();
            this.former.add(manifest.path());
            if (live(manifest) > 0) {
                order.add(manifest);
                List entries = TailraceWriter.known(manifest.path());
                if (entries != null) {
                    parts.put(manifest, part(entries, gone));
                }
            }
        }
        for (Iterator each = order.iterator(); each.hasNext() && !gone.isEmpty();) {
            ManifestFile manifest = (ManifestFile) each.next();
            if (!parts.containsKey(manifest) && holds(manifest, gone)) {
                parts.put(manifest, part(read(manifest), gone));
            }
        }
        if (!gone.isEmpty()) {
            throw new ValidationException("Missing required files to delete: %s", new Object[] {gone});
        }
        TailracePart newest = new TailracePart();
        boolean any = !added.isEmpty();
        for (Iterator each = order.iterator(); each.hasNext();) {
            ManifestFile manifest = (ManifestFile) each.next();
            TailracePart part = (TailracePart) parts.get(manifest);
            any = any || part != null && !part.go.isEmpty();
        }
        // Sizes stay far apart, so that few manifests are left and each file is rarely written again.
        boolean more = any;
        Set taken = new HashSet();
        while (more) {
            more = false;
            for (Iterator each = order.iterator(); each.hasNext();) {
                ManifestFile manifest = (ManifestFile) each.next();
                TailracePart part = (TailracePart) parts.get(manifest);
                int size = part == null ? live(manifest) : part.stay.size();
                int most = Math.max(TailraceWriter.SMALL, added.size() + newest.stay.size());
                boolean fits = added.size() + newest.stay.size() + size <= change.get("merged").asInt();
                if (!taken.contains(manifest) && size <= most && fits) {
                    part = part == null ? part(read(manifest), gone) : part;
                    newest.stay.addAll(part.stay);
                    newest.go.addAll(part.go);
                    taken.add(manifest);
                    more = true;
                }
            }
        }
        List out = new ArrayList();
        if (!added.isEmpty() || !taken.isEmpty()) {
            out.add(manifest(base, added, newest));
        }
        for (Iterator each = order.iterator(); each.hasNext();) {
            ManifestFile manifest = (ManifestFile) each.next();
            TailracePart part = (TailracePart) parts.get(manifest);
            if (!taken.contains(manifest)) {
                boolean whole = part == null || part.go.isEmpty();
                out.add(whole ? manifest : manifest(base, Collections.emptyList(), part));
            }
        }
        return out;
    }

    private TailracePart part(List entries, Set gone) {
        TailracePart part = new TailracePart();
        for (Iterator each = entries.iterator(); each.hasNext();) {
            TailraceEntry entry = (TailraceEntry) each.next();
            (gone.remove(entry.path()) ? part.go : part.stay).add(entry);
        }
        return part;
    }

    private ManifestFile manifest(TableMetadata base, List added, TailracePart part) throws IOException {
        PartitionSpec spec = base.spec();
        boolean data = added.isEmpty() ? first(part).file instanceof DataFile : added.get(0) instanceof DataFile;
        List entries = new ArrayList();
        boolean numbered = true;
        long row = base.nextRowId();
        for (Iterator each = added.iterator(); each.hasNext();) {
            ContentFile file = (ContentFile) each.next();
            count(spec, file, true);
            ContentFile later = file;
            if (data) {
                later = DataFiles.builder(spec).copy((DataFile) file).withFirstRowId(Long.valueOf(row)).build();
                row += file.recordCount();
            }
            long sequence = base.nextSequenceNumber();
            entries.add(new TailraceEntry(later, snapshotId(), sequence, Long.valueOf(sequence)));
        }
        for (Iterator each = part.stay.iterator(); each.hasNext();) {
            TailraceEntry entry = (TailraceEntry) each.next();
            entries.add(entry);
            numbered = numbered && (!data || entry.file.firstRowId() != null);
        }
        for (Iterator each = part.go.iterator(); each.hasNext();) {
            count(spec, ((TailraceEntry) each.next()).file, false);
        }
        ManifestFile made = isSmall(base, data, added.size() + part.stay.size() + part.go.size())
                ? writer.manifests(spec, data).write(
                        newManifestOutputFile().encryptingOutputFile(), Long.valueOf(snapshotId()), added, part)
                : byIceberg(spec, data, added, part);
        manifests.add(made);
        if (numbered) {
            written.put(made.path(), entries);
        }
        return made;
    }

    /** Says if a manifest of so many files is small, and no other form is wanted. */
    private boolean isSmall(TableMetadata base, boolean data, int files) {
        long values = (long) files * (data ? base.schema().columns().size() : 1);
        return values <= SMALL_VALUES && base.formatVersion() == TailraceManifests.VERSION
                && operations.encryption() instanceof PlaintextEncryptionManager
                && !base.properties().containsKey(TableProperties.MANIFEST_COMPRESSION);
    }

    private ManifestFile byIceberg(PartitionSpec spec, boolean data, List added, TailracePart part)
            throws IOException {
        ManifestWriter writer = data ? newManifestWriter(spec) : newDeleteManifestWriter(spec);
        try {
            for (Iterator each = added.iterator(); each.hasNext();) {
                writer.add((ContentFile) each.next());
            }
            for (Iterator each = part.stay.iterator(); each.hasNext();) {
                TailraceEntry entry = (TailraceEntry) each.next();
                writer.existing(entry.file, entry.snapshot, entry.sequence, entry.fileSequence);
            }
            for (Iterator each = part.go.iterator(); each.hasNext();) {
                TailraceEntry entry = (TailraceEntry) each.next();
                writer.delete(entry.file, entry.sequence, entry.fileSequence);
            }
        } finally {
            writer.close();
        }
        return writer.toManifestFile();
    }

    private TailraceEntry first(TailracePart part) {
        return (TailraceEntry) (part.stay.isEmpty() ? part.go : part.stay).get(0);
    }

    private void count(PartitionSpec spec, ContentFile file, boolean added) {
        if (!added) {
            summary.deletedFile(spec, file);
        } else if (file instanceof DataFile) {
            summary.addedFile(spec, (DataFile) file);
        } else {
            summary.addedFile(spec, (DeleteFile) file);
        }
    }

    private ManifestReader reader(ManifestFile manifest) {
        return manifest.content() == ManifestContent.DATA
                ? newManifestReader(manifest) : newDeleteManifestReader(manifest);
    }

    /** Says if any of the files is in the manifest, by its paths alone. */
    private boolean holds(ManifestFile manifest, Set gone) throws IOException {
        boolean data = manifest.content() == ManifestContent.DATA;
        ManifestReader reader = reader(manifest);
        reader.select(Arrays.asList(new Object[] {data ? "file_path" : "referenced_data_file"}));
        try {
            for (Iterator each = reader.liveEntries().iterator(); each.hasNext();) {
                ContentFile file = (ContentFile) ((ManifestEntry) each.next()).file();
                if (gone.contains(TailraceEntry.path(file))) {
                    return true;
                }
            }
        } finally {
            reader.close();
        }
        return false;
    }

    private List read(ManifestFile manifest) throws IOException {
        read += live(manifest);
        if (read > change.get("read").asInt()) {
            throw new TailraceTooMuch();
        }
        ManifestReader reader = reader(manifest);
        List entries = new ArrayList();
        try {
            for (Iterator each = reader.liveEntries().iterator(); each.hasNext();) {
                ManifestEntry entry = (ManifestEntry) each.next();
                entries.add(new TailraceEntry((ContentFile) entry.file().copy(), entry.snapshotId().longValue(),
                        entry.dataSequenceNumber().longValue(), entry.fileSequenceNumber()));
            }
        } finally {
            reader.close();
        }
        learn(manifest.path(), entries);
        return entries;
    }

    private void learn(String path, List entries) {
        boolean metrics = !entries.isEmpty() && ((TailraceEntry) entries.get(0)).file instanceof DataFile;
        TailraceWriter.learn(path, entries, metrics ? current().schema().columns().size() : 0);
    }

    private DeleteFile vector(PartitionSpec spec, JsonNode vector) {
        FileMetadata.Builder builder = FileMetadata.deleteFileBuilder(spec);
        builder.ofPositionDeletes();
        builder.withFormat("puffin");
        builder.withPath(vector.get("path").asText());
        builder.withFileSizeInBytes(vector.get("size").asLong());
        builder.withReferencedDataFile(vector.get("data").asText());
        builder.withContentOffset(vector.get("offset").asLong());
        builder.withContentSizeInBytes(vector.get("length").asLong());
        builder.withRecordCount(vector.get("rows").asLong());
        return builder.build();
    }

    private Set paths(JsonNode texts) {
        Set found = new HashSet();
        for (int number = 0; number < texts.size(); number++) {
            found.add(((JsonNode) texts.get(number)).asText());
        }
        return found;
    }

    private int live(ManifestFile manifest) {
        return manifest.addedFilesCount().intValue() + manifest.existingFilesCount().intValue();
    }

    /** None: to list the manifests, Iceberg would hand each to another thread and look every 10 ms if all are done. */
    protected ExecutorService workerPool() {
        return null;
    }

    protected Map summary() {
        return summary.build();
    }

    protected String operation() {
        if (change.get("replace").asBoolean()) {
            return DataOperations.REPLACE;
        }
        if (!files.isEmpty() && vectors.isEmpty() && change.get("remove").size() == 0) {
            return DataOperations.APPEND;
        }
        return files.isEmpty() && !vectors.isEmpty() ? DataOperations.DELETE : DataOperations.OVERWRITE;
    }

    protected void cleanUncommitted(Set committed) {
        for (Iterator each = manifests.iterator(); each.hasNext();) {
            deleteFile(((ManifestFile) each.next()).path());
        }
        manifests.clear();
    }
}
