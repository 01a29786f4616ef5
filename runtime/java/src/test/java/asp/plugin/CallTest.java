package asp.plugin;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import asp.plugin.v1.ClientMessage;
import asp.plugin.v1.Failed;
import asp.plugin.v1.LogLine;
import asp.plugin.v1.Ping;
import asp.plugin.v1.ServerMessage;
import asp.plugin.v1.StatusUpdated;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Calls, their events and their ends, over one worker that must survive them all. */
class CallTest {
    private static WorkerProcess worker;

    @BeforeAll
    static void start() throws Exception {
        worker = WorkerProcess.start(Manifests.acts()).greet();
    }

    @AfterAll
    static void stop() throws Exception {
        worker.close();
    }

    @Test
    void aCallReturnsWhatTheHandlerReturns() throws Exception {
        assertEquals("hello", text(worker.call("echo", Map.of("act", "echo", "text", "hello"))));
        List<ServerMessage> record = worker.call("record", Map.of("act", "record", "text", "r"));
        assertEquals(1.5, WorkerProcess.tree(last(record).getCompleted().getOutput()).get("total").asDouble());
    }

    @Test
    void aPingIsAnsweredWhileCallsRun() throws Exception {
        worker.invoke("busy", Map.of("act", "watch-flag"));
        worker.next(ServerMessage::hasProgress);
        worker.send(ClientMessage.newBuilder().setPing(Ping.newBuilder().setNonce("n1")).build());
        assertEquals("n1", worker.next(ServerMessage::hasPong).getPong().getNonce());
        CancelTest.cancel(worker, "busy");
        worker.end();
    }

    @Test
    void eventsComeInTheirOrder() throws Exception {
        List<ServerMessage> all = worker.call("tell", Map.of("act", "tell"));
        assertEquals(StatusUpdated.Status.WORKING, all.get(0).getStatus().getStatus());
        assertEquals("working", all.get(0).getStatus().getPhase());
        assertEquals(50, all.get(1).getProgress().getPercent());
        assertEquals(3.0, all.get(1).getProgress().getGaugesOrThrow("items"));
        assertEquals("task-tell", all.get(1).getProgress().getTaskId());
        assertEquals("a text", all.get(2).getChunk().getText());
        assertEquals("{\"a\":1}", all.get(3).getChunk().getStructured().getValue().toStringUtf8());
        assertEquals(100, all.get(4).getProgress().getPercent());
        assertTrue(all.get(5).hasCompleted());
    }

    @Test
    void logsGoToTheCallAndStacksDoNot() throws Exception {
        List<ServerMessage> all = worker.call("log", Map.of("act", "log"));
        List<LogLine> lines = all.stream()
                .filter(ServerMessage::hasLog)
                .map(ServerMessage::getLog)
                .toList();
        assertEquals("from the context", lines.get(0).getMessage());
        assertEquals(LogLine.Level.WARN, lines.get(0).getLevel());
        assertEquals("from the logger", lines.get(1).getMessage());
        assertEquals("with a stack", lines.get(2).getMessage());
        assertTrue(worker.errors().contains("IllegalStateException: secret"));
        int bytes = lines.get(3).getMessageBytes().size();
        assertTrue(bytes <= 16_384 && bytes > 16_380, "cut to " + bytes);
        List<String> severities =
                lines.stream().skip(4).map(LogLine::getSeverity).toList();
        assertEquals(
                List.of("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"),
                severities);
        assertEquals(LogLine.Level.ERROR, lines.get(11).getLevel());
        assertTrue(worker.output().contains("from standard output"));
    }

    @Test
    void aLogOfAnotherThreadReachesNoCaller() throws Exception {
        assertEquals(1, worker.call("elsewhere", Map.of("act", "log-elsewhere")).size());
        assertTrue(worker.errors().contains("from another thread"));
    }

    @Test
    void bytesBecomeAnArtifactInPieces() throws Exception {
        List<ServerMessage> all = worker.call("bytes", Map.of("act", "bytes", "size", 150_000));
        List<Integer> sizes = all.stream()
                .filter(ServerMessage::hasArtifactData)
                .map(message -> message.getArtifactData().getData().size())
                .toList();
        assertEquals(List.of(65_536, 65_536, 18_928), sizes);
        assertEquals(131_072, all.get(2).getArtifactData().getOffset());
        var artifact = all.get(3).getArtifact();
        assertEquals("report://task-bytes/report.txt", artifact.getUri());
        assertEquals(150_000, artifact.getSize());
        byte[] digest = java.security.MessageDigest.getInstance("SHA-256").digest(new byte[150_000]);
        assertEquals(HexFormat.of().formatHex(digest), artifact.getSha256());
        assertEquals(artifact.getUri(), text(all));
    }

    @Test
    void aFileBecomesAnArtifact() throws Exception {
        List<ServerMessage> all = worker.call("file", Map.of("act", "file"));
        var artifact = all.stream().filter(ServerMessage::hasArtifact).findFirst().orElseThrow().getArtifact();
        assertEquals(200_000, artifact.getSize());
        assertEquals("text/plain", artifact.getContentType());
    }

    @Test
    void anEmptyArtifactAndALinkHaveNoPieces() throws Exception {
        List<ServerMessage> empty = worker.call("empty", Map.of("act", "bytes", "size", 0));
        assertEquals(0, empty.get(0).getArtifact().getSize());
        List<ServerMessage> link = worker.call("link", Map.of("act", "link"));
        assertEquals("https://example.com/report", link.get(0).getArtifact().getUri());
        assertEquals("", link.get(0).getArtifact().getSha256());
    }

    @Test
    void anArtifactPastTheDiskLimitIsRefused() throws Exception {
        List<ServerMessage> all = worker.call("large", Map.of("act", "bytes", "size", 1_000_001));
        assertEquals("ARTIFACT_REFUSED", last(all).getFailed().getCode());
        assertFalse(all.stream().anyMatch(ServerMessage::hasArtifact));
    }

    @Test
    void argumentsThatDoNotFitNeverReachTheHandler() throws Exception {
        Failed missing = failed(worker.call("missing", Map.of("text", "x")));
        assertEquals("INVALID_ARGUMENT", missing.getCode());
        assertTrue(missing.getMessage().contains("act"), missing.getMessage());
        Failed format = failed(worker.call("format", Map.of("act", "echo", "mail", "nobody")));
        assertEquals("INVALID_ARGUMENT", format.getCode());
        assertEquals("/mail", WorkerProcess.tree(format.getDetails()).get("pointer").asText());
        assertEquals("INVALID_ARGUMENT", failed(worker.call("array", List.of())).getCode());
    }

    @Test
    void aWholeNumberWithAPointIsAnInteger() throws Exception {
        assertEquals("x", text(worker.call("whole", Map.of("act", "echo", "text", "x", "code", 1.0))));
        assertEquals("INVALID_ARGUMENT", failed(worker.call("half", Map.of("act", "echo", "code", 1.5))).getCode());
    }

    @Test
    void temporaryFilesGoToTheWorkDirectory() throws Exception {
        assertEquals("work", text(worker.call("temporary", Map.of("act", "temporary"))));
    }

    @Test
    void aPatternRunsInLinearTime() throws Exception {
        String hostile = "a".repeat(40) + "!";
        Failed failed = failed(worker.call("regex", Map.of("act", "echo", "word", hostile)));
        assertEquals("INVALID_ARGUMENT", failed.getCode());
    }

    @Test
    void outputThatDoesNotFitIsRefused() throws Exception {
        Failed wrong = failed(worker.call("wrong", Map.of("act", "wrong-output")));
        assertEquals("INVALID_OUTPUT", wrong.getCode());
        assertTrue(wrong.getMessage().contains("/text"), wrong.getMessage());
        assertEquals("INVALID_OUTPUT", failed(worker.call("big", Map.of("act", "large-output"))).getCode());
        assertEquals("INVALID_OUTPUT", failed(worker.call("loop", Map.of("act", "loop-output"))).getCode());
    }

    @Test
    void aFailureOfThePluginKeepsItsCodeAndDetails() throws Exception {
        Failed own = failed(worker.call("fail", Map.of("act", "fail")));
        assertEquals("NO_SUCH_CITY", own.getCode());
        assertEquals("there is no such city", own.getMessage());
        assertEquals("{\"city\":\"X\"}", own.getDetails().getValue().toStringUtf8());
    }

    @Test
    void anUnexpectedExceptionTellsTheCallerNothing() throws Exception {
        Failed internal = failed(worker.call("throw", Map.of("act", "throw")));
        assertEquals("INTERNAL", internal.getCode());
        assertEquals("the plugin failed; its log says why", internal.getMessage());
        assertTrue(worker.errors().contains("IllegalStateException: the password is hunter2"));
        assertEquals("INTERNAL", failed(worker.call("overflow", Map.of("act", "overflow"))).getCode());
        assertEquals("INTERNAL", failed(worker.call("unreadable", Map.of("act", "unreadable"))).getCode());
    }

    @Test
    void aResultMayBeAnErrorForTheModelOrHaveContent() throws Exception {
        var error = last(worker.call("error", Map.of("act", "error"))).getCompleted();
        assertTrue(error.getIsError());
        assertFalse(error.hasOutput());
        assertTrue(error.getContent().getValue().toStringUtf8().contains("on fire"));
        var content = last(worker.call("content", Map.of("act", "content"))).getCompleted();
        assertEquals("image", WorkerProcess.tree(content.getContent()).get(0).get("type").asText());
    }

    @Test
    void manyCallsRunAtOnce() throws Exception {
        for (int i = 0; i < 50; i++) {
            worker.invoke("many-" + i, Map.of("act", "echo", "text", "t" + i));
        }
        Map<String, String> answers = new HashMap<>();
        for (int i = 0; i < 50; i++) {
            ServerMessage end = worker.next(WorkerProcess::isEnd);
            answers.put(end.getCompleted().getRequestId(), text(List.of(end)));
        }
        assertEquals(50, answers.size());
        assertTrue(answers.entrySet().stream().allMatch(e -> e.getKey().equals(e.getValue().replace("t", "many-"))));
    }

    @Test
    void aSecondInvokeUnderARunningIdIsDropped() throws Exception {
        worker.invoke("twice", Map.of("act", "wait"));
        worker.next(ServerMessage::hasProgress);
        worker.invoke("twice", Map.of("act", "echo", "text", "second"));
        assertEquals("alive", text(worker.call("after-twice", Map.of("act", "echo", "text", "alive"))));
        CancelTest.cancel(worker, "twice");
        assertEquals("CANCELLED", failed(worker.end()).getCode());
    }

    @Test
    void nothingIsSentAfterTheEnd() throws Exception {
        List<ServerMessage> all = worker.call("late", Map.of("act", "late"));
        assertTrue(last(all).hasCompleted());
        List<ServerMessage> next = worker.call("after-late", Map.of("act", "echo", "text", "x"));
        assertEquals(1, next.size());
    }

    @Test
    void theContextTellsWhoseCallItIs() throws Exception {
        worker.invoke(WorkerProcess.invocation("who", Map.of("act", "who"))
                .setCtx(asp.plugin.v1.Context.newBuilder().setTenantId("acme").setUserId("alice"))
                .setBudget(7)
                .setAccessToken("s3cret")
                .putAttrs("traceparent", "00-1")
                .setDeadline(com.google.protobuf.Timestamp.newBuilder()
                        .setSeconds(System.currentTimeMillis() / 1000 + 60)));
        assertEquals(
                "Caller[tenant=acme, user=alice, session=] OptionalLong[7] Optional[***] s3cret task-who"
                        + " {traceparent=00-1} true",
                text(worker.end()));
    }

    static ServerMessage last(List<ServerMessage> all) {
        return all.get(all.size() - 1);
    }

    static Failed failed(List<ServerMessage> all) {
        assertTrue(last(all).hasFailed(), () -> all.stream().map(Object::toString).collect(Collectors.joining()));
        return last(all).getFailed();
    }

    static String text(List<ServerMessage> all) throws Exception {
        assertTrue(last(all).hasCompleted(), () -> all.stream().map(Object::toString).collect(Collectors.joining()));
        return WorkerProcess.tree(last(all).getCompleted().getOutput()).get("text").asText();
    }
}
