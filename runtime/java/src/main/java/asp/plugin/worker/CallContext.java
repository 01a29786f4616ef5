package asp.plugin.worker;

import asp.plugin.Answer;
import asp.plugin.Arguments;
import asp.plugin.Artifact;
import asp.plugin.Caller;
import asp.plugin.Context;
import asp.plugin.Json;
import asp.plugin.LogLevel;
import asp.plugin.PluginException;
import asp.plugin.Question;
import asp.plugin.Resume;
import asp.plugin.Secret;
import asp.plugin.Storage;
import asp.plugin.v1.Checkpoint;
import asp.plugin.v1.CheckpointAck;
import asp.plugin.v1.DelegationRequested;
import asp.plugin.v1.DeliverDelegationResult;
import asp.plugin.v1.DeliverUserInput;
import asp.plugin.v1.ServerMessage;
import com.fasterxml.jackson.databind.JsonNode;
import com.google.protobuf.ByteString;
import com.google.protobuf.Duration;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;

/** The author's view of a {@link Call}. Lets nothing undeclared and nothing oversize through. */
final class CallContext implements Context {
    private final Call call;
    private final Manifest manifest;
    private final Uploads uploads;
    private final Replay replay;
    private final Object checkpointOrder = new Object();
    private long seq;

    CallContext(Call call, Manifest manifest) {
        this.call = call;
        this.manifest = manifest;
        this.uploads = new Uploads(call, manifest.diskBytes());
        this.replay = new Replay(call.request().resume());
        this.seq = call.request().resume() == null ? 0 : call.request().resume().getSeq();
    }

    @Override
    public void progress(double percent, String message, Map<String, Double> gauges) {
        if (Double.isNaN(percent)) {
            throw new IllegalArgumentException("the percentage is no number");
        }
        double inside = Math.max(0, Math.min(100, percent));
        send(Events.progress(request(), inside, message, gauges));
    }

    @Override
    public void chunk(Object part) {
        if (part instanceof String text) {
            bounded(ByteString.copyFromUtf8(text).size(), "chunk");
            send(Events.text(request(), text));
        } else {
            byte[] json = Json.bytes(part);
            bounded(json.length, "chunk");
            send(Events.structured(request(), json));
        }
    }

    @Override
    public String artifact(Artifact about, byte[] data) {
        events();
        try {
            return uploads.send(about, new ByteArrayInputStream(data), data.length);
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible);
        }
    }

    @Override
    public String artifact(Artifact about, Path file) {
        events();
        try (InputStream data = Files.newInputStream(file)) {
            return uploads.send(about, data, Files.size(file));
        } catch (IOException fault) {
            throw new UncheckedIOException(fault);
        }
    }

    @Override
    public String artifact(Artifact about, URI existing) {
        events();
        return uploads.name(about, existing);
    }

    @Override
    public void log(System.Logger.Level level, String message) {
        log(Events.log(request(), Events.level(level), message), level + "", message);
    }

    @Override
    public void log(LogLevel level, String message) {
        log(Events.log(request(), level, message), level + "", message);
    }

    private void log(ServerMessage line, String level, String message) {
        if (!call.hasEvents() || !call.log(line)) {
            System.err.println(level + " call " + request().requestId() + ": " + message);
        }
    }

    @Override
    public Answer elicit(String id, Question question) {
        declared(manifest.elicitations().contains(id), id);
        events();
        DeliverUserInput given = replay.input(id);
        if (given == null) {
            CompletableFuture<DeliverUserInput> answer = call.inputs().open(id);
            call.send(Events.question(request(), id, question));
            given = call.inputs().await(id, answer, 0);
        }
        if (!given.getError().isEmpty()) {
            throw Reasons.noInput(id, given.getError());
        }
        replay.had(id);
        Answer.Action action = switch (given.getAction()) {
            case ACCEPT -> Answer.Action.ACCEPT;
            case DECLINE -> Answer.Action.DECLINE;
            default -> Answer.Action.CANCEL;
        };
        boolean accepted = action == Answer.Action.ACCEPT;
        return new Answer(action, accepted ? Arguments.of(parse(given.getFields())) : Arguments.of(Map.of()));
    }

    @Override
    public JsonNode delegate(String id, Object input, java.time.Duration timeout) {
        return delegate(id, input, timeout, DelegationRequested.Builder::setInput);
    }

    @Override
    public JsonNode converse(String id, Object conversation, java.time.Duration timeout) {
        return delegate(id, conversation, timeout, DelegationRequested.Builder::setConversation);
    }

    private JsonNode delegate(
            String id,
            Object input,
            java.time.Duration timeout,
            java.util.function.BiConsumer<DelegationRequested.Builder, asp.plugin.v1.Json> put) {
        declared(manifest.delegations().contains(id), id);
        events();
        byte[] json = Json.bytes(input);
        bounded(json.length, "input of a delegation");
        String correlation = replay.correlation(id, json);
        DeliverDelegationResult given = replay.result(correlation);
        if (given == null) {
            CompletableFuture<DeliverDelegationResult> answer = call.delegations().open(correlation);
            DelegationRequested.Builder asked = DelegationRequested.newBuilder()
                    .setRequestId(request().requestId())
                    .setTaskId(request().taskId())
                    .setCorrelationId(correlation)
                    .setDelegateId(id)
                    .setTimeout(Duration.newBuilder()
                            .setSeconds(timeout.getSeconds())
                            .setNanos(timeout.getNano()));
            put.accept(asked, Events.json(json));
            call.send(ServerMessage.newBuilder().setDelegation(asked).build());
            given = call.delegations().await(correlation, answer, Math.max(1, timeout.toMillis()));
        }
        if (given == null) {
            throw Reasons.noDelegation(id, "expired");
        }
        if (!given.getError().isEmpty()) {
            throw Reasons.noDelegation(id, given.getError());
        }
        return parse(given.getResult());
    }

    @Override
    public void checkpoint(Object state) {
        events();
        byte[] capsule = replay.capsule(state);
        if (capsule.length > Limits.CAPSULE_BYTES) {
            throw Reasons.noCheckpoint("too_large");
        }
        // One at a time, so that the numbers rise on the wire.
        synchronized (checkpointOrder) {
            String key = Long.toString(++seq);
            CompletableFuture<CheckpointAck> stored = call.checkpoints().open(key);
            call.send(ServerMessage.newBuilder()
                    .setCheckpoint(Checkpoint.newBuilder()
                            .setRequestId(request().requestId())
                            .setSeq(seq)
                            .setCapsule(ByteString.copyFrom(capsule)))
                    .build());
            CheckpointAck ack = call.checkpoints().await(key, stored, 0);
            if (!ack.getError().isEmpty()) {
                throw Reasons.noCheckpoint(ack.getError());
            }
            call.saved();
        }
    }

    @Override
    public Storage storage() {
        events();
        return new CallStorage(call, false);
    }

    @Override
    public void status(String phase, Map<String, ?> metadata) {
        byte[] json = Json.bytes(metadata);
        bounded(json.length, "status");
        send(Events.status(request(), phase, json));
    }

    @Override
    public void elicitationCompleted(String id) {
        send(Events.visited(request(), id));
    }

    @Override
    public void resourceChanged(String uri) {
        send(Events.changed(request(), uri));
    }

    @Override
    public boolean cancelled() {
        return call.cancelled();
    }

    @Override
    public boolean preempted() {
        return call.preempted();
    }

    @Override
    public Optional<Instant> deadline() {
        return Optional.ofNullable(request().deadline());
    }

    @Override
    public OptionalLong budget() {
        Long budget = request().budget();
        return budget == null ? OptionalLong.empty() : OptionalLong.of(budget);
    }

    @Override
    public Optional<Secret> token() {
        return Optional.ofNullable(request().token());
    }

    @Override
    public Secret secret(String name) {
        return NamedSecrets.find(name);
    }

    @Override
    public String taskId() {
        return request().taskId();
    }

    @Override
    public String requestId() {
        return request().requestId();
    }

    @Override
    public Caller caller() {
        return request().caller();
    }

    @Override
    public Map<String, String> attributes() {
        return request().attributes();
    }

    @Override
    public Optional<Resume> resume() {
        asp.plugin.v1.Resume resume = request().resume();
        if (resume == null) {
            return Optional.empty();
        }
        return Optional.of(new Resume(
                replay.state(), resume.getSeq(), resume.getAttempt(), new Secret(resume.getResumeToken())));
    }

    private Request request() {
        return call.request();
    }

    /** Progress and the like are for observers: a method without events drops them. */
    private void send(ServerMessage event) {
        if (call.hasEvents()) {
            call.send(event);
        } else {
            call.goOn();
        }
    }

    /** What needs the platform's answer works for tools and tasks only. */
    private void events() {
        if (!call.hasEvents()) {
            throw new PluginException("UNSUPPORTED", "only tools and tasks can do this");
        }
    }

    private static void declared(boolean declared, String id) {
        if (!declared) {
            throw Reasons.undeclared(id);
        }
    }

    private static void bounded(int bytes, String what) {
        if (bytes > Limits.PAYLOAD_BYTES) {
            throw new PluginException("TOO_LARGE", "a " + what + " has at most " + Limits.PAYLOAD_BYTES + " bytes");
        }
    }

    static JsonNode parse(asp.plugin.v1.Json json) {
        try {
            return Json.parse(json.getValue().toByteArray());
        } catch (IOException fault) {
            throw new IllegalStateException("the platform sent no JSON", fault);
        }
    }
}
