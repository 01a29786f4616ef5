package asp.plugin;

import com.fasterxml.jackson.databind.JsonNode;
import java.net.URI;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * What the platform gives one call. Safe to use from any thread while the call runs; afterwards every method that sends
 * something throws {@link IllegalStateException}.
 *
 * <p>Cancellation is native: the handler's thread is interrupted, {@link #cancelled} turns true, and methods that send
 * or wait throw {@link CancelledException}. A soft cancel (the deadline is near: finish the step in hand) and a
 * preemption (save a checkpoint and yield) interrupt nothing: questions throw (a preempted call's once it has a
 * checkpoint), {@link #cancelled} or {@link #preempted} is true, the next {@link #checkpoint} throws once it is stored,
 * and what the handler returns is its result.
 */
public interface Context {
    /** Tells how far the call is, in percent; values outside 0..100 are set to the nearer end. */
    default void progress(double percent, String message) {
        progress(percent, message, Map.of());
    }

    /** As above, with named figures. */
    void progress(double percent, String message, Map<String, Double> gauges);

    /** Sends a part of the result: a string as text, anything else as JSON. At most 4 MiB. */
    void chunk(Object part);

    /**
     * Sends bytes as an artifact.
     *
     * @return the URI under which the platform keeps it, until the call's owner reads it
     * @throws PluginException ARTIFACT_REFUSED when the call's artifacts pass the plugin's disk limit, or the name is taken
     */
    String artifact(Artifact about, byte[] data);

    /** Sends a file as an artifact; as above. */
    String artifact(Artifact about, Path file);

    /** Names something that is kept elsewhere, by its absolute URI. */
    String artifact(Artifact about, URI existing);

    /** Logs a line of at most 16 KiB for the call; java.util.logging on the handler's thread comes here too. */
    void log(System.Logger.Level level, String message);

    /** Logs a line as above, at one of MCP's levels. */
    void log(LogLevel level, String message);

    /** Asks the user the declared question `id`, with the text and fields of its spec. Waits for the answer. */
    default Answer elicit(String id) {
        return elicit(id, Question.asDeclared());
    }

    /**
     * Asks the user the declared question `id`. Waits for the answer; at most 16 questions of a call may be open.
     *
     * @throws PluginException UNDECLARED when the spec does not list `id`; INPUT_UNSUPPORTED when nobody can be asked,
     *         INPUT_EXPIRED when nobody answered in time
     */
    Answer elicit(String id, Question question);

    /** Says that the user has done on the page of the question `id` what was to be done there; clients may be told. */
    void elicitationCompleted(String id);

    /**
     * Says that a resource of the server through which the call came reads otherwise than before: who of the caller's
     * org subscribed to it is told.
     */
    void resourceChanged(String uri);

    /**
     * Asks the declared delegate `id`, a model or another primitive, and waits for its result.
     *
     * @throws PluginException UNDECLARED; DELEGATION_FAILED with the `reason` in its details, `expired` after `timeout`
     */
    JsonNode delegate(String id, Object input, Duration timeout);

    /**
     * Asks a model, which may use tools, by a delegate whose spec says {@code sampling.tools}, and waits. The
     * answer's `content` has its blocks: where its `stopReason` is `toolUse`, run what the `tool_use` blocks name, add
     * the answer and a user message of `tool_result` blocks to the messages, and ask again.
     *
     * @param conversation the part {@code {messages, tools, toolChoice}} of MCP's `sampling/createMessage`
     * @throws PluginException as {@link #delegate} does
     */
    JsonNode converse(String id, Object conversation, Duration timeout);

    /**
     * Saves the state another worker can go on from, as JSON of at most 64 KiB. Returns when it is stored.
     *
     * @throws PluginException CHECKPOINT_FAILED with the `reason` in its details: too_large, stale or unavailable
     */
    void checkpoint(Object state);

    /** Returns the keys and values that outlive the call, where the spec says {@code storage: true}. */
    Storage storage();

    /** Shows the plugin's own state to observers. */
    default void status(String phase) {
        status(phase, Map.of());
    }

    /** As above, with details. */
    void status(String phase, Map<String, ?> metadata);

    /**
     * True once the call is cancelled, out of time or nearly so: a loop without other calls should look here, and end.
     * Not true for a preempted call.
     */
    boolean cancelled();

    /** True once the call is to save: its next checkpoint ends it here, and it goes on from there elsewhere. */
    boolean preempted();

    /** The absolute end of the call. */
    Optional<Instant> deadline();

    /** Calls left in the caller's tightest rate limit. */
    OptionalLong budget();

    /** A short-lived token for the services this plugin may call. */
    Optional<Secret> token();

    /**
     * Returns the operator's secret of this name, which the spec lists in {@code runtime.secrets}.
     *
     * @throws PluginException SECRET_UNAVAILABLE when the operator does not grant it to the primitive
     */
    Secret secret(String name);

    String taskId();

    String requestId();

    Caller caller();

    /** Trace context and the like; `traceparent` where the caller sent one. */
    Map<String, String> attributes();

    /** Present when an earlier worker was lost: go on from there instead of starting. */
    Optional<Resume> resume();
}
