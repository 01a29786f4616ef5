package asp.plugin.worker;

import asp.plugin.Secret;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The operator's named secrets that this process may use: the same ones for every primitive that it serves. They are in no
 * environment.
 */
final class NamedSecrets {
    private static final Map<String, Secret> GRANTED = new ConcurrentHashMap<>();

    private NamedSecrets() {}

    /** Takes what the platform's first message has. */
    static void hold(Map<String, String> granted) {
        granted.forEach((name, text) -> GRANTED.put(name, new Secret(text)));
    }

    /** Returns a secret; throws SECRET_UNAVAILABLE when it is not granted. */
    static Secret find(String name) {
        Secret secret = GRANTED.get(name);
        if (secret == null) {
            throw Reasons.noSecret(name);
        }
        return secret;
    }
}
