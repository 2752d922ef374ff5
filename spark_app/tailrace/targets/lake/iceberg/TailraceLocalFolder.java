package org.apache.hadoop.fs;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system without the processes: it runs chmod for each file that it creates and for each file of
 * checksums beside it, a third of what a small commit cost (docs/decisions/0058). Checksums that others have left are
 * still checked, and go with their file. And without an exception for each file that does not exist: a commit asks for
 * thirty.
 */
public class TailraceLocalFolder extends LocalFileSystem {
    public TailraceLocalFolder() {
        super(new Raw());
        setWriteChecksum(false);
    }

    public boolean exists(Path path) throws IOException {
        return pathToFile(path).exists();
    }

    static class Raw extends RawLocalFileSystem {
        public boolean exists(Path path) throws IOException {
            return pathToFile(path).exists();
        }

        public boolean isDirectory(Path path) throws IOException {
            return pathToFile(path).isDirectory();
        }

        public void setPermission(Path path, FsPermission permission) throws IOException {
            if (permission.getStickyBit()) {
                super.setPermission(path, permission);
            } else {
                Files.setPosixFilePermissions(
                        pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString()));
            }
        }
    }
}
