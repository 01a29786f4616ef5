package asp.plugin;

import java.util.List;

/** A resource, or all the resources of a URI template. One instance serves many reads at once. */
public interface Resource {
    /**
     * Reads one resource.
     *
     * @param variables the variables of the URI template; empty for a plain resource
     * @throws PluginException with the code NOT_FOUND where there is nothing at `uri`
     */
    List<Content> read(String uri, Arguments variables, Context context) throws Exception;

    /** Lists what a reader may ask for; nothing unless overridden. */
    default List<ResourceInfo> list(Context context) throws Exception {
        return List.of();
    }

    /**
     * Watches a resource until the calling thread is interrupted, because nobody is subscribed any more, and runs
     * `updated` at every change. It is asked where the spec says {@code watched: plugin}; one that returns is asked
     * again. The context's caller has the org alone. Not supported unless overridden.
     */
    default void watch(String uri, Runnable updated, Context context) throws Exception {
        throw new PluginException("UNSUPPORTED", "this resource cannot be watched");
    }

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
