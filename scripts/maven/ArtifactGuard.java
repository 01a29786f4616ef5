import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.maven.eventspy.AbstractEventSpy;
import org.eclipse.aether.RepositoryEvent;
import org.eclipse.aether.RepositoryEvent.EventType;
import org.eclipse.aether.repository.LocalRepository;

/**
 * Ends Maven before it uses a file whose SHA-256 is not in the checked-in list.
 *
 * <p>Maven tells of every file that it has resolved, a plugin's included, before it reads or runs it. What a build makes
 * itself is not looked at: files outside the local repository, and the shim, which is installed there and comes from no
 * remote one. Maven logs what a listener throws and goes on, so a refusal ends the process.
 *
 * <p>{@code asp.artifacts} names the list, in the format of sha256sum, paths relative to the local repository;
 * {@code asp.artifacts.record} a file that takes a row for every file instead.
 */
public final class ArtifactGuard extends AbstractEventSpy {
    /** EX_DATAERR: no further attempt changes it. */
    private static final int REFUSED = 65;

    private static final String SHIM = "asp/";

    private final String list = System.getProperty("asp.artifacts");
    private final String record = System.getProperty("asp.artifacts.record");
    private final Map<String, String> expected = new HashMap<>();
    private final Set<Path> seen = ConcurrentHashMap.newKeySet();

    @Override
    public void init(Context context) {
        if (record != null) {
            return;
        }
        try {
            for (String row : Files.readAllLines(Path.of(list))) {
                if (!row.isBlank() && !row.startsWith("#")) {
                    String[] parts = row.split(" +", 2);
                    expected.put(parts[1], parts[0]);
                }
            }
        } catch (IOException | RuntimeException fault) {
            refuse("the list of jars " + list + " cannot be read: " + fault);
        }
    }

    @Override
    public void onEvent(Object told) {
        if (!(told instanceof RepositoryEvent event)
                || event.getType() != EventType.ARTIFACT_RESOLVED
                || event.getFile() == null) {
            return;
        }
        Path repository = event.getSession().getLocalRepository().getBasedir().toPath();
        Path file = event.getFile().toPath();
        if (!file.startsWith(repository) || !seen.add(file)) {
            return;
        }
        String path = repository.relativize(file).toString().replace('\\', '/');
        if (path.startsWith(SHIM) && event.getRepository() instanceof LocalRepository) {
            return;
        }
        try {
            check(file, path);
        } catch (IOException | NoSuchAlgorithmException fault) {
            refuse(file + " cannot be read: " + fault);
        }
    }

    private void check(Path file, String path) throws IOException, NoSuchAlgorithmException {
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(Files.readAllBytes(file));
        String found = HexFormat.of().formatHex(digest);
        if (record != null) {
            String row = found + "  " + path + "\n";
            Files.writeString(Path.of(record), row, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            return;
        }
        String wanted = expected.get(path);
        if (wanted == null) {
            refuse(file + " is not in " + list + "; found SHA-256 " + found
                    + ". After a change of versions, scripts/maven/record writes the list anew");
        } else if (!wanted.equals(found)) {
            refuse(file + " is not the file that was checked in: expected SHA-256 " + wanted + ", found " + found
                    + ". Remove it and run again; if it comes back, the Maven repository in use gives something else"
                    + " than what was reviewed: do not use it");
        }
    }

    private static void refuse(String reason) {
        System.err.println("artifact refused, nothing of it was run: " + reason);
        Runtime.getRuntime().halt(REFUSED);
    }
}
