package asp.plugin.worker;

import io.grpc.Status;
import io.grpc.stub.ServerCallStreamObserver;

/**
 * The outgoing side of a stream. One message at a time; a handler waits while the transport has enough to do, so that a
 * slow reader slows the handler down instead of filling memory.
 */
final class Outbox<M> {
    private final ServerCallStreamObserver<M> stream;
    private boolean closed;

    Outbox(ServerCallStreamObserver<M> stream) {
        this.stream = stream;
        stream.setOnReadyHandler(this::wake);
    }

    /** Returns when the transport takes more, or the stream has ended. */
    synchronized void awaitReady() throws InterruptedException {
        while (!closed && !stream.isReady()) {
            wait();
        }
    }

    /** Sends at once, whatever is queued: for ends and answers, of which there are few. */
    synchronized void push(M message) {
        if (!closed && !stream.isCancelled()) {
            stream.onNext(message);
        }
    }

    /** Ends the stream well; what is sent later is dropped. */
    synchronized void close() {
        if (end()) {
            stream.onCompleted();
        }
    }

    /** Ends the stream with a fault. */
    synchronized void close(Status fault) {
        if (end()) {
            stream.onError(fault.asRuntimeException());
        }
    }

    /** True for the one caller that has to tell the peer. */
    private boolean end() {
        boolean first = !closed;
        closed = true;
        notifyAll();
        return first && !stream.isCancelled();
    }

    private synchronized void wake() {
        notifyAll();
    }
}
