package org.apache.iceberg;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.avro.AvroSchemaUtil;
import org.apache.iceberg.avro.InternalWriter;
import org.apache.iceberg.encryption.EncryptedFiles;
import org.apache.iceberg.encryption.EncryptedOutputFile;
import org.apache.iceberg.inmemory.InMemoryOutputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.io.PositionOutputStream;
import org.apache.iceberg.shaded.org.apache.avro.io.BinaryEncoder;
import org.apache.iceberg.shaded.org.apache.avro.io.EncoderFactory;

/**
 * Small manifests as `ManifestWriter` makes them. Most of its time goes into what is the same in each: the file's head,
 * with two schemas as texts, and the writer of entries that is made of them. Here Iceberg makes both once for a table.
 * Tested in tests/integration/targets/test_iceberg_small_commits.py.
 */
public class TailraceManifests {
    /** Of the format. Public, like classes and fields that another source uses: Janino takes others for private. */
    public static final int VERSION = 3;
    /** A compressor's state costs more than all the rest. */
    private static final Map UNCOMPRESSED = Collections.singletonMap(TableProperties.AVRO_COMPRESSION, "uncompressed");
    private static final int MARK = 16;
    /** The sequence number of a commit that has none yet. */
    private static final long UNASSIGNED = -1;

    private final PartitionSpec spec;
    private final boolean data;
    private final byte[] head;
    /** It ends the head and each block. */
    private final byte[] mark;
    private final InternalWriter entries;
    private final GenericManifestEntry entry;

    TailraceManifests(PartitionSpec spec, boolean data) throws IOException {
        this.spec = spec;
        this.data = data;
        InMemoryOutputFile file = new InMemoryOutputFile("empty.avro");
        EncryptedOutputFile plain = EncryptedFiles.plainAsEncryptedOutput(file);
        ManifestWriter empty = data ? ManifestFiles.write(VERSION, spec, plain, Long.valueOf(0), UNCOMPRESSED)
                : ManifestFiles.writeDeleteManifest(VERSION, spec, plain, Long.valueOf(0), UNCOMPRESSED);
        empty.close();
        head = file.toByteArray();
        mark = Arrays.copyOfRange(head, head.length - MARK, head.length);
        entries = InternalWriter.create(
                AvroSchemaUtil.convert(V3Metadata.entrySchema(spec.partitionType()), "manifest_entry"));
        entry = new GenericManifestEntry(V1Metadata.entrySchema(spec.partitionType()).asStruct());
    }

    /** Says if manifests of these partitions have the same head. */
    boolean fits(PartitionSpec other) {
        return other == spec || other.equals(spec)
                && SchemaParser.toJson(other.schema()).equals(SchemaParser.toJson(spec.schema()));
    }

    ManifestFile write(OutputFile file, Long snapshot, List added, TailracePart part) throws IOException {
        ByteArrayOutputStream block = new ByteArrayOutputStream();
        BinaryEncoder out = EncoderFactory.get().binaryEncoder(block, null);
        V3Metadata.ManifestEntryWrapper wrapper = new V3Metadata.ManifestEntryWrapper(snapshot);
        PartitionSummary partitions = new PartitionSummary(spec);
        long addedRows = 0;
        long keptRows = 0;
        long goneRows = 0;
        long least = Long.MAX_VALUE;
        for (Iterator each = added.iterator(); each.hasNext();) {
            ContentFile one = (ContentFile) each.next();
            partitions.update(one.partition());
            entries.write(wrapper.wrap(entry.wrapAppend(snapshot, one)), out);
            addedRows += one.recordCount();
        }
        for (Iterator each = part.stay.iterator(); each.hasNext();) {
            TailraceEntry one = (TailraceEntry) each.next();
            Long sequence = Long.valueOf(one.sequence);
            partitions.update(one.file.partition());
            entries.write(wrapper.wrap(
                    entry.wrapExisting(Long.valueOf(one.snapshot), sequence, one.fileSequence, one.file)), out);
            keptRows += one.file.recordCount();
            least = Math.min(least, one.sequence);
        }
        for (Iterator each = part.go.iterator(); each.hasNext();) {
            TailraceEntry one = (TailraceEntry) each.next();
            partitions.update(one.file.partition());
            entries.write(wrapper.wrap(
                    entry.wrapDelete(snapshot, Long.valueOf(one.sequence), one.fileSequence, one.file)), out);
            goneRows += one.file.recordCount();
        }
        out.flush();
        int count = added.size() + part.stay.size() + part.go.size();
        return new GenericManifestFile(
                file.location(), save(file, count, block), spec.specId(),
                data ? ManifestContent.DATA : ManifestContent.DELETES, UNASSIGNED,
                least == Long.MAX_VALUE ? UNASSIGNED : least, snapshot, partitions.summaries(),
                null, Integer.valueOf(added.size()), Long.valueOf(addedRows), Integer.valueOf(part.stay.size()),
                Long.valueOf(keptRows), Integer.valueOf(part.go.size()), Long.valueOf(goneRows), null);
    }

    /** Writes head and block; returns the file's length. */
    private long save(OutputFile file, int count, ByteArrayOutputStream block) throws IOException {
        ByteArrayOutputStream whole = new ByteArrayOutputStream(head.length + block.size() + 3 * MARK);
        whole.write(head);
        BinaryEncoder sizes = EncoderFactory.get().directBinaryEncoder(whole, null);
        sizes.writeLong(count);
        sizes.writeLong(block.size());
        sizes.flush();
        block.writeTo(whole);
        whole.write(mark);
        PositionOutputStream stream = file.createOrOverwrite();
        try {
            whole.writeTo(stream);
        } finally {
            stream.close();
        }
        return whole.size();
    }
}

/** A live file and what its manifest says of it. */
public class TailraceEntry {
    public final ContentFile file;
    public final long snapshot;
    public final long sequence;
    public final Long fileSequence;

    TailraceEntry(ContentFile file, long snapshot, long sequence, Long fileSequence) {
        this.file = file;
        this.snapshot = snapshot;
        this.sequence = sequence;
        this.fileSequence = fileSequence;
    }

    /** The data file that it is or refers to. */
    String path() {
        return path(file);
    }

    static String path(ContentFile file) {
        return file instanceof DeleteFile ? ((DeleteFile) file).referencedDataFile() : file.location();
    }
}

/** A manifest to be replaced: what stays in it and what goes. */
public class TailracePart {
    public final List stay = new ArrayList();
    public final List go = new ArrayList();
}
