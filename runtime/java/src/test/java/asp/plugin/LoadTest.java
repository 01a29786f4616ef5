package asp.plugin;

import static asp.plugin.CallTest.text;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import asp.plugin.v1.ClientMessage;
import asp.plugin.v1.InitRequest;
import asp.plugin.v1.Ping;
import asp.plugin.v1.ServerMessage;
import asp.plugin.v1.ToolPluginGrpc;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** Much at once, and a platform that reads slowly. */
class LoadTest {
    /** A lock taken in two orders shows itself here: events, cancels and pings cross each other in both directions. */
    @Test
    void callsCancelsAndPingsNeverBlockEachOther() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(Manifests.acts()).greet()) {
            int calls = 400;
            int inFlight = 40;
            int ended = 0;
            for (int i = 0; i < calls; i++) {
                worker.invoke("call-" + i, Map.of("act", i % 4 == 0 ? "wait" : "tell"));
                worker.send(ClientMessage.newBuilder().setPing(Ping.newBuilder().setNonce("p")).build());
                if (i % 4 == 0) {
                    CancelTest.cancel(worker, "call-" + i);
                }
                if (i >= inFlight) {
                    worker.next(WorkerProcess::isEnd);
                    ended++;
                }
            }
            for (; ended < calls; ended++) {
                worker.next(WorkerProcess::isEnd);
            }
            assertEquals("done", text(worker.call("last", Map.of("act", "echo", "text", "done"))));
        }
    }

    @Test
    void aSlowReaderSlowsTheHandlerAndFillsNoMemory() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(Manifests.acts())) {
            SlowReader reader = new SlowReader();
            var session = ToolPluginGrpc.newStub(worker.channel(WorkerProcess.TOKEN)).session(reader);
            session.onNext(ClientMessage.newBuilder().setInit(InitRequest.getDefaultInstance()).build());
            // Three times the worker's heap, with nobody reading.
            session.onNext(ClientMessage.newBuilder()
                    .setInvoke(WorkerProcess.invocation("flood", Map.of("act", "flood", "count", 200)))
                    .build());
            reader.readTo(3);
            assertTrue(worker.isAlive());
            reader.readTo(Integer.MAX_VALUE);
            assertTrue(reader.ended.await(WorkerProcess.GUARD_SECONDS, TimeUnit.SECONDS), worker.errors());
            assertEquals(200, reader.chunks.get());
            assertEquals("sent 200", text(List.of(reader.end)));
        }
    }

    /** Asks for one message at a time, and for none until it is told to. */
    private static final class SlowReader implements ClientResponseObserver<ClientMessage, ServerMessage> {
        private final AtomicInteger chunks = new AtomicInteger();
        private final CountDownLatch ended = new CountDownLatch(1);
        private final CountDownLatch first = new CountDownLatch(1);
        private volatile int bound;
        private volatile ServerMessage end;
        private ClientCallStreamObserver<ClientMessage> stream;

        @Override
        public void beforeStart(ClientCallStreamObserver<ClientMessage> opened) {
            stream = opened;
            opened.disableAutoRequestWithInitial(1);
        }

        /** Reads on until so many chunks are there. */
        void readTo(int wanted) throws InterruptedException {
            first.await();
            bound = wanted;
            stream.request(1);
        }

        @Override
        public void onNext(ServerMessage message) {
            first.countDown();
            if (message.hasChunk()) {
                chunks.incrementAndGet();
            }
            if (WorkerProcess.isEnd(message)) {
                end = message;
                ended.countDown();
            } else if (chunks.get() < bound) {
                stream.request(1);
            }
        }

        @Override
        public void onError(Throwable fault) {
            ended.countDown();
        }

        @Override
        public void onCompleted() {
            ended.countDown();
        }
    }
}
