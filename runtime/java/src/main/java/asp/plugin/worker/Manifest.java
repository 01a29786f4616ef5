package asp.plugin.worker;

import asp.plugin.Json;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;

/**
 * What of `plugin.json` the worker needs for one primitive. The supervisor has validated the file; a missing part means a default or is
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

    /** Reads the manifest: an entry for each primitive of the package. */
    static List<Manifest> read(Path path) throws Exit.Refusal {
        try {
            if (Files.size(path) > MAX_BYTES) {
                throw refusal("is larger than 4 MiB");
            }
            return all(Json.parse(Files.readAllBytes(path)));
        } catch (IOException fault) {
            throw refusal("cannot be read: " + fault.getClass().getSimpleName());
        }
    }

    private static List<Manifest> all(JsonNode json) throws Exit.Refusal {
        JsonNode primitives = json.path("primitives");
        if (primitives.isEmpty()) {
            return List.of(of(json));
        }
        List<Manifest> manifests = new ArrayList<>();
        for (Iterator<String> ids = primitives.fieldNames(); ids.hasNext(); ) {
            String id = ids.next();
            manifests.add(of(whole(json, id, primitives.path(id))));
        }
        return manifests;
    }

    /** Returns the part of one primitive with what all primitives of the package share. */
    private static ObjectNode whole(JsonNode shared, String id, JsonNode part) {
        ObjectNode whole = Json.mapper().createObjectNode();
        ObjectNode limits = Json.mapper().createObjectNode();
        for (JsonNode source : List.of(shared, part)) {
            if (source instanceof ObjectNode object) {
                whole.setAll(object);
            }
            if (source.path("limits") instanceof ObjectNode object) {
                limits.setAll(object);
            }
        }
        whole.remove("primitives");
        whole.set("limits", limits);
        return whole.put("id", id);
    }

    private static Manifest of(JsonNode json) throws Exit.Refusal {
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
