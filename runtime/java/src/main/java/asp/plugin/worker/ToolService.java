package asp.plugin.worker;

import asp.plugin.v1.ClientMessage;
import asp.plugin.v1.InitResponse;
import asp.plugin.v1.ServerMessage;
import asp.plugin.v1.ToolPluginGrpc;
import com.google.protobuf.Empty;
import io.grpc.Status;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.util.concurrent.atomic.AtomicBoolean;

/** Serves the one Session of a worker; when it ends, the worker goes. A second Session is refused. */
final class ToolService extends ToolPluginGrpc.ToolPluginImplBase {
    private final Primitives primitives;
    private final Runnable ended;
    private final AtomicBoolean taken = new AtomicBoolean();
    private volatile Session current;

    ToolService(Primitives primitives, Runnable ended) {
        this.primitives = primitives;
        this.ended = ended;
    }

    @Override
    public StreamObserver<ClientMessage> session(StreamObserver<ServerMessage> answers) {
        if (!taken.compareAndSet(false, true)) {
            answers.onError(Status.FAILED_PRECONDITION
                    .withDescription("this worker has its session")
                    .asRuntimeException());
            return new Deaf<>();
        }
        ServerCallStreamObserver<ServerMessage> stream = (ServerCallStreamObserver<ServerMessage>) answers;
        Session session = new Session(primitives, new Outbox<>(stream), ended);
        stream.setOnCancelHandler(session::over);
        current = session;
        return session;
    }

    @Override
    public void health(Empty request, StreamObserver<InitResponse> answer) {
        // Elsewhere: the reader's thread carries calls, and the first look at the figures loads classes.
        primitives.calls().clock().execute(() -> tell(answer));
    }

    private void tell(StreamObserver<InitResponse> answer) {
        answer.onNext(primitives.greeting().toBuilder().setVitals(VitalSigns.read()).build());
        answer.onCompleted();
    }

    /** Ends the Session from this side; without one, the worker goes at once. */
    void end() {
        Session session = current;
        if (session == null) {
            ended.run();
        } else {
            session.over();
        }
    }

    /** Takes what a refused peer has under way. */
    private static final class Deaf<M> implements StreamObserver<M> {
        @Override
        public void onNext(M message) {}

        @Override
        public void onError(Throwable broken) {}

        @Override
        public void onCompleted() {}
    }
}
