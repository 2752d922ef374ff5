package org.apache.iceberg.hadoop;

import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.iceberg.LockManager;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.util.LockManagers;

/**
 * Iceberg's folder catalog, whose tables do not read back the metadata that they have written. Tested in
 * tests/integration/targets/test_iceberg_kept_metadata.py.
 */
public class TailraceCatalog extends HadoopCatalog {
    public TailraceCatalog() {
    }

    protected TableOperations newTableOps(TableIdentifier identifier) {
        Path place = new Path(defaultWarehouseLocation(identifier));
        FileIO files = super.newTableOps(identifier).io();
        return new TailraceOperations(place, files, getConf(), LockManagers.defaultLockManager());
    }
}

/**
 * After its own commit Iceberg parses the metadata file that it has just written: every version of the last hour, at
 * each commit (docs/decisions/0118). Here they stay in memory for as long as the file is the one that was found right
 * after the commit, by its length and time; its uuid is read from the file itself.
 */
class TailraceOperations extends HadoopTableOperations {
    /** The file begins with the version of the format and the table's uuid. */
    private static final int HEAD = 256;
    private static final Field CURRENT = field("currentMetadata");
    private static final Field VERSION = field("version");
    private final Configuration conf;
    /** The newest metadata and its file, if this object has written it; null: Iceberg has read it. */
    private TableMetadata kept;
    private TableMetadata former;
    private Path path;
    private FileStatus found;

    TailraceOperations(Path location, FileIO files, Configuration conf, LockManager locks) {
        super(location, files, conf, locks);
        this.conf = conf;
    }

    private static Field field(String name) {
        try {
            Field found = HadoopTableOperations.class.getDeclaredField(name);
            found.setAccessible(true);
            return found;
        } catch (NoSuchFieldException error) {
            throw new IllegalStateException(error);
        }
    }

    public void commit(TableMetadata base, TableMetadata metadata) {
        int before = versionOf(base);
        super.commit(base, metadata);
        if (base != metadata && before > 0) {
            keep(base, metadata, before);
        }
    }

    /** 0: it is not the current metadata, and no commit on top of it succeeds; or the table is new. */
    synchronized int versionOf(TableMetadata base) {
        return base != null && isCurrent(base) ? version() : 0;
    }

    public synchronized TableMetadata refresh() {
        if (kept != null && !isAsWritten()) {
            put(former, -1); // as if it had not been kept: whatever is there now is read, and its uuid compared
            kept = null;
        }
        TableMetadata newest = super.refresh();
        kept = newest == kept ? kept : null;
        return newest;
    }

    /**
     * What goes wrong here costs a reading: the commit has happened. Another thread may have read it by now, and another
     * writer may have committed the version after it, which must not be taken for this one. Not private: the compiler
     * makes such methods static, and another lock would hold.
     */
    synchronized void keep(TableMetadata base, TableMetadata metadata, int before) {
        if (!isCurrent(base) || version() != before) {
            return;
        }
        kept = null;
        if (!metadata.property("write.metadata.compression-codec", "none").equals("none")) {
            return;
        }
        path = new Path(metadataFileLocation("v" + (before + 1) + ".metadata.json"));
        try {
            found = status();
            if (!head().contains("\"" + metadata.uuid() + "\"")) {
                return;
            }
        } catch (IOException error) {
            return;
        }
        former = base;
        kept = TableMetadata.buildFrom(metadata).discardChanges().withMetadataLocation(path.toString()).build();
        put(kept, 1);
    }

    private boolean isAsWritten() {
        try {
            FileStatus now = status();
            return now.getLen() == found.getLen() && now.getModificationTime() == found.getModificationTime();
        } catch (IOException error) {
            return false;
        }
    }

    private FileStatus status() throws IOException {
        return getFileSystem(path, conf).getFileStatus(path);
    }

    private String head() throws IOException {
        InputStream file = getFileSystem(path, conf).open(path, HEAD);
        try {
            return new String(file.readNBytes(HEAD), StandardCharsets.UTF_8);
        } finally {
            file.close();
        }
    }

    private boolean isCurrent(TableMetadata metadata) {
        try {
            return CURRENT.get(this) == metadata;
        } catch (IllegalAccessException error) {
            throw new IllegalStateException(error);
        }
    }

    private int version() {
        try {
            return ((Integer) VERSION.get(this)).intValue();
        } catch (IllegalAccessException error) {
            throw new IllegalStateException(error);
        }
    }

    private void put(TableMetadata metadata, int later) {
        try {
            CURRENT.set(this, metadata);
            VERSION.set(this, Integer.valueOf(version() + later));
        } catch (IllegalAccessException error) {
            throw new IllegalStateException(error);
        }
    }
}
