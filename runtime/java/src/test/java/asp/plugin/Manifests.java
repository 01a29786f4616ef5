package asp.plugin;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The plugin.json of each fixture. */
final class Manifests {
    private Manifests() {}

    static Map<String, Object> acts() {
        Map<String, Object> manifest = of("task", "asp.plugin.fixtures.Acts");
        manifest.put(
                "inputSchema",
                Map.of(
                        "$schema", "https://json-schema.org/draft/2020-12/schema",
                        "type", "object",
                        "required", List.of("act"),
                        "properties",
                                Map.of(
                                        "act", Map.of("type", "string"),
                                        "text", Map.of("type", "string", "maxLength", 100_000),
                                        "mail", Map.of("type", "string", "format", "email"),
                                        "code", Map.of("type", "integer"),
                                        "word", Map.of("type", "string", "pattern", "^(a+)+$"))));
        manifest.put(
                "outputSchema",
                Map.of(
                        "type", "object",
                        "required", List.of("text"),
                        "properties", Map.of("text", Map.of("type", "string"))));
        manifest.put("limits", Map.of("diskBytes", 1_000_000));
        manifest.put("elicitations", List.of("first", "second"));
        manifest.put("delegations", List.of("judge"));
        return manifest;
    }

    static Map<String, Object> pages() {
        return of("resource_template", "asp.plugin.fixtures.Pages");
    }

    static Map<String, Object> greeting() {
        return of("prompt", "asp.plugin.fixtures.Greeting");
    }

    static Map<String, Object> of(String kind, String entrypoint) {
        Map<String, Object> manifest = new HashMap<>();
        manifest.put("format", 1);
        manifest.put("id", "fixture");
        manifest.put("version", "1.0.0");
        manifest.put("kind", kind);
        manifest.put("mode", "plugin");
        manifest.put("language", "java");
        manifest.put("entrypoint", entrypoint);
        return manifest;
    }
}
