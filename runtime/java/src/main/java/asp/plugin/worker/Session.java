package asp.plugin.worker;

import asp.plugin.Arguments;
import asp.plugin.Json;
import asp.plugin.Result;
import asp.plugin.ToolException;
import asp.plugin.v1.CancelRequest;
import asp.plugin.v1.CheckpointAck;
import asp.plugin.v1.ClientMessage;
import asp.plugin.v1.DeliverDelegationResult;
import asp.plugin.v1.DeliverStorageAnswer;
import asp.plugin.v1.DeliverUserInput;
import asp.plugin.v1.InvokeRequest;
import asp.plugin.v1.Pong;
import asp.plugin.v1.ServerMessage;
import com.fasterxml.jackson.databind.JsonNode;
import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;

/**
 * The worker's side of the Session stream. Messages are read on the server's one thread, which never runs a plugin's
 * code; each call has a thread of its own. What arrives for a call that is not running is dropped.
 */
final class Session implements StreamObserver<ClientMessage> {
    private final Primitives primitives;
    private final Outbox<ServerMessage> outbox;
    private final Runnable ended;
    private final Map<String, Call> running = new ConcurrentHashMap<>();
    private boolean greeted;

    /** @param ended run once, when the stream is over */
    Session(Primitives primitives, Outbox<ServerMessage> outbox, Runnable ended) {
        this.primitives = primitives;
        this.outbox = outbox;
        this.ended = ended;
    }

    @Override
    public void onNext(ClientMessage message) {
        if (!greeted && message.getPayloadCase() != ClientMessage.PayloadCase.INIT) {
            fault("the first message is `init`");
            return;
        }
        switch (message.getPayloadCase()) {
            case INIT -> {
                greeted = true;
                NamedSecrets.hold(message.getInit().getSecretsMap());
                outbox.push(ServerMessage.newBuilder().setInit(primitives.greeting()).build());
            }
            case PING -> outbox.push(ServerMessage.newBuilder()
                    .setPong(Pong.newBuilder().setNonce(message.getPing().getNonce()))
                    .build());
            case INVOKE -> invoke(message.getInvoke());
            case CANCEL -> cancel(message.getCancel());
            case USER_INPUT -> input(message.getUserInput());
            case DELEGATION_RESULT -> result(message.getDelegationResult());
            case CHECKPOINT_ACK -> stored(message.getCheckpointAck());
            case STORAGE_ANSWER -> storage(message.getStorageAnswer());
            // A newer platform may say more than this worker knows.
            case PAYLOAD_NOT_SET -> {}
        }
    }

    @Override
    public void onError(Throwable broken) {
        over();
    }

    @Override
    public void onCompleted() {
        over();
    }

    /** Stops what runs and ends the stream. */
    void over() {
        running.values().forEach(call -> call.abort("the session has ended"));
        outbox.close();
        ended.run();
    }

    private void invoke(InvokeRequest invoke) {
        Call call = new Call(Request.of(invoke), outbox);
        String id = invoke.getRequestId();
        if (id.isEmpty()) {
            fault("an invoke has a request_id");
            return;
        }
        if (running.putIfAbsent(id, call) != null) {
            // Any answer would end the call that runs under this id.
            System.err.println("call " + id + " runs already; its second invoke is dropped");
            return;
        }
        Serving serving = primitives.find(invoke.getPrimitive());
        if (serving == null) {
            String message = "the package does not serve " + invoke.getPrimitive();
            finish(call, Events.failed(call.request(), new Failure("UNSUPPORTED", message)));
            return;
        }
        Callable<ServerMessage> work =
                invoke.getDescribe() ? () -> describe(serving, call) : () -> answer(serving, call);
        if (!primitives.calls().start(call, () -> run(call, work))) {
            finish(call, Events.failed(call.request(), new Failure("OVERLOADED", "the worker has no thread for this call")));
        }
    }

    private void run(Call call, Callable<ServerMessage> work) {
        ServerMessage end;
        try {
            end = call.execute(work);
        } catch (Failure failure) {
            end = Events.failed(call.request(), failure);
        }
        finish(call, end);
    }

    private void finish(Call call, ServerMessage end) {
        // Removed first: once the platform has the end, it may use the id again.
        running.remove(call.request().requestId(), call);
        call.end(end);
    }

    /** Says what the plugin's types say; its handler does not run. */
    private static ServerMessage describe(Serving serving, Call call) {
        byte[] description = Json.bytes(serving.plugin().description());
        return Events.completed(call.request(), description, Result.of(null));
    }

    private static ServerMessage answer(Serving serving, Call call) throws Exception {
        if (serving.plugin().tool() == null) {
            throw new Failure("UNSUPPORTED", "this plugin is no tool");
        }
        Request request = call.request();
        Arguments arguments = serving.arguments(request);
        Result result = result(serving, arguments, new CallContext(call, serving.manifest()));
        byte[] output = output(serving, result);
        ServerMessage completed = content(request, output, result);
        int size = completed.getSerializedSize();
        if (size > Limits.PAYLOAD_BYTES) {
            throw new Failure(
                    "INVALID_OUTPUT",
                    "the result has " + size + " bytes, allowed are " + Limits.PAYLOAD_BYTES
                            + "; keep it as an artifact (context.artifact)");
        }
        return completed;
    }

    private static Result result(Serving serving, Arguments arguments, CallContext context) throws Exception {
        try {
            Object returned = serving.plugin().tool().run(arguments, context);
            return returned instanceof Result made ? made : Result.of(returned);
        } catch (ToolException failed) {
            if (context.cancelled()) {
                throw failed;
            }
            return Result.error(Events.cut(failed.getMessage()));
        }
    }

    /** A failure the model should read needs no output; a result has one, and it fits the schema. */
    private static byte[] output(Serving serving, Result result) throws Failure {
        if (result.output() == null && result.isError()) {
            return null;
        }
        JsonNode tree;
        try {
            tree = Json.tree(result.output());
        } catch (IllegalArgumentException | StackOverflowError unwritable) {
            Logs.unexpected("output", unwritable);
            throw new Failure("INVALID_OUTPUT", "the result cannot be written as JSON");
        }
        List<Schema.Fault> faults = serving.output().check(tree);
        if (!faults.isEmpty()) {
            throw new Failure("INVALID_OUTPUT", Schema.sentence("the result does not fit", faults), Schema.place(faults), false);
        }
        return Json.bytes(tree);
    }

    private static ServerMessage content(Request request, byte[] output, Result result) throws Failure {
        try {
            return Events.completed(request, output, result);
        } catch (IllegalArgumentException unwritable) {
            throw new Failure("INVALID_OUTPUT", "the content cannot be written as JSON");
        }
    }

    private void cancel(CancelRequest cancel) {
        with(cancel.getRequestId(), call -> call.cancel(cancel));
    }

    private void input(DeliverUserInput input) {
        with(input.getRequestId(), call -> call.inputs().answer(input.getElicitationId(), input));
    }

    private void result(DeliverDelegationResult result) {
        with(result.getRequestId(), call -> call.delegations().answer(result.getCorrelationId(), result));
    }

    private void stored(CheckpointAck ack) {
        with(ack.getRequestId(), call -> call.checkpoints().answer(Long.toString(ack.getSeq()), ack));
    }

    private void storage(DeliverStorageAnswer answer) {
        with(answer.getRequestId(), call -> call.answerStorage(answer));
    }

    private void with(String requestId, Consumer<Call> action) {
        Call call = running.get(requestId);
        if (call != null) {
            action.accept(call);
        }
    }

    private void fault(String what) {
        outbox.close(Status.INVALID_ARGUMENT.withDescription(what));
        over();
    }
}
