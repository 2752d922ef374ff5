package org.apache.iceberg.hadoop;

import java.util.Iterator;
import org.apache.iceberg.exceptions.RuntimeIOException;
import org.apache.iceberg.io.BulkDeletionFailureException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Hadoop's files, deleted by who asks for it. Iceberg hands each file to a pool and looks every 10 ms whether it is
 * done, and each commit deletes the oldest metadata file (docs/decisions/0118). Tested in
 * tests/integration/targets/test_iceberg_kept_metadata.py.
 */
public class TailraceFiles extends HadoopFileIO {
    private static final Logger LOG = LoggerFactory.getLogger(TailraceFiles.class);

    public TailraceFiles() {
    }

    public void deleteFiles(Iterable paths) {
        int failed = 0;
        for (Iterator each = paths.iterator(); each.hasNext();) {
            String path = (String) each.next();
            try {
                deleteFile(path);
            } catch (RuntimeIOException error) {
                LOG.error("Failed to delete {}", path, error);
                failed++;
            }
        }
        if (failed > 0) {
            throw new BulkDeletionFailureException(failed);
        }
    }
}
