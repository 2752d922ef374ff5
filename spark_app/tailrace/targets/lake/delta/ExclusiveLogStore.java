package dev.tailrace;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.CopyOption;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Delta's log on a local folder and on S3, each version created by exactly one writer (docs/decisions/0062).
 *
 * Delta calls `write` once for each version of a table. A hard link fails if the name is taken, as does a PUT with
 * `If-None-Match`; Delta's own stores look whether the name is there and then overwrite it. Compiled at the driver's
 * start by Spark's Janino (`classes.py`), hence no generics and no lambdas.
 */
public class ExclusiveLogStore extends io.delta.storage.HadoopFileSystemLogStore {
    public ExclusiveLogStore(Configuration conf) {
        super(conf);
    }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration conf) throws IOException {
        FileSystem fs = path.getFileSystem(conf);
        boolean local = "file".equals(fs.getScheme());
        if (overwrite.booleanValue()) { // the pointer to the last checkpoint
            if (local) {
                replace(Paths.get(path.toUri().getPath()), content(actions));
            } else {
                send(fs.create(path, true), content(actions));
            }
            return;
        }
        byte[] content = content(actions);
        try {
            if (local) {
                link(Paths.get(path.toUri().getPath()), content);
            } else {
                FSDataOutputStreamBuilder builder = fs.createFile(path);
                builder.must("fs.option.create.conditional.overwrite", "true");
                send((FSDataOutputStream) builder.build(), content);
            }
        } catch (IOException error) {
            // A request that is repeated after a lost answer meets its own object. No two commits have the same bytes.
            byte[] found = read(fs, path);
            if (found == null) {
                throw error;
            }
            if (!Arrays.equals(found, content)) {
                FileAlreadyExistsException taken = new FileAlreadyExistsException(path.toString());
                taken.initCause(error);
                throw taken;
            }
        }
    }

    /** The file's bytes; null: there is none, or it cannot be read. */
    private static byte[] read(FileSystem fs, Path path) {
        try {
            byte[] content = new byte[(int) fs.getFileStatus(path).getLen()];
            FSDataInputStream in = fs.open(path);
            try {
                in.readFully(0, content);
            } finally {
                in.close();
            }
            return content;
        } catch (IOException error) {
            return null;
        }
    }

    private static byte[] content(Iterator actions) throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            out.write(((String) actions.next()).getBytes(StandardCharsets.UTF_8));
            out.write('\n');
        }
        return out.toByteArray();
    }

    /** An object appears whole when its stream is closed; a stream that is left open makes none. */
    private static void send(FSDataOutputStream out, byte[] content) throws IOException {
        out.write(content);
        out.close();
    }

    /** Readers find the former content or the new one; Hadoop's own way truncates the file first. */
    private static void replace(java.nio.file.Path path, byte[] content) throws IOException {
        java.nio.file.Path aside = aside(path);
        try {
            sync(aside, content, new OpenOption[] {StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE});
            Files.deleteIfExists(checksum(path)); // it would speak against the new content
            Files.move(aside, path, new CopyOption[] {StandardCopyOption.ATOMIC_MOVE});
        } finally {
            Files.deleteIfExists(aside);
        }
    }

    private static java.nio.file.Path aside(java.nio.file.Path path) {
        return path.resolveSibling("." + path.getFileName() + "." + UUID.randomUUID() + ".tmp");
    }

    /** Hadoop's, of a file of this name. */
    private static java.nio.file.Path checksum(java.nio.file.Path path) {
        return path.resolveSibling("." + path.getFileName() + ".crc");
    }

    /** Written aside and synced, then given its name: nobody sees a part of it, and it survives a power cut. */
    private static void link(java.nio.file.Path path, byte[] content) throws IOException {
        java.nio.file.Path aside = aside(path);
        try {
            sync(aside, content, new OpenOption[] {StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE});
            Files.createLink(path, aside);
            // Of a file that had this name and was removed without it: it would speak against this one.
            Files.deleteIfExists(checksum(path));
            sync(path.getParent(), new byte[0], new OpenOption[] {StandardOpenOption.READ});
        } finally {
            Files.deleteIfExists(aside);
        }
    }

    private static void sync(java.nio.file.Path path, byte[] content, OpenOption[] how) throws IOException {
        FileChannel channel = FileChannel.open(path, how);
        try {
            ByteBuffer left = ByteBuffer.wrap(content);
            while (left.hasRemaining()) {
                channel.write(left);
            }
            channel.force(true);
        } finally {
            channel.close();
        }
    }

    /** Delta writes checkpoints by itself, aside and with a rename where this says so: readers would else open half of one. */
    public Boolean isPartialWriteVisible(Path path, Configuration conf) throws IOException {
        return Boolean.valueOf("file".equals(path.getFileSystem(conf).getScheme()));
    }
}
