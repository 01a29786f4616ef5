package asp.plugin.worker;

import asp.plugin.Json;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Set;

/**
 * What of `plugin.json` the worker needs. The supervisor has validated the file; a missing part means a default or is
 * refused here.
 *
 * @param diskBytes bound of a call's artifacts, in bytes
 * @param inputSchema null when there is none; so is outputSchema
 */
record Manifest(
        String id,
        String version,
        Kind kind,
        String entrypoint,
        JsonNode inputSchema,
        JsonNode outputSchema,
        long diskBytes,
        Set<String> elicitations,
        Set<String> delegations) {
    private static final long MAX_BYTES = 4 << 20;
    private static final long DEFAULT_DISK_BYTES = 256 << 20;

    /** Which of the three interfaces the entrypoint must have. */
    enum Kind {
        TOOL,
        RESOURCE,
        PROMPT
    }

    static Manifest read(Path path) throws Exit.Refusal {
        try {
            if (Files.size(path) > MAX_BYTES) {
                throw refusal("is larger than 4 MiB");
            }
            return of(Json.parse(Files.readAllBytes(path)));
        } catch (IOException fault) {
            throw refusal("cannot be read: " + fault.getClass().getSimpleName());
        }
    }

    static Manifest of(JsonNode json) throws Exit.Refusal {
        return new Manifest(
                text(json, "id"),
                text(json, "version"),
                kind(text(json, "kind")),
                text(json, "entrypoint"),
                json.get("inputSchema"),
                json.get("outputSchema"),
                json.path("limits").path("diskBytes").asLong(DEFAULT_DISK_BYTES),
                names(json.path("elicitations")),
                names(json.path("delegations")));
    }

    private static Kind kind(String word) throws Exit.Refusal {
        return switch (word) {
            case "tool", "task" -> Kind.TOOL;
            case "resource", "resource_template" -> Kind.RESOURCE;
            case "prompt" -> Kind.PROMPT;
            default -> throw refusal("has the unknown kind `" + word + "`");
        };
    }

    private static String text(JsonNode json, String key) throws Exit.Refusal {
        String value = json.path(key).asText("");
        if (value.isEmpty()) {
            throw refusal("has no `" + key + "`");
        }
        return value;
    }

    private static Set<String> names(JsonNode array) {
        Set<String> names = new HashSet<>();
        array.forEach(name -> names.add(name.asText()));
        return Set.copyOf(names);
    }

    private static Exit.Refusal refusal(String what) {
        return new Exit.Refusal(Exit.PLUGIN_UNUSABLE, "plugin.json " + what);
    }
}
