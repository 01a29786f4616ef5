package asp.plugin.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import asp.plugin.Answer;
import asp.plugin.Artifact;
import asp.plugin.Caller;
import asp.plugin.CancelledException;
import asp.plugin.Context;
import asp.plugin.Json;
import asp.plugin.LogLevel;
import asp.plugin.PluginException;
import asp.plugin.Property;
import asp.plugin.Question;
import asp.plugin.Storage;
import asp.plugin.TypedTool;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** The context for unit tests: keeps what a handler tells, answers what it asks, and ends it as a worker would. */
class FakeContextTest {
    private static final Artifact ABOUT = new Artifact("a.csv", "csv", "text/csv", "A");
    private static final Duration SECOND = Duration.ofSeconds(1);

    private final FakeContext context = new FakeContext();

    @Test
    void itKeepsWhatTheHandlerTells() {
        context.progress(150, "half", Map.of("rows", 2.0));
        context.chunk("text");
        context.chunk(Map.of("row", 1));
        context.log(System.Logger.Level.WARNING, "careful");
        context.log(LogLevel.EMERGENCY, "storm");
        context.status("reading", Map.of("step", 1));
        context.resourceChanged("x://a");
        context.elicitationCompleted("card");
        String uri = context.artifact(ABOUT, "x,y".getBytes(StandardCharsets.UTF_8));
        context.artifact(new Artifact("b", "link", "", ""), URI.create("https://example.com/b"));
        context.checkpoint(Map.of("done", 1));
        Recorded recorded = context.recorded();
        assertEquals(List.of(new Recorded.Progress(100, "half", Map.of("rows", 2.0))), recorded.progress());
        assertEquals(List.of(Json.tree("text"), Json.tree(Map.of("row", 1))), recorded.chunks());
        Recorded.Line careful = new Recorded.Line(System.Logger.Level.WARNING, "careful");
        Recorded.Line storm = new Recorded.Line(System.Logger.Level.ERROR, "storm", LogLevel.EMERGENCY);
        assertEquals(List.of(careful, storm), recorded.logs());
        assertEquals(List.of(new Recorded.Status("reading", Json.tree(Map.of("step", 1)))), recorded.statuses());
        assertEquals("report://task-1/a.csv", uri);
        assertEquals("x,y", new String(recorded.artifacts().get(0).data(), StandardCharsets.UTF_8));
        assertNull(recorded.artifacts().get(1).data());
        assertEquals(List.of("x://a"), recorded.changedResources());
        assertEquals(List.of("card"), recorded.completedElicitations());
        assertEquals(List.of(Json.tree(Map.of("done", 1))), recorded.checkpoints());
    }

    @Test
    void questionsAndDelegationsGetWhatTheTestGives() {
        context.answer("unit", Map.of("unit", "C")).answer("sure", "decline").answer("really", "cancel");
        context.delegation("judge", Map.of("text", "fine"));
        assertEquals("C", context.elicit("unit", Question.of("Which?")).fields().string("unit"));
        assertEquals(Answer.Action.DECLINE, context.elicit("sure").action());
        assertEquals(Answer.Action.CANCEL, context.elicit("really").action());
        assertEquals("fine", context.delegate("judge", Map.of("n", 1), SECOND).get("text").asText());
        assertEquals("Which?", context.recorded().questions().get(0).question().message());
        assertEquals(List.of(new Recorded.Delegated("judge", Json.tree(Map.of("n", 1)))), context.recorded().delegations());
    }

    @Test
    void whatComesToNothingFailsWithTheWorkersCodes() {
        context.answer("late", "expired").answer("nobody", "unsupported");
        context.delegation("judge", "unavailable").delegation("clerk", "failed: busy");
        fails("INPUT_EXPIRED", Map.of("reason", "expired"), () -> context.elicit("late"));
        fails("INPUT_UNSUPPORTED", Map.of("reason", "unsupported"), () -> context.elicit("nobody"));
        fails("UNDECLARED", Map.of("reason", "undeclared"), () -> context.elicit("other"));
        fails("DELEGATION_FAILED", Map.of("reason", "unavailable"), () -> context.delegate("judge", 1, SECOND));
        fails("DELEGATION_FAILED", Map.of("reason", "failed"), () -> context.delegate("clerk", 1, SECOND));
        fails("UNDECLARED", Map.of("reason", "undeclared"), () -> context.delegate("other", 1, SECOND));
        fails("CHECKPOINT_FAILED", Map.of("reason", "too_large"), () -> context.checkpoint("x".repeat(70_000)));
        context.artifact(ABOUT, new byte[1]);
        fails("ARTIFACT_REFUSED", null, () -> context.artifact(ABOUT, new byte[1]));
    }

    @Test
    void theStorageKeepsValuesForOtherCallsOfTheOrgAndOfTheUser() {
        FakeStorage shared = new FakeStorage();
        Storage storage = context.storage(shared).storage();
        long version = storage.put("n", Map.of("a", 1));
        storage.ofUser().put("mine", 1, Storage.PutOptions.DEFAULT.expiringAfter(Duration.ofMinutes(1)));
        fails("STORAGE_FAILED", Map.of("reason", "conflict"), () -> storage.put("n", 2, onlyIf(0)));
        assertTrue(storage.put("n", 2, onlyIf(version)) != version);
        Storage bobs = new FakeContext().storage(shared).caller(new Caller("acme", "bob", "")).storage();
        assertEquals(2, bobs.get("n").orElseThrow().asInt());
        assertTrue(bobs.ofUser().get("mine").isEmpty());
        Storage others = new FakeContext().storage(shared).caller(new Caller("globex", "alice", "")).storage();
        assertTrue(others.get("n").isEmpty());
        assertEquals(List.of("mine"), storage.ofUser().list("m"));
        shared.advance(Duration.ofSeconds(61));
        assertTrue(storage.ofUser().get("mine").isEmpty());
        assertTrue(storage.delete("n"));
        assertFalse(storage.delete("n"));
        shared.fail("unavailable");
        fails("STORAGE_FAILED", Map.of("reason", "unavailable"), () -> storage.get("n"));
    }

    @Test
    void theStorageHasTheBoundsOfThePlatform() {
        Storage storage = context.storage();
        String large = "x".repeat(65_534);
        Storage.PutOptions brief = Storage.PutOptions.DEFAULT.expiringAfter(Duration.ofMillis(500));
        Storage.PutOptions late = Storage.PutOptions.DEFAULT.expiringAfter(Duration.ofDays(91));
        for (String key : List.of("", "a\n", "ä".repeat(129))) {
            fails("STORAGE_FAILED", Map.of("reason", "bad_key"), () -> storage.put(key, 1));
        }
        fails("STORAGE_FAILED", Map.of("reason", "bad_ttl"), () -> storage.put("k", 1, brief));
        fails("STORAGE_FAILED", Map.of("reason", "bad_ttl"), () -> storage.put("k", 1, late));
        fails("STORAGE_FAILED", Map.of("reason", "too_large"), () -> storage.put("k", large + "x"));
        for (int number = 0; number < 63; number++) {
            storage.put("k" + number, large);
        }
        fails("STORAGE_FAILED", Map.of("reason", "storage_full"), () -> storage.put("more", large));
        storage.put("k0", large);
    }

    private static Storage.PutOptions onlyIf(long version) {
        return Storage.PutOptions.DEFAULT.onlyIf(version);
    }

    private static void fails(String code, Object details, Executable act) {
        PluginException failed = assertThrows(PluginException.class, act);
        assertEquals(code, failed.code());
        assertEquals(details, failed.details());
    }

    @Test
    void aCancelAndTheDeadlineEndTheHandlerWhereItUsesTheContextNext() {
        context.cancel();
        assertTrue(context.cancelled());
        assertThrows(CancelledException.class, () -> context.progress(1, ""));
        FakeContext late = new FakeContext();
        late.expire();
        assertTrue(late.cancelled());
        assertThrows(CancelledException.class, () -> late.chunk("x"));
    }

    @Test
    void aSoftCancelAndAPreemptionEndItAtItsNextStep() {
        context.answer("unit", Map.of());
        context.cancel(FakeContext.Mode.SOFT);
        context.progress(1, "");
        assertTrue(context.cancelled());
        assertThrows(CancelledException.class, () -> context.elicit("unit"));
        FakeContext preempted = new FakeContext();
        preempted.cancel(FakeContext.Mode.PREEMPT);
        assertTrue(preempted.preempted());
        assertFalse(preempted.cancelled());
        assertThrows(CancelledException.class, () -> preempted.checkpoint(Map.of("at", 1)));
        assertEquals(1, preempted.recorded().checkpoints().size());
    }

    @Test
    void aTypedToolIsCalledAsTheWorkerCallsIt() throws Exception {
        Object output = FakeContext.callTool(new Greet(), Map.of(), context);
        assertEquals(Json.tree(Map.of("text", "Hello, you!")), output);
        assertEquals(50, context.recorded().progress().get(0).percent());
        fails(
                "INVALID_ARGUMENT",
                Map.of("pointer", "/name"),
                () -> FakeContext.callTool(new Greet(), Map.of("name", 7), context));
    }

    private static final class Greet implements TypedTool<Greet.Input, Greet.Output> {
        record Input(@Property(defaultValue = "you") String name) {}

        record Output(String text) {}

        @Override
        public Output run(Input input, Context context) {
            context.progress(50, "finding the words");
            return new Output("Hello, " + input.name() + "!");
        }
    }

    @Test
    void itHasTheFactsThatTheTestGives() {
        context.budget(3).token("sesame").deadline(Instant.EPOCH).resume(Map.of("done", 2));
        assertEquals(3, context.budget().orElseThrow());
        assertEquals("***", context.token().orElseThrow().toString());
        assertEquals(Instant.EPOCH, context.deadline().orElseThrow());
        assertEquals(2, context.resume().orElseThrow().state().get("done").asInt());
    }
}
