package asp.plugin;

/**
 * Ends a handler whose call was cancelled. Let it pass; catch it only to clean up. A handler may also throw it to give
 * the call up by itself.
 */
public class CancelledException extends RuntimeException {
    public CancelledException(String message) {
        super(message);
    }
}
