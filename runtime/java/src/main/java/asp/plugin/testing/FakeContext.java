package asp.plugin.testing;

import asp.plugin.Answer;
import asp.plugin.Arguments;
import asp.plugin.Artifact;
import asp.plugin.Caller;
import asp.plugin.CancelledException;
import asp.plugin.Context;
import asp.plugin.Json;
import asp.plugin.LogLevel;
import asp.plugin.PluginException;
import asp.plugin.Question;
import asp.plugin.Result;
import asp.plugin.Resume;
import asp.plugin.Secret;
import asp.plugin.Storage;
import asp.plugin.TypedTool;
import asp.plugin.worker.Reasons;
import asp.plugin.worker.Typed;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * A context for unit tests of a handler, without a worker: keeps what the handler tells in {@link #recorded}, answers what
 * it asks by what the test has given, and can be stopped by {@link #cancel} and {@link #expire}. A question or delegate
 * without an answer is undeclared. Codes are the worker's.
 *
 * <pre>
 * FakeContext context = new FakeContext().answer("which_unit", Map.of("unit", "C")).delegation("judge", "unavailable");
 * Output output = new Main().run(new Input("Oslo"), context);
 * </pre>
 */
public final class FakeContext implements Context {
    private static final int MAX_CAPSULE = 64 << 10;

    private final Recorded recorded = new Recorded();
    private final Map<String, Object> answers = new HashMap<>();
    private final Map<String, Object> delegations = new HashMap<>();
    private Instant deadline;
    private Long budget;
    private Secret token;
    private final Map<String, Secret> secrets = new HashMap<>();
    private Caller caller = new Caller("acme", "alice", "");
    private Resume resume;
    private FakeStorage storage = new FakeStorage();
    private Mode stopped;
    private String reason = "";
    private boolean preempted;
    private boolean saved;

    /** How a call is asked to stop. */
    public enum Mode {
        /** Ends the handler where it uses the context next. */
        HARD,
        /** Ends it at its next question or checkpoint. */
        SOFT,
        /** Ends it at its next checkpoint, and at a question once it has one. */
        PREEMPT
    }

    /** Gives the fields of an accepted form; or one of decline, cancel, expired, unsupported. */
    public FakeContext answer(String id, Object fieldsOrWord) {
        answers.put(id, fieldsOrWord);
        return this;
    }

    /** Gives a delegate's result; or, as a String, the word that says why there is none. */
    public FakeContext delegation(String id, Object resultOrWord) {
        delegations.put(id, resultOrWord);
        return this;
    }

    public FakeContext caller(Caller whose) {
        caller = whose;
        return this;
    }

    public FakeContext deadline(Instant end) {
        deadline = end;
        return this;
    }

    public FakeContext budget(long left) {
        budget = left;
        return this;
    }

    public FakeContext token(String text) {
        token = new Secret(text);
        return this;
    }

    /** Grants a named secret. */
    public FakeContext secret(String name, String text) {
        secrets.put(name, new Secret(text));
        return this;
    }

    /** Gives a storage that other calls share. */
    public FakeContext storage(FakeStorage shared) {
        storage = shared;
        return this;
    }

    /** Makes it the second execution of a call that saved this state. */
    public FakeContext resume(Object state) {
        resume = new Resume(Json.tree(state), 1, 2, new Secret("resume"));
        saved = true;
        return this;
    }

    /** Calls a handler with JSON arguments as the worker does, and returns its output as JSON, or its {@link Result}. */
    public static Object callTool(TypedTool<?, ?> tool, Map<String, ?> arguments, Context context) throws Exception {
        return Typed.of(tool).run(Arguments.of(arguments), context);
    }

    /** Stops the call at once. */
    public void cancel() {
        cancel(Mode.HARD);
    }

    /** Asks the call to stop. */
    public void cancel(Mode mode) {
        cancel(mode, "the call was cancelled");
    }

    /** Asks the call to stop, and says why. */
    public synchronized void cancel(Mode mode, String why) {
        stop(mode, why);
    }

    /** Stops the call because its deadline has passed. */
    public synchronized void expire() {
        stop(Mode.HARD, "the call's time is over");
    }

    private void stop(Mode mode, String why) {
        preempted |= mode == Mode.PREEMPT && stopped == null;
        // A milder request never undoes a harder one.
        if (stopped == null || mode.compareTo(stopped) < 0) {
            stopped = mode;
            reason = why;
        }
    }

    /** What the handler told, in its order. */
    public Recorded recorded() {
        return recorded;
    }

    @Override
    public synchronized void progress(double percent, String message, Map<String, Double> gauges) {
        goOn();
        if (Double.isNaN(percent)) {
            throw new IllegalArgumentException("the percentage is no number");
        }
        double inside = Math.max(0, Math.min(100, percent));
        recorded.progress().add(new Recorded.Progress(inside, message, Map.copyOf(gauges)));
    }

    @Override
    public synchronized void chunk(Object part) {
        goOn();
        recorded.chunks().add(Json.tree(part));
    }

    @Override
    public synchronized String artifact(Artifact about, byte[] data) {
        goOn();
        if (recorded.artifacts().stream().anyMatch(sent -> sent.about().name().equals(about.name()))) {
            throw new PluginException("ARTIFACT_REFUSED", "the call has an artifact `" + about.name() + "` already");
        }
        String uri = "report://" + taskId() + "/" + about.name();
        recorded.artifacts().add(new Recorded.Sent(about, uri, data.clone()));
        return uri;
    }

    @Override
    public String artifact(Artifact about, Path file) {
        try {
            return artifact(about, Files.readAllBytes(file));
        } catch (IOException fault) {
            throw new UncheckedIOException(fault);
        }
    }

    @Override
    public synchronized String artifact(Artifact about, URI existing) {
        goOn();
        recorded.artifacts().add(new Recorded.Sent(about, existing.toString(), null));
        return existing.toString();
    }

    @Override
    public synchronized void log(System.Logger.Level level, String message) {
        recorded.logs().add(new Recorded.Line(level, message));
    }

    @Override
    public synchronized void log(LogLevel level, String message) {
        recorded.logs().add(new Recorded.Line(level.nearest(), message, level));
    }

    @Override
    public synchronized void elicitationCompleted(String id) {
        goOn();
        recorded.completedElicitations().add(id);
    }

    @Override
    public synchronized void resourceChanged(String uri) {
        goOn();
        recorded.changedResources().add(uri);
    }

    @Override
    public synchronized Answer elicit(String id, Question question) {
        Object given = given(answers, id);
        recorded.questions().add(new Recorded.Asked(id, question));
        if (given instanceof String word && !word.equals("decline") && !word.equals("cancel")) {
            throw Reasons.noInput(id, word);
        }
        if (given instanceof String word) {
            return new Answer(Answer.Action.valueOf(word.toUpperCase(java.util.Locale.ROOT)), Arguments.of(Map.of()));
        }
        return new Answer(Answer.Action.ACCEPT, Arguments.of(Json.tree(given)));
    }

    @Override
    public synchronized JsonNode delegate(String id, Object input, Duration timeout) {
        Object given = given(delegations, id);
        recorded.delegations().add(new Recorded.Delegated(id, Json.tree(input)));
        if (given instanceof String word) {
            throw Reasons.noDelegation(id, word);
        }
        return Json.tree(given);
    }

    @Override
    public JsonNode converse(String id, Object conversation, Duration timeout) {
        return delegate(id, conversation, timeout);
    }

    private Object given(Map<String, Object> known, String id) {
        Object given = known.get(id);
        if (given == null) {
            throw Reasons.undeclared(id);
        }
        goOn();
        if (stopped == Mode.SOFT || stopped == Mode.PREEMPT && saved) {
            throw new CancelledException(reason);
        }
        return given;
    }

    @Override
    public synchronized void checkpoint(Object state) {
        goOn();
        byte[] capsule = Json.bytes(state);
        if (capsule.length > MAX_CAPSULE) {
            throw Reasons.noCheckpoint("too_large");
        }
        recorded.checkpoints().add(Json.tree(state));
        saved = true;
        if (stopped != null) {
            throw new CancelledException(reason);
        }
    }

    @Override
    public synchronized Storage storage() {
        goOn();
        return storage.of(caller);
    }

    @Override
    public synchronized void status(String phase, Map<String, ?> metadata) {
        goOn();
        recorded.statuses().add(new Recorded.Status(phase, Json.tree(metadata)));
    }

    private void goOn() {
        if (stopped == Mode.HARD) {
            throw new CancelledException(reason);
        }
    }

    @Override
    public synchronized boolean cancelled() {
        return stopped == Mode.HARD || stopped == Mode.SOFT;
    }

    @Override
    public synchronized boolean preempted() {
        return preempted;
    }

    @Override
    public Optional<Instant> deadline() {
        return Optional.ofNullable(deadline);
    }

    @Override
    public OptionalLong budget() {
        return budget == null ? OptionalLong.empty() : OptionalLong.of(budget);
    }

    @Override
    public Optional<Secret> token() {
        return Optional.ofNullable(token);
    }

    @Override
    public Secret secret(String name) {
        Secret secret = secrets.get(name);
        if (secret == null) {
            throw Reasons.noSecret(name);
        }
        return secret;
    }

    @Override
    public String taskId() {
        return "task-1";
    }

    @Override
    public String requestId() {
        return "call-1";
    }

    @Override
    public Caller caller() {
        return caller;
    }

    @Override
    public Map<String, String> attributes() {
        return Map.of();
    }

    @Override
    public Optional<Resume> resume() {
        return Optional.ofNullable(resume);
    }
}
