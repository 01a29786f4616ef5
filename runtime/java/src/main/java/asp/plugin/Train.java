package asp.plugin;

import asp.plugin.worker.Exercise;
import asp.plugin.worker.Exit;
import asp.plugin.worker.Server;
import asp.plugin.worker.Settings;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;

/**
 * Runs a worker and its platform in one process, once through everything, so that Java can write down the classes:
 *
 * <pre>
 * java -XX:ArchiveClassesAtExit={shim}/worker.jsa -XX:+UseSerialGC -XX:TieredStopAtLevel=1
 *   -cp {shim}/asp-plugin.jar asp.plugin.Train
 * </pre>
 *
 * Run it where the jars stay: the archive is good for these paths, files and this Java only, and a worker for which it
 * is not good starts without it. Needs a home for temporary files; exits 0, or 70 when the exercise fails.
 */
public final class Train {
    private static final String TOKEN = "0".repeat(64);

    private Train() {}

    /** Takes no arguments; see above. */
    public static void main(String[] arguments) throws Exception {
        Path directory = Files.createTempDirectory("train");
        Exit.guard();
        try {
            Settings settings = settings(directory);
            Thread worker = new Thread(() -> serve(settings), "worker");
            worker.setDaemon(true);
            worker.start();
            Exercise.drive(settings);
        } finally {
            try (var files = Files.list(directory)) {
                for (Path file : files.toList()) {
                    Files.delete(file);
                }
            }
            Files.delete(directory);
        }
        Exit.leave(0);
    }

    private static void serve(Settings settings) {
        try {
            Server.run(settings);
        } catch (Exit.Refusal refusal) {
            Exit.refuse(refusal);
        }
    }

    private static Settings settings(Path directory) throws IOException, Exit.Refusal {
        Map<String, Object> text = Map.of("type", "string", "pattern", "^[a-z ]+$", "maxLength", 100);
        Map<String, Object> properties = Map.of(
                "text", text,
                "at", Map.of("type", "string", "format", "date-time"),
                "items", Map.of("type", "array", "items", Map.of("type", "number", "minimum", 0)),
                "kind", Map.of("enum", List.of("a", "b")));
        Map<String, Object> schema = Map.of(
                "$schema", "https://json-schema.org/draft/2020-12/schema",
                "type", "object",
                "additionalProperties", false,
                "required", List.of("text"),
                "properties", properties);
        Map<String, Object> manifest = Map.of(
                "id", "train",
                "version", "1.0.0",
                "kind", "tool",
                "entrypoint", Exercise.class.getName(),
                "inputSchema", schema,
                "outputSchema", schema,
                "elicitations", List.of("ask"),
                "delegations", List.of("judge"));
        Path plugin = Files.write(directory.resolve("plugin.json"), Json.bytes(manifest));
        Map<String, String> environment = Map.of(
                "ASP_WORKER_SOCKET", directory.resolve("socket").toString(),
                "ASP_PLUGIN_MANIFEST", plugin.toString(),
                "ASP_PLUGIN_CODE", directory.toString(),
                "ASP_WORK_DIR", directory.toString());
        return Settings.read(environment, new ByteArrayInputStream(TOKEN.getBytes(StandardCharsets.US_ASCII)));
    }
}
