package asp.plugin.worker;

import asp.plugin.Secret;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Map;

/**
 * What the launcher tells the worker: paths in the environment, the token on standard input. Anything missing is
 * refused.
 *
 * @param token 64 hex digits every call must show
 */
public record Settings(Path socket, Path manifest, Path code, Path workDir, Secret token) {
    private static final int TOKEN_DIGITS = 64;

    public static Settings read(Map<String, String> environment, InputStream input) throws Exit.Refusal {
        Settings settings = new Settings(
                path(environment, "ASP_WORKER_SOCKET"),
                path(environment, "ASP_PLUGIN_MANIFEST"),
                path(environment, "ASP_PLUGIN_CODE"),
                path(environment, "ASP_WORK_DIR"),
                token(input));
        Proxy.apply(environment);
        return settings;
    }

    private static Path path(Map<String, String> environment, String name) throws Exit.Refusal {
        String value = environment.get(name);
        if (value == null || value.isEmpty()) {
            throw new Exit.Refusal(Exit.WRONG_ENVIRONMENT, name + " is not set");
        }
        return Path.of(value);
    }

    private static Secret token(InputStream input) throws Exit.Refusal {
        try (input) {
            String line = new String(input.readNBytes(TOKEN_DIGITS + 1), StandardCharsets.US_ASCII).strip();
            if (!line.matches("[0-9a-fA-F]{" + TOKEN_DIGITS + "}")) {
                throw new Exit.Refusal(Exit.WRONG_ENVIRONMENT, "standard input holds no token of 64 hex digits");
            }
            return new Secret(line);
        } catch (IOException fault) {
            throw new Exit.Refusal(Exit.WRONG_ENVIRONMENT, "standard input cannot be read");
        }
    }
}
