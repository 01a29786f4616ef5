package asp.plugin;

/**
 * A failure with a code and a message that are written for the caller. The code is upper case with underscores;
 * `details`, where there are some, is anything Jackson turns into JSON.
 */
public class PluginException extends RuntimeException {
    private final String code;
    private final transient Object details;

    public PluginException(String code, String message) {
        this(code, message, null);
    }

    public PluginException(String code, String message, Object details) {
        super(message);
        if (!code.matches("[A-Z][A-Z0-9_]{0,63}")) {
            throw new IllegalArgumentException("`" + code + "` is no code");
        }
        this.code = code;
        this.details = details;
    }

    public String code() {
        return code;
    }

    public Object details() {
        return details;
    }
}
