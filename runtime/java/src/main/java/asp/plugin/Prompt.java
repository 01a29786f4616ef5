package asp.plugin;

import java.util.List;

/** A prompt: messages made from its arguments. One instance serves many calls at once. */
public interface Prompt {
    /** Returns the messages for the given arguments. */
    PromptMessages get(Arguments arguments, Context context) throws Exception;

    /**
     * Lists what could be meant by `value`, which somebody types for `argument`, best first. It is asked for arguments
     * of which the spec says {@code completions: {argument: plugin}}. Not supported unless overridden.
     *
     * @param known the other arguments, as far as the client tells them
     */
    default List<String> complete(String argument, String value, Arguments known, Context context) throws Exception {
        throw new PluginException("UNSUPPORTED", "this plugin completes nothing: it does not override `complete`");
    }
}
