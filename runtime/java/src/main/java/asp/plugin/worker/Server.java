package asp.plugin.worker;

import io.grpc.InsecureServerCredentials;
import io.grpc.okhttp.OkHttpServerBuilder;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * Loads the plugin and serves it. The socket is bound last: who can connect finds a worker that is ready.
 */
public final class Server {
    /** Handlers get this long to clean up after the Session has ended. */
    private static final long CLEANUP_MILLIS = 500;

    /** One accepts, one reads the supervisor's connection, one writes to it, and one takes over from the writer. */
    private static final int TRANSPORT_THREADS = 4;

    private Server() {}

    /** Serves until the process ends; returns never, or with a refusal. */
    public static void run(Settings settings) throws Exit.Refusal {
        Logs.install();
        List<Plugin> plugins = Plugin.load(Manifest.read(settings.manifest()), settings.code());
        Calls calls = new Calls(Thread.currentThread().getContextClassLoader());
        Primitives primitives = new Primitives(plugins, calls);
        CountDownLatch ended = new CountDownLatch(1);
        ToolService tools = new ToolService(primitives, ended::countDown);
        try {
            server(settings, primitives, tools).start();
            Exit.terminateBy(tools::end);
        } catch (IOException fault) {
            throw new Exit.Refusal(
                    Exit.WRONG_ENVIRONMENT, "cannot listen at " + settings.socket() + ": " + fault.getMessage());
        }
        try {
            // The other threads are daemons; this one keeps the process.
            ended.await();
            // Cancelled handlers clean up.
            calls.drain(CLEANUP_MILLIS);
        } catch (InterruptedException impossible) {
            // Nobody has this thread: the process is of no use.
        }
        Exit.leave(0);
    }

    private static io.grpc.Server server(Settings settings, Primitives primitives, ToolService tools) {
        Path socket = settings.socket();
        return OkHttpServerBuilder.forPort(UnixDomainSocketAddress.of(socket), InsecureServerCredentials.create())
                .socketFactory(UnixSockets.listening(socket))
                // One thread is enough: nothing there runs a plugin's code or waits. It cannot be the transport's
                // own, which delivers under the transport's lock: a sending handler has our locks and wants that one.
                .executor(reader())
                .transportExecutor(new Standing(TRANSPORT_THREADS, Standing.daemons("transport")))
                .scheduledExecutorService(primitives.calls().clock())
                .maxInboundMessageSize(Limits.MESSAGE_BYTES)
                .maxInboundMetadataSize(16 << 10)
                // The supervisor may ping as often as it likes: HTTP/2 stacks measure with pings.
                .permitKeepAliveTime(1, TimeUnit.NANOSECONDS)
                .permitKeepAliveWithoutCalls(true)
                .intercept(new Access(settings.token()))
                .addService(tools)
                .addService(new ResourceService(primitives))
                .addService(new PromptService(primitives))
                .build();
    }

    private static Executor reader() {
        ThreadPoolExecutor reader = new ThreadPoolExecutor(
                1, 1, 0, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), Standing.daemons("reader"));
        reader.prestartCoreThread();
        return reader;
    }
}
