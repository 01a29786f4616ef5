package asp.plugin.worker;

import asp.plugin.PluginException;
import java.util.Map;

/**
 * What a handler catches when a question, a delegation, a checkpoint, a secret or a storage request comes to nothing: the codes that every language
 * has for the same event (runtime/README.md), with the platform's word as `reason`.
 */
public final class Reasons {
    private Reasons() {}

    public static PluginException undeclared(String id) {
        return new PluginException(
                "UNDECLARED",
                "the spec does not declare `" + id + "`: add it to its primitiveDependencies",
                Map.of("reason", "undeclared"));
    }

    /** Nobody answered the question `id`. */
    public static PluginException noInput(String id, String reason) {
        String code = switch (reason) {
            case "expired" -> "INPUT_EXPIRED";
            case "undeclared" -> "UNDECLARED";
            default -> "INPUT_UNSUPPORTED";
        };
        return new PluginException(code, "nobody answered `" + id + "`: " + reason, Map.of("reason", reason));
    }

    /** The delegate `id` gave no answer; after `failed` the platform may say more, in the delegate's own words. */
    public static PluginException noDelegation(String id, String said) {
        String reason = said.startsWith("failed: ") ? "failed" : said;
        return new PluginException("DELEGATION_FAILED", "`" + id + "` failed: " + said, Map.of("reason", reason));
    }

    /** The storage gave no result. */
    public static PluginException noStorage(String reason) {
        return new PluginException("STORAGE_FAILED", "storage: " + reason, Map.of("reason", reason));
    }

    /** The primitive may not use the secret. */
    public static PluginException noSecret(String name) {
        return new PluginException(
                "SECRET_UNAVAILABLE",
                "secret " + name + " is not granted to this primitive",
                Map.of("reason", "not_granted"));
    }

    public static PluginException noCheckpoint(String reason) {
        return new PluginException(
                "CHECKPOINT_FAILED", "the checkpoint was not stored: " + reason, Map.of("reason", reason));
    }
}
