package asp.plugin;

import asp.plugin.v1.ClientMessage;
import asp.plugin.v1.InitRequest;
import asp.plugin.v1.InvokeRequest;
import asp.plugin.v1.ServerMessage;
import asp.plugin.v1.ToolPluginGrpc;
import asp.plugin.worker.UnixSockets;
import com.fasterxml.jackson.databind.JsonNode;
import com.google.protobuf.ByteString;
import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.okhttp.OkHttpChannelBuilder;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.StreamObserver;
import java.io.File;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Predicate;

/** A real worker process and the platform's side of its Session: what a test starts, drives and closes. */
final class WorkerProcess implements AutoCloseable {
    static final String TOKEN = "0123456789abcdef".repeat(4);

    /** A hang guard, far above what anything here takes. */
    static final long GUARD_SECONDS = 120;

    private final Path directory;
    private final Path socket;
    private final Process process;
    private final List<ManagedChannel> channels = new ArrayList<>();
    private final BlockingQueue<ServerMessage> received = new LinkedBlockingQueue<>();
    private final BlockingQueue<String> streamEnd = new LinkedBlockingQueue<>();
    private StreamObserver<ClientMessage> session;

    /** Takes over a worker that was started otherwise; `directory` goes with it. */
    WorkerProcess(Path directory, Path socket, Process process) {
        this.directory = directory;
        this.socket = socket;
        this.process = process;
    }

    /** Starts a worker and waits until its socket accepts. */
    static WorkerProcess start(Map<String, Object> manifest) throws Exception {
        return start(manifest, Map.of());
    }

    static WorkerProcess start(Map<String, Object> manifest, Map<String, String> environment) throws Exception {
        WorkerProcess worker = launch(manifest, environment, TOKEN);
        worker.awaitSocket();
        return worker;
    }

    /** Starts a worker that may refuse to run. */
    static WorkerProcess launch(Map<String, Object> manifest, Map<String, String> environment, String token)
            throws IOException {
        Path directory = Files.createTempDirectory("worker");
        Path plugin = Files.write(directory.resolve("plugin.json"), Json.bytes(manifest));
        Path socket = directory.resolve("socket");
        Path work = Files.createDirectory(directory.resolve("work"));
        ProcessBuilder builder = new ProcessBuilder(command());
        builder.environment().clear();
        builder.environment().putAll(environment);
        builder.environment().put("ASP_WORKER_SOCKET", socket.toString());
        builder.environment().put("ASP_PLUGIN_MANIFEST", plugin.toString());
        builder.environment().put("ASP_PLUGIN_CODE", Path.of("target/test-classes").toAbsolutePath().toString());
        builder.environment().put("ASP_WORK_DIR", work.toString());
        builder.directory(work.toFile());
        builder.redirectOutput(directory.resolve("stdout").toFile());
        builder.redirectError(directory.resolve("stderr").toFile());
        Process process = builder.start();
        try (var input = process.getOutputStream()) {
            input.write((token + "\n").getBytes(StandardCharsets.US_ASCII));
        } catch (IOException gone) {
            // It refused before it read the token: its exit code is what the test looks at.
        }
        return new WorkerProcess(directory, socket, process);
    }

    /** The worker has the library on its class path, and the fixtures only as its plugin. */
    private static List<String> command() {
        String classPath = String.join(
                File.pathSeparator,
                Arrays.stream(System.getProperty("java.class.path").split(File.pathSeparator))
                        .filter(entry -> !entry.contains("test-classes") && !entry.contains("junit"))
                        .map(entry -> Path.of(entry).toAbsolutePath().toString())
                        .toList());
        return List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-Xmx64m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-XX:CompileThresholdScaling=4",
                "-XX:+ExitOnOutOfMemoryError",
                "-Djava.io.tmpdir=.",
                "-Duser.home=.",
                "-Xshare:auto",
                "-cp",
                classPath,
                "asp.plugin.Worker");
    }

    private void awaitSocket() throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(GUARD_SECONDS);
        while (System.nanoTime() < end) {
            if (!process.isAlive()) {
                throw new IllegalStateException("the worker ended: " + errors());
            }
            try (SocketChannel probe = SocketChannel.open(StandardProtocolFamily.UNIX)) {
                probe.connect(UnixDomainSocketAddress.of(socket));
                return;
            } catch (IOException notYet) {
                // The worker needs the processor.
                Thread.yield();
            }
        }
        throw new TimeoutException("the worker's socket did not come");
    }

    /** Sends bytes on a connection of their own and waits until the worker closes it. */
    void sendRaw(byte[] bytes) throws IOException {
        try (SocketChannel peer = SocketChannel.open(UnixDomainSocketAddress.of(socket))) {
            peer.write(ByteBuffer.wrap(bytes));
            ByteBuffer answer = ByteBuffer.allocate(1 << 16);
            while (peer.read(answer.clear()) >= 0) {
                // What it says before it closes does not matter.
            }
        }
    }

    /** A channel that shows `token`, or none when it is null. */
    Channel channel(String token) {
        ManagedChannel channel = OkHttpChannelBuilder.forTarget(
                        "dns:///127.0.0.1:1", InsecureChannelCredentials.create())
                .socketFactory(UnixSockets.connecting(socket))
                .build();
        channels.add(channel);
        if (token == null) {
            return channel;
        }
        Metadata headers = new Metadata();
        headers.put(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + token);
        return ClientInterceptors.intercept(channel, MetadataUtils.newAttachHeadersInterceptor(headers));
    }

    /** Opens the Session and exchanges `init`. */
    WorkerProcess greet() throws Exception {
        return greet(InitRequest.getDefaultInstance());
    }

    WorkerProcess greet(InitRequest init) throws Exception {
        session = open(channel(TOKEN), received, streamEnd);
        send(ClientMessage.newBuilder().setInit(init).build());
        next(ServerMessage::hasInit);
        return this;
    }

    static StreamObserver<ClientMessage> open(
            Channel channel, BlockingQueue<ServerMessage> received, BlockingQueue<String> streamEnd) {
        return ToolPluginGrpc.newStub(channel).session(new StreamObserver<>() {
            @Override
            public void onNext(ServerMessage message) {
                received.add(message);
            }

            @Override
            public void onError(Throwable fault) {
                streamEnd.add(io.grpc.Status.fromThrowable(fault).getCode().name());
            }

            @Override
            public void onCompleted() {
                streamEnd.add("OK");
            }
        });
    }

    void send(ClientMessage message) {
        session.onNext(message);
    }

    void invoke(String id, Object arguments) {
        invoke(invocation(id, arguments));
    }

    void invoke(InvokeRequest.Builder invoke) {
        send(ClientMessage.newBuilder().setInvoke(invoke).build());
    }

    static InvokeRequest.Builder invocation(String id, Object arguments) {
        return InvokeRequest.newBuilder()
                .setRequestId(id)
                .setTaskId("task-" + id)
                .setArguments(json(arguments));
    }

    static asp.plugin.v1.Json json(Object value) {
        return asp.plugin.v1.Json.newBuilder()
                .setValue(ByteString.copyFrom(Json.bytes(value)))
                .build();
    }

    static JsonNode tree(asp.plugin.v1.Json json) throws IOException {
        return Json.parse(json.getValue().toByteArray());
    }

    /** Returns the next message, which must come soon. */
    ServerMessage next() throws Exception {
        ServerMessage message = received.poll(GUARD_SECONDS, TimeUnit.SECONDS);
        if (message == null) {
            throw new TimeoutException("no message from the worker; " + errors());
        }
        return message;
    }

    /** Returns the next message of a kind and drops those before it. */
    ServerMessage next(Predicate<ServerMessage> wanted) throws Exception {
        ServerMessage message = next();
        while (!wanted.test(message)) {
            message = next();
        }
        return message;
    }

    /** Invokes and returns all messages up to the end of the call. */
    List<ServerMessage> call(String id, Object arguments) throws Exception {
        invoke(id, arguments);
        return end();
    }

    /** Returns the messages up to a completed or failed. */
    List<ServerMessage> end() throws Exception {
        List<ServerMessage> all = new ArrayList<>();
        do {
            all.add(next());
        } while (!isEnd(all.get(all.size() - 1)));
        return all;
    }

    static boolean isEnd(ServerMessage message) {
        return message.hasCompleted() || message.hasFailed();
    }

    void endSession() {
        session.onCompleted();
    }

    String streamEnd() throws InterruptedException {
        return streamEnd.poll(GUARD_SECONDS, TimeUnit.SECONDS);
    }

    boolean isQuiet() {
        return received.isEmpty();
    }

    int exitCode() throws Exception {
        if (!process.waitFor(GUARD_SECONDS, TimeUnit.SECONDS)) {
            throw new TimeoutException("the worker does not end");
        }
        return process.exitValue();
    }

    void terminate() {
        process.destroy();
    }

    boolean isAlive() {
        return process.isAlive();
    }

    String errors() throws IOException {
        return Files.readString(directory.resolve("stderr"));
    }

    String output() throws IOException {
        return Files.readString(directory.resolve("stdout"));
    }

    @Override
    public void close() throws Exception {
        channels.forEach(ManagedChannel::shutdownNow);
        process.destroyForcibly().waitFor();
        try (var files = Files.walk(directory)) {
            files.sorted(java.util.Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        }
    }
}
