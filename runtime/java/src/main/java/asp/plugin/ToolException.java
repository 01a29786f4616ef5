package asp.plugin;

/** The tool ran and failed in a way the model should read; the call itself completes, like {@link Result#error}. */
public class ToolException extends RuntimeException {
    public ToolException(String message) {
        super(message);
    }
}
