package asp.plugin;

/**
 * A tool or a task: one method, given the validated arguments and a context. The worker makes one instance, with the
 * public constructor without parameters, and calls {@link #run} on many threads at once.
 */
public interface Tool {
    /**
     * Runs one call.
     *
     * @param arguments valid against the input schema, with its defaults filled in
     * @return anything Jackson turns into JSON (a record, a map, a JsonNode), or a {@link Result}; it is checked
     *         against the output schema
     * @throws PluginException to fail with a code and a message of your own; what else is thrown reaches the caller
     *         as INTERNAL without its text, and standard error with its stack
     */
    Object run(Arguments arguments, Context context) throws Exception;

    /** Says whether this tool saves checkpoints and goes on from {@link Context#resume}. */
    default boolean resumable() {
        return false;
    }
}
