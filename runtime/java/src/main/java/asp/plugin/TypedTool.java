package asp.plugin;

/**
 * A tool or a task whose types are records: they are its JSON Schema, which `asp plugin build` writes, so the spec needs
 * none. The arguments come as an `Input`, what is returned goes out as JSON. In all else like {@link Tool}.
 *
 * <p>A record's component is required, unless it is an {@link java.util.Optional}, a boxed number or Boolean (null when
 * it is left out), or has a {@link Property#defaultValue}. Besides records it may be a text, a number, a boolean, an
 * enum, UUID, URI, LocalDate, Instant, OffsetDateTime or Duration, a List, Set, array or Map of such, or a JsonNode.
 *
 * @param <I> a record, or {@link Arguments} where the spec has the schema
 * @param <O> a record; {@link Result}, a map or a JsonNode say nothing, and the spec has the schema
 */
public interface TypedTool<I, O> {
    /**
     * Runs one call.
     *
     * @throws PluginException to fail with a code and a message of your own
     * @throws ToolException to tell the model that and why the tool failed
     */
    O run(I input, Context context) throws Exception;

    /** Says whether this tool saves checkpoints and goes on from {@link Context#resume}. */
    default boolean resumable() {
        return false;
    }
}
