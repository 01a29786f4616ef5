package asp.plugin.worker;

import io.grpc.Status;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.util.concurrent.Callable;

/** Runs a plugin's method that has one request: on a thread of its own, cancelled with its stream. */
final class Unary {
    private Unary() {}

    /** Ties the call to the stream: the peer's cancellation is the call's. */
    static <M> Outbox<M> open(Call call, StreamObserver<M> answer) {
        ServerCallStreamObserver<M> stream = (ServerCallStreamObserver<M>) answer;
        stream.setOnCancelHandler(() -> call.abort("the call was cancelled"));
        return new Outbox<>(stream);
    }

    static <M> void start(Calls calls, Call call, Outbox<M> outbox, Callable<Void> work) {
        boolean started = calls.start(call, () -> {
            try {
                call.execute(work);
                outbox.close();
            } catch (Failure failure) {
                outbox.close(failure.status());
            }
        });
        if (!started) {
            outbox.close(Status.RESOURCE_EXHAUSTED.withDescription("OVERLOADED: the worker has no thread for this call"));
        }
    }
}
