package asp.plugin.worker;

import asp.plugin.Arguments;
import asp.plugin.Artifact;
import asp.plugin.Context;
import asp.plugin.Json;
import asp.plugin.Property;
import asp.plugin.Tool;
import asp.plugin.TypedTool;
import asp.plugin.v1.CheckpointAck;
import asp.plugin.v1.ClientMessage;
import asp.plugin.v1.DeliverDelegationResult;
import asp.plugin.v1.DeliverUserInput;
import asp.plugin.v1.InitRequest;
import asp.plugin.v1.InvokeRequest;
import asp.plugin.v1.Ping;
import asp.plugin.v1.ServerMessage;
import asp.plugin.v1.ToolPluginGrpc;
import com.google.protobuf.ByteString;
import com.google.protobuf.Empty;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.okhttp.OkHttpChannelBuilder;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;

/** The plugin of the training run, and the platform that drives it: every kind of message once, in both directions. */
public final class Exercise implements Tool {
    private static final long PATIENCE_SECONDS = 30;

    /** Something an author might return. */
    public record Output(String text, List<Double> items) {}

    /** The same with types, as an author might write it. */
    private static final class Counter implements TypedTool<Counter.Input, Counter.Counted> {
        enum Kind {
            A,
            B
        }

        record Input(
                @Property(description = "What is counted", min = 1) String text,
                Optional<Instant> at,
                Optional<List<Integer>> items,
                Optional<Map<String, Double>> rates,
                @Property(defaultValue = "A") Kind kind,
                Long most) {}

        record Counted(List<Input> inputs, double mean, boolean all) {}

        @Override
        public Counted run(Input input, Context context) {
            return new Counted(List.of(input), 0.5, true);
        }
    }

    @Override
    public Object run(Arguments arguments, Context context) throws Exception {
        Typed typed = Typed.of(new Counter());
        typed.run(arguments, context);
        Output input = arguments.as(Output.class);
        context.status("working", Map.of("step", 1));
        context.progress(10, "begun", Map.of("items", 1.0));
        context.log(System.Logger.Level.INFO, "a line");
        java.util.logging.Logger.getLogger("exercise").info("another line");
        context.chunk("a part");
        context.artifact(new Artifact("a.txt", "text", "text/plain", "a file"), new byte[10]);
        context.elicit("ask");
        context.delegate("judge", Map.of("text", input.text()), Duration.ofSeconds(PATIENCE_SECONDS));
        context.checkpoint(Map.of("step", 2));
        return new Output(input.text(), List.of(1.0));
    }

    /** Connects, runs one good call and one that is refused, and leaves the Session open. */
    public static void drive(Settings settings) throws Exception {
        awaitSocket(settings);
        Metadata headers = new Metadata();
        headers.put(
                Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER),
                "Bearer " + settings.token().reveal());
        ManagedChannel channel = OkHttpChannelBuilder.forTarget(
                        "dns:///127.0.0.1:1", InsecureChannelCredentials.create())
                .socketFactory(UnixSockets.connecting(settings.socket()))
                .intercept(MetadataUtils.newAttachHeadersInterceptor(headers))
                .build();
        BlockingQueue<ServerMessage> received = new ArrayBlockingQueue<>(1_000);
        StreamObserver<ClientMessage> session = ToolPluginGrpc.newStub(channel).session(new Collector(received));
        session.onNext(ClientMessage.newBuilder().setInit(InitRequest.getDefaultInstance()).build());
        session.onNext(ClientMessage.newBuilder().setPing(Ping.getDefaultInstance()).build());
        call(session, received, "good", Map.of("text", "hello", "at", "2026-01-01T00:00:00Z", "items", List.of(1, 2)));
        call(session, received, "bad", Map.of("text", 7));
        expect(ToolPluginGrpc.newBlockingStub(channel).health(Empty.getDefaultInstance()).getOk(), null);
    }

    /** Invokes, answers what is asked, and returns with the end of the call. */
    private static void call(
            StreamObserver<ClientMessage> session, BlockingQueue<ServerMessage> received, String id, Object arguments)
            throws Exception {
        session.onNext(ClientMessage.newBuilder()
                .setInvoke(InvokeRequest.newBuilder().setRequestId(id).setTaskId(id).setArguments(json(arguments)))
                .build());
        while (true) {
            ServerMessage message = received.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
            if (message == null) {
                throw new IllegalStateException("the worker does not answer");
            }
            switch (message.getPayloadCase()) {
                case ELICITATION -> session.onNext(ClientMessage.newBuilder()
                        .setUserInput(DeliverUserInput.newBuilder()
                                .setRequestId(id)
                                .setElicitationId(message.getElicitation().getElicitationId())
                                .setFields(json(Map.of("a", 1))))
                        .build());
                case DELEGATION -> session.onNext(ClientMessage.newBuilder()
                        .setDelegationResult(DeliverDelegationResult.newBuilder()
                                .setRequestId(id)
                                .setCorrelationId(message.getDelegation().getCorrelationId())
                                .setResult(json(Map.of("a", 1))))
                        .build());
                case CHECKPOINT -> session.onNext(ClientMessage.newBuilder()
                        .setCheckpointAck(CheckpointAck.newBuilder()
                                .setRequestId(id)
                                .setSeq(message.getCheckpoint().getSeq()))
                        .build());
                case COMPLETED, FAILED -> {
                    expect(message.hasCompleted() == id.equals("good"), message);
                    return;
                }
                default -> {}
            }
        }
    }

    private static void awaitSocket(Settings settings) throws IOException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        while (true) {
            try (SocketChannel probe = SocketChannel.open(UnixDomainSocketAddress.of(settings.socket()))) {
                return;
            } catch (IOException notYet) {
                if (System.nanoTime() > end) {
                    throw notYet;
                }
                Thread.onSpinWait();
            }
        }
    }

    private static asp.plugin.v1.Json json(Object value) {
        return asp.plugin.v1.Json.newBuilder().setValue(ByteString.copyFrom(Json.bytes(value))).build();
    }

    private static void expect(boolean held, ServerMessage message) {
        if (!held) {
            throw new IllegalStateException("the exercise ended otherwise: " + message);
        }
    }

    private static final class Collector implements StreamObserver<ServerMessage> {
        private final BlockingQueue<ServerMessage> received;

        Collector(BlockingQueue<ServerMessage> received) {
            this.received = received;
        }

        @Override
        public void onNext(ServerMessage message) {
            received.add(message);
        }

        @Override
        public void onError(Throwable broken) {}

        @Override
        public void onCompleted() {}
    }
}
