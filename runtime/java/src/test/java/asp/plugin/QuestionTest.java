package asp.plugin;

import static asp.plugin.CallTest.failed;
import static asp.plugin.CallTest.text;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import asp.plugin.v1.CheckpointAck;
import asp.plugin.v1.ClientMessage;
import asp.plugin.v1.DelegationRequested;
import asp.plugin.v1.DeliverDelegationResult;
import asp.plugin.v1.DeliverUserInput;
import asp.plugin.v1.DeliverUserInput.Action;
import asp.plugin.v1.ElicitationRequested;
import asp.plugin.v1.Resume;
import asp.plugin.v1.ServerMessage;
import com.google.protobuf.ByteString;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** What a handler waits for: users, delegates, checkpoints; and going on in another worker. */
class QuestionTest {
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
    void anAnswerReachesTheHandlerAsTheUserGaveIt() throws Exception {
        var accepted = input(Action.ACCEPT, "").setFields(WorkerProcess.json(Map.of("a", 1)));
        assertEquals("ACCEPT {\"a\":1}", ask("accept", accepted));
        assertEquals("DECLINE {}", ask("decline", input(Action.DECLINE, "")));
        assertEquals("CANCEL {}", ask("cancel", input(Action.CANCEL, "")));
    }

    @Test
    void aQuestionNobodyCouldAnswerFailsWithTheReason() throws Exception {
        worker.invoke("expired", Map.of("act", "ask", "id", "first"));
        worker.next(ServerMessage::hasElicitation);
        answer("expired", "first", input(Action.ACCEPT, "expired"));
        var failed = failed(worker.end());
        assertEquals("INPUT_EXPIRED", failed.getCode());
        assertEquals("expired", WorkerProcess.tree(failed.getDetails()).get("reason").asText());
        worker.invoke("nobody", Map.of("act", "ask", "id", "first"));
        worker.next(ServerMessage::hasElicitation);
        answer("nobody", "first", input(Action.ACCEPT, "unsupported"));
        assertEquals("INPUT_UNSUPPORTED", failed(worker.end()).getCode());
    }

    @Test
    void anUndeclaredQuestionOrDelegateIsNeverSent() throws Exception {
        List<ServerMessage> asked = worker.call("other", Map.of("act", "ask", "id", "third"));
        assertEquals(1, asked.size());
        assertEquals("UNDECLARED", failed(asked).getCode());
        List<ServerMessage> delegated = worker.call("delegate", Map.of("act", "delegate", "id", "third"));
        assertEquals(1, delegated.size());
        assertEquals("UNDECLARED", failed(delegated).getCode());
    }

    @Test
    void aQuestionMayHaveItsOwnTextAndFields() throws Exception {
        worker.invoke("form", Map.of("act", "form"));
        ElicitationRequested asked = worker.next(ServerMessage::hasElicitation).getElicitation();
        assertEquals("How many?", asked.getMessage());
        assertEquals("count", asked.getFields(0).getName());
        assertTrue(asked.getFields(0).getRequired());
        assertFalse(asked.hasRequestedSchema());
        answer("form", "first", input(Action.DECLINE, ""));
        worker.end();
    }

    @Test
    void severalQuestionsMayBeOpenAndAnsweredInAnyOrder() throws Exception {
        worker.invoke("both", Map.of("act", "ask-both"));
        worker.next(ServerMessage::hasElicitation);
        worker.next(ServerMessage::hasElicitation);
        answer("both", "second", input(Action.ACCEPT, "").setFields(WorkerProcess.json(Map.of("n", 2))));
        answer("both", "first", input(Action.ACCEPT, "").setFields(WorkerProcess.json(Map.of("n", 1))));
        assertEquals("{\"n\":1} {\"n\":2}", text(worker.end()));
    }

    @Test
    void anAnswerToNothingIsDropped() throws Exception {
        worker.invoke("ask", Map.of("act", "ask", "id", "first"));
        worker.next(ServerMessage::hasElicitation);
        answer("ask", "second", input(Action.ACCEPT, ""));
        answer("gone", "first", input(Action.ACCEPT, ""));
        answer("ask", "first", input(Action.DECLINE, ""));
        answer("ask", "first", input(Action.ACCEPT, ""));
        assertEquals("DECLINE {}", text(worker.end()));
    }

    @Test
    void aDelegateAnswersFailsOrIsTooLate() throws Exception {
        DelegationRequested asked = delegate("good");
        assertEquals("judge", asked.getDelegateId());
        assertEquals("{\"text\":\"judge this\"}", asked.getInput().getValue().toStringUtf8());
        assertEquals(10, asked.getTimeout().getSeconds());
        var good = DeliverDelegationResult.newBuilder().setResult(WorkerProcess.json(Map.of("label", "ok")));
        result("good", asked, good);
        assertEquals("ok", text(worker.end()));

        result("bad", delegate("bad"), DeliverDelegationResult.newBuilder().setError("failed: no model"));
        var bad = failed(worker.end());
        assertEquals("DELEGATION_FAILED", bad.getCode());
        assertEquals("failed", WorkerProcess.tree(bad.getDetails()).get("reason").asText());

        worker.invoke("late", Map.of("act", "delegate", "id", "judge", "timeout", 50));
        var late = failed(worker.end());
        assertEquals("DELEGATION_FAILED", late.getCode());
        assertEquals("expired", WorkerProcess.tree(late.getDetails()).get("reason").asText());
    }

    @Test
    void aCheckpointWaitsUntilItIsStored() throws Exception {
        worker.invoke("save", Map.of("act", "checkpoint"));
        for (int seq = 1; seq <= 3; seq++) {
            var checkpoint = worker.next().getCheckpoint();
            assertEquals(seq, checkpoint.getSeq());
            assertEquals(seq, Json.parse(checkpoint.getCapsule().toByteArray()).get("state").asInt());
            assertTrue(worker.isQuiet());
            acknowledge("save", seq, "");
        }
        assertEquals("steps 123", text(worker.end()));
    }

    @Test
    void aCheckpointThatIsNotStoredFails() throws Exception {
        worker.invoke("stale", Map.of("act", "checkpoint"));
        worker.next(ServerMessage::hasCheckpoint);
        acknowledge("stale", 1, "stale");
        assertEquals("{\"reason\":\"stale\"}", checkpointFailed(worker.end()));
        worker.invoke(resumed("large", 3, Map.of("act", "checkpoint", "large", true)));
        assertEquals("{\"reason\":\"too_large\"}", checkpointFailed(worker.end()));
    }

    private static String checkpointFailed(List<ServerMessage> all) {
        assertEquals("CHECKPOINT_FAILED", failed(all).getCode());
        return failed(all).getDetails().getValue().toStringUtf8();
    }

    @Test
    void aResumedCallGoesOnAndAsksNobodyTwice() throws Exception {
        Map<String, Object> arguments = Map.of("act", "checkpoint", "ask", true);
        worker.invoke("lost", arguments);
        for (int seq = 1; seq <= 3; seq++) {
            worker.next(ServerMessage::hasCheckpoint);
            acknowledge("lost", seq, "");
        }
        worker.next(ServerMessage::hasElicitation);
        var input = input(Action.ACCEPT, "").setFields(WorkerProcess.json(Map.of("a", 1)));
        answer("lost", "first", input);
        DelegationRequested asked = worker.next(ServerMessage::hasDelegation).getDelegation();

        // Another execution, as another worker would get it: everything but the last step was done and answered.
        var again = resumed("again", 2, arguments);
        again.setResume(again.getResume().toBuilder()
                .addUserInputs(input.setElicitationId("first"))
                .addDelegationResults(DeliverDelegationResult.newBuilder()
                        .setCorrelationId(asked.getCorrelationId())
                        .setResult(WorkerProcess.json(Map.of("label", "ok")))));
        worker.invoke(again);
        assertEquals(3, worker.next(ServerMessage::hasCheckpoint).getCheckpoint().getSeq());
        acknowledge("again", 3, "");
        List<ServerMessage> all = worker.end();
        assertEquals(1, all.size());
        assertEquals("steps 3 {\"a\":1} {\"label\":\"ok\"}", text(all));
        CancelTest.cancel(worker, "lost");
        worker.end();
    }

    @Test
    void aResumedCallDoesNotTakeAnAnswerItsStateKnows() throws Exception {
        Map<String, Object> arguments = Map.of("act", "ask-each");
        worker.invoke("each", arguments);
        worker.next(ServerMessage::hasElicitation);
        answer("each", "first", input(Action.ACCEPT, "").setFields(WorkerProcess.json(Map.of("n", 1))));
        ByteString capsule = worker.next(ServerMessage::hasCheckpoint).getCheckpoint().getCapsule();
        acknowledge("each", 1, "");
        worker.next(ServerMessage::hasElicitation);

        var again = WorkerProcess.invocation("each-again", arguments)
                .setResume(Resume.newBuilder()
                        .setCapsule(capsule)
                        .setSeq(1)
                        .setAttempt(2)
                        .addUserInputs(input(Action.ACCEPT, "")
                                .setElicitationId("first")
                                .setFields(WorkerProcess.json(Map.of("n", 1)))));
        worker.invoke(again);
        worker.next(message -> message.getElicitation().getRequestId().equals("each-again"));
        answer("each-again", "first", input(Action.ACCEPT, "").setFields(WorkerProcess.json(Map.of("n", 2))));
        worker.next(ServerMessage::hasCheckpoint);
        acknowledge("each-again", 2, "");
        assertEquals("{\"n\":1} {\"n\":2}", text(worker.end()));
        CancelTest.cancel(worker, "each");
        worker.end();
    }

    private static asp.plugin.v1.InvokeRequest.Builder resumed(String id, int state, Map<String, Object> arguments) {
        var invoke = WorkerProcess.invocation(id, new HashMap<>(arguments));
        invoke.setResume(Resume.newBuilder()
                .setCapsule(ByteString.copyFromUtf8("{\"state\":" + state + "}"))
                .setSeq(state)
                .setAttempt(2));
        return invoke;
    }

    private static String ask(String id, DeliverUserInput.Builder input) throws Exception {
        worker.invoke(id, Map.of("act", "ask", "id", "first"));
        assertEquals("first", worker.next(ServerMessage::hasElicitation).getElicitation().getElicitationId());
        answer(id, "first", input);
        return text(worker.end());
    }

    private static DeliverUserInput.Builder input(Action action, String error) {
        return DeliverUserInput.newBuilder().setAction(action).setError(error);
    }

    private static void answer(String id, String elicitation, DeliverUserInput.Builder input) {
        worker.send(ClientMessage.newBuilder()
                .setUserInput(input.setRequestId(id).setElicitationId(elicitation))
                .build());
    }

    private static DelegationRequested delegate(String id) throws Exception {
        worker.invoke(id, Map.of("act", "delegate", "id", "judge"));
        return worker.next(ServerMessage::hasDelegation).getDelegation();
    }

    private static void result(String id, DelegationRequested asked, DeliverDelegationResult.Builder result) {
        worker.send(ClientMessage.newBuilder()
                .setDelegationResult(result.setRequestId(id).setCorrelationId(asked.getCorrelationId()))
                .build());
    }

    private static void acknowledge(String id, long seq, String error) {
        worker.send(ClientMessage.newBuilder()
                .setCheckpointAck(CheckpointAck.newBuilder().setRequestId(id).setSeq(seq).setError(error))
                .build());
    }
}
