package asp.plugin;

import static asp.plugin.CallTest.failed;
import static asp.plugin.CallTest.text;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import asp.plugin.v1.CancelRequest;
import asp.plugin.v1.CheckpointAck;
import asp.plugin.v1.ClientMessage;
import asp.plugin.v1.DeliverUserInput;
import asp.plugin.v1.Failed;
import asp.plugin.v1.Resume;
import asp.plugin.v1.ServerMessage;
import com.google.protobuf.ByteString;
import com.google.protobuf.Timestamp;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** How calls stop before their time. */
class CancelTest {
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
    void aHardCancelInterruptsTheHandler() throws Exception {
        worker.invoke("hard", Map.of("act", "wait"));
        worker.next(ServerMessage::hasProgress);
        cancel(worker, "hard");
        List<ServerMessage> all = worker.end();
        assertTrue(all.get(0).getCancel().getAccepted());
        assertEquals("CANCELLED", failed(all).getCode());
        assertEquals("enough", failed(all).getMessage());
    }

    @Test
    void aCancelledCallEndsAsCancelledEvenIfItsHandlerReturns() throws Exception {
        worker.invoke("flag", Map.of("act", "watch-flag"));
        worker.next(ServerMessage::hasProgress);
        cancel(worker, "flag");
        assertEquals("CANCELLED", failed(worker.end()).getCode());
    }

    @Test
    void aCancelEndsAQuestionAndLetsTheHandlerCleanUp() throws Exception {
        for (CancelRequest.Mode mode : List.of(CancelRequest.Mode.HARD, CancelRequest.Mode.SOFT)) {
            worker.invoke("clean-" + mode, Map.of("act", "clean-up"));
            worker.next(ServerMessage::hasElicitation);
            cancel(worker, "clean-" + mode, mode);
            List<ServerMessage> all = worker.end();
            assertTrue(all.stream().anyMatch(message -> message.getLog().getMessage().equals("cleaned up")));
            assertEquals("CANCELLED", failed(all).getCode());
        }
    }

    @Test
    void aSoftCancelInterruptsNothing() throws Exception {
        worker.invoke("soft", Map.of("act", "wait"));
        worker.next(ServerMessage::hasProgress);
        cancel(worker, "soft", CancelRequest.Mode.SOFT);
        assertTrue(worker.next().hasCancel());
        // Messages are handled in order, and the call is still there to be cancelled harder.
        cancel(worker, "soft");
        List<ServerMessage> all = worker.end();
        assertTrue(all.get(0).hasCancel());
        assertEquals("CANCELLED", failed(all).getCode());
    }

    @Test
    void aPreemptedCallYieldsAfterItsCheckpoint() throws Exception {
        worker.invoke("preempt", Map.of("act", "checkpoint"));
        worker.next(ServerMessage::hasCheckpoint);
        cancel(worker, "preempt", CancelRequest.Mode.PREEMPT);
        worker.send(ClientMessage.newBuilder()
                .setCheckpointAck(CheckpointAck.newBuilder().setRequestId("preempt").setSeq(1))
                .build());
        Failed failed = failed(worker.end());
        assertEquals("CANCELLED", failed.getCode());
        assertTrue(failed.getYielded());
    }

    @Test
    void aPreemptedCallWithoutACheckpointGoesOnAndMayAsk() throws Exception {
        worker.invoke("early", Map.of("act", "clean-up"));
        worker.next(ServerMessage::hasElicitation);
        cancel(worker, "early", CancelRequest.Mode.PREEMPT);
        assertTrue(worker.next().hasCancel());
        answer("early");
        assertEquals("answered", text(worker.end()));
    }

    @Test
    void aPreemptedCallThatResumedYieldsWhereItAsks() throws Exception {
        worker.invoke(WorkerProcess.invocation("later", Map.of("act", "clean-up"))
                .setResume(Resume.newBuilder()
                        .setCapsule(ByteString.copyFromUtf8("{\"state\":1}"))
                        .setSeq(1)
                        .setAttempt(2)));
        worker.next(ServerMessage::hasElicitation);
        cancel(worker, "later", CancelRequest.Mode.PREEMPT);
        assertTrue(failed(worker.end()).getYielded());
    }

    @Test
    void aCancelOutranksAPreemption() throws Exception {
        for (CancelRequest.Mode first : List.of(CancelRequest.Mode.SOFT, CancelRequest.Mode.PREEMPT)) {
            boolean soft = first == CancelRequest.Mode.SOFT;
            worker.invoke("both-" + first, Map.of("act", "checkpoint"));
            worker.next(ServerMessage::hasCheckpoint);
            cancel(worker, "both-" + first, first);
            cancel(worker, "both-" + first, soft ? CancelRequest.Mode.PREEMPT : CancelRequest.Mode.SOFT);
            worker.send(ClientMessage.newBuilder()
                    .setCheckpointAck(CheckpointAck.newBuilder().setRequestId("both-" + first).setSeq(1))
                    .build());
            Failed failed = failed(worker.end());
            assertEquals("CANCELLED", failed.getCode());
            assertFalse(failed.getYielded());
        }
    }

    @Test
    void aPreemptedCallThatFinishesIsFinished() throws Exception {
        worker.invoke("done", Map.of("act", "watch-preempted"));
        worker.next(ServerMessage::hasProgress);
        cancel(worker, "done", CancelRequest.Mode.PREEMPT);
        assertEquals("cancelled: false, preempted: true", text(worker.end()));
    }

    @Test
    void aHandlerThatCatchesTheEndOfItsQuestionHasAResultAfterASoftCancelOnly() throws Exception {
        for (CancelRequest.Mode mode : List.of(CancelRequest.Mode.SOFT, CancelRequest.Mode.HARD)) {
            worker.invoke("caught-" + mode, Map.of("act", "catch-end"));
            worker.next(ServerMessage::hasElicitation);
            cancel(worker, "caught-" + mode, mode);
            List<ServerMessage> all = worker.end();
            if (mode == CancelRequest.Mode.SOFT) {
                assertEquals("partial true false", text(all));
            } else {
                assertEquals("CANCELLED", failed(all).getCode());
            }
        }
    }

    @Test
    void whatAHandlerReturnsAfterASoftCancelIsItsResult() throws Exception {
        worker.invoke("partial", Map.of("act", "watch-flag"));
        worker.next(ServerMessage::hasProgress);
        cancel(worker, "partial", CancelRequest.Mode.SOFT);
        assertEquals("stopped by itself", text(worker.end()));
    }

    @Test
    void anInterruptNeverReachesTheNextCall() throws Exception {
        for (int i = 0; i < 20; i++) {
            worker.invoke("first-" + i, Map.of("act", "wait"));
            worker.next(ServerMessage::hasProgress);
            cancel(worker, "first-" + i);
            cancel(worker, "first-" + i);
            worker.end();
            assertEquals("interrupted: false", text(worker.call("next-" + i, Map.of("act", "interrupted"))));
        }
    }

    @Test
    void aCancelForAnEndedOrUnknownCallIsDropped() throws Exception {
        worker.call("ended", Map.of("act", "echo"));
        cancel(worker, "ended");
        cancel(worker, "never-seen");
        assertEquals(1, worker.call("after", Map.of("act", "echo", "text", "x")).size());
    }

    @Test
    void theDeadlineStopsTheHandler() throws Exception {
        worker.invoke(WorkerProcess.invocation("slow", Map.of("act", "wait")).setDeadline(in(200)));
        assertEquals("DEADLINE", failed(worker.end()).getCode());
        worker.invoke(WorkerProcess.invocation("over", Map.of("act", "wait")).setDeadline(in(-1000)));
        assertEquals("DEADLINE", failed(worker.end()).getCode());
    }

    @Test
    void aHandlerThatIgnoresItsCancelKeepsItsCallAndNobodyElses() throws Exception {
        try (WorkerProcess own = WorkerProcess.start(Manifests.acts()).greet()) {
            own.invoke("stubborn", Map.of("act", "stubborn"));
            own.next(ServerMessage::hasProgress);
            cancel(own, "stubborn");
            assertTrue(own.next().hasCancel());
            assertEquals("fine", text(own.call("other", Map.of("act", "echo", "text", "fine"))));
            own.endSession();
            assertEquals(0, own.exitCode());
        }
    }

    private static void answer(String id) {
        worker.send(ClientMessage.newBuilder()
                .setUserInput(DeliverUserInput.newBuilder()
                        .setRequestId(id)
                        .setElicitationId("first")
                        .setAction(DeliverUserInput.Action.ACCEPT))
                .build());
    }

    static void cancel(WorkerProcess worker, String id) {
        cancel(worker, id, CancelRequest.Mode.HARD);
    }

    static void cancel(WorkerProcess worker, String id, CancelRequest.Mode mode) {
        worker.send(ClientMessage.newBuilder()
                .setCancel(CancelRequest.newBuilder()
                        .setRequestId(id)
                        .setReason("enough")
                        .setMode(mode))
                .build());
    }

    private static Timestamp in(long millis) {
        Instant end = Instant.now().plusMillis(millis);
        return Timestamp.newBuilder().setSeconds(end.getEpochSecond()).setNanos(end.getNano()).build();
    }
}
