package asp.plugin;

import static asp.plugin.CallTest.text;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import asp.plugin.v1.ClientMessage;
import asp.plugin.v1.InitRequest;
import asp.plugin.v1.ListPromptsRequest;
import asp.plugin.v1.ListResourcesRequest;
import asp.plugin.v1.Ping;
import asp.plugin.v1.PromptPluginGrpc;
import asp.plugin.v1.ResourcePluginGrpc;
import asp.plugin.v1.ServerMessage;
import asp.plugin.v1.ToolPluginGrpc;
import com.google.protobuf.Empty;
import io.grpc.Channel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** How workers start, whom they serve, and how they end. */
class LifeTest {
    @Test
    void theGreetingTellsTheShimAndWhetherItResumes() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(Manifests.acts())) {
            var health = ToolPluginGrpc.newBlockingStub(worker.channel(WorkerProcess.TOKEN))
                    .health(Empty.getDefaultInstance());
            assertTrue(health.getOk());
            assertTrue(health.getCapsOrThrow("shim").startsWith("asp-plugin-java/"));
            assertEquals("true", health.getCapsOrThrow("checkpoint"));
        }
    }

    @Test
    void healthTellsOfTheHeapAndOfCollections() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(Manifests.acts()).greet()) {
            var stub = ToolPluginGrpc.newBlockingStub(worker.channel(WorkerProcess.TOKEN));
            var before = stub.health(Empty.getDefaultInstance()).getVitals();
            assertTrue(before.getHeapUsedBytes() > 0 && before.getHeapUsedBytes() <= before.getHeapLimitBytes());
            worker.call("a", Map.of("act", "litter"));
            var after = stub.health(Empty.getDefaultInstance()).getVitals();
            assertTrue(after.getGcCount() > before.getGcCount(), before + " then " + after);
            assertTrue(after.getGcMicros() >= before.getGcMicros());
        }
    }

    @Test
    void withoutTheTokenNoMethodAnswers() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(Manifests.acts())) {
            for (String token : new String[] {null, "", "f".repeat(64), WorkerProcess.TOKEN + "0"}) {
                Channel channel = worker.channel(token);
                assertEquals(
                        Status.Code.UNAUTHENTICATED,
                        code(() -> ToolPluginGrpc.newBlockingStub(channel).health(Empty.getDefaultInstance())));
                assertEquals(
                        Status.Code.UNAUTHENTICATED,
                        code(() -> ResourcePluginGrpc.newBlockingStub(channel)
                                .list(ListResourcesRequest.getDefaultInstance())));
                assertEquals(
                        Status.Code.UNAUTHENTICATED,
                        code(() -> PromptPluginGrpc.newBlockingStub(channel)
                                .list(ListPromptsRequest.getDefaultInstance())));
                var end = new LinkedBlockingQueue<String>();
                WorkerProcess.open(channel, new LinkedBlockingQueue<>(), end);
                assertEquals("UNAUTHENTICATED", end.poll(WorkerProcess.GUARD_SECONDS, TimeUnit.SECONDS));
            }
            worker.greet();
            assertEquals("still here", text(worker.call("a", Map.of("act", "echo", "text", "still here"))));
        }
    }

    @Test
    void aSecondSessionIsRefusedAndTheFirstGoesOn() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(Manifests.acts()).greet()) {
            var end = new LinkedBlockingQueue<String>();
            var second = WorkerProcess.open(worker.channel(WorkerProcess.TOKEN), new LinkedBlockingQueue<>(), end);
            second.onNext(ClientMessage.newBuilder().setInit(InitRequest.getDefaultInstance()).build());
            assertEquals("FAILED_PRECONDITION", end.poll(WorkerProcess.GUARD_SECONDS, TimeUnit.SECONDS));
            assertEquals("first", text(worker.call("a", Map.of("act", "echo", "text", "first"))));
        }
    }

    @Test
    void aSessionThatDoesNotStartWithInitIsOver() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(Manifests.acts())) {
            var end = new LinkedBlockingQueue<String>();
            var session = WorkerProcess.open(worker.channel(WorkerProcess.TOKEN), new LinkedBlockingQueue<>(), end);
            session.onNext(ClientMessage.newBuilder().setPing(Ping.getDefaultInstance()).build());
            assertEquals("INVALID_ARGUMENT", end.poll(WorkerProcess.GUARD_SECONDS, TimeUnit.SECONDS));
            assertEquals(0, worker.exitCode());
        }
    }

    @Test
    void garbageOnTheSocketHurtsNobody() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(Manifests.acts()).greet()) {
            worker.sendRaw("GET / HTTP/1.1\r\nHost: worker\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
            byte[] hugeFrame = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\u007f\u007f\u007f\0\0\0\0\0\0"
                    .getBytes(StandardCharsets.ISO_8859_1);
            worker.sendRaw(hugeFrame);
            assertEquals("unhurt", text(worker.call("a", Map.of("act", "echo", "text", "unhurt"))));
        }
    }

    @Test
    void anOversizeMessageEndsTheSession() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(Manifests.acts()).greet()) {
            worker.invoke("large", Map.of("act", "echo", "filler", "x".repeat(5 << 20)));
            assertEquals(0, worker.exitCode());
            assertNotEquals("OK", worker.streamEnd());
        }
    }

    @Test
    void theEndOfTheSessionCancelsHandlersAndEndsTheWorker() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(Manifests.acts()).greet()) {
            worker.invoke("clean", Map.of("act", "clean-up"));
            worker.next(ServerMessage::hasElicitation);
            worker.endSession();
            assertEquals("OK", worker.streamEnd());
            assertEquals(0, worker.exitCode());
            assertEquals("cleaned up", worker.output().strip());
        }
    }

    @Test
    void aTerminatedWorkerCancelsItsHandlersToo() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(Manifests.acts()).greet()) {
            worker.invoke("clean", Map.of("act", "clean-up"));
            worker.next(ServerMessage::hasElicitation);
            worker.terminate();
            assertEquals(0, worker.exitCode());
            assertEquals("cleaned up", worker.output().strip());
        }
        try (WorkerProcess worker = WorkerProcess.start(Manifests.acts())) {
            worker.terminate();
            assertEquals(0, worker.exitCode());
        }
    }

    @Test
    void aPluginThatEndsTheProcessIsACrash() throws Exception {
        for (int code : new int[] {0, 3}) {
            try (WorkerProcess worker = WorkerProcess.start(Manifests.acts()).greet()) {
                worker.invoke("exit", Map.of("act", "exit", "code", code));
                assertEquals(70, worker.exitCode());
                assertTrue(worker.errors().contains("ended the process"));
            }
        }
    }

    @Test
    void aPluginWithoutMemoryEndsTheWorker() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(Manifests.acts()).greet()) {
            worker.invoke("memory", Map.of("act", "memory"));
            assertEquals(3, worker.exitCode());
        }
    }

    @Test
    void aPluginThatCannotBeLoadedEndsWith78AndTheReasonInTheLastLine() throws Exception {
        Map<String, String> reasons = Map.of(
                "Nowhere", "there is no class asp.plugin.fixtures.Nowhere in the package; runtime.entrypoint names it",
                "Pages", "asp.plugin.fixtures.Pages does not implement asp.plugin.Tool or asp.plugin.TypedTool",
                "Unmakeable", "asp.plugin.fixtures.Unmakeable cannot be made: java.lang.IllegalStateException: no way",
                "NeedsLibrary",
                        "asp.plugin.fixtures.NeedsLibrary needs the class org.junit.jupiter.api.Assertions, which is"
                                + " not in the package: a library is a dependency in the pom.xml beside the code");
        for (Map.Entry<String, String> reason : reasons.entrySet()) {
            String said = refused(Manifests.of("tool", "asp.plugin.fixtures." + reason.getKey()), 78);
            assertEquals(reason.getValue(), said);
        }
        try (WorkerProcess worker = WorkerProcess.launch(
                Manifests.of("tool", "asp.plugin.fixtures.Unmakeable"), Map.of(), WorkerProcess.TOKEN)) {
            assertEquals(78, worker.exitCode());
            assertTrue(worker.errors().contains("Unmakeable.java:10"), worker.errors());
        }
        refused(Manifests.of("dance", "asp.plugin.fixtures.Acts"), 78);
        Map<String, Object> badSchema = Manifests.of("tool", "asp.plugin.fixtures.Acts");
        badSchema.put("inputSchema", Map.of("$ref", "http://127.0.0.1:1/schema"));
        refused(badSchema, 78);
    }

    @Test
    void aWorkerWithoutATokenRefusesToRun() throws Exception {
        for (String token : new String[] {"", "short", "g".repeat(64)}) {
            try (WorkerProcess worker = WorkerProcess.launch(Manifests.acts(), Map.of(), token)) {
                assertEquals(64, worker.exitCode());
            }
        }
    }

    /** Returns the last line, which is the only one unless the plugin threw. */
    private static String refused(Map<String, Object> manifest, int code) throws Exception {
        try (WorkerProcess worker = WorkerProcess.launch(manifest, Map.of(), WorkerProcess.TOKEN)) {
            assertEquals(code, worker.exitCode(), worker.errors());
            List<String> lines = worker.errors().strip().lines().toList();
            assertTrue(lines.size() == 1 || worker.errors().contains("\tat "), worker.errors());
            return lines.get(lines.size() - 1);
        }
    }

    private static Status.Code code(Runnable call) {
        return assertThrows(StatusRuntimeException.class, call::run).getStatus().getCode();
    }
}
