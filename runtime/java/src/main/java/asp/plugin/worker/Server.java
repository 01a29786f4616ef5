package asp.plugin.worker;

import io.grpc.InsecureServerCredentials;
import io.grpc.okhttp.OkHttpServerBuilder;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Loads the plugin and serves it. The socket is bound last: who can connect finds a worker that is ready.
 */
public final class Server {
    /** Handlers get this long to clean up after the Session has ended. */
    private static final long CLEANUP_MILLIS = 500;

    private Server() {}

    /** Serves until the process ends; returns never, or with a refusal. */
    public static void run(Settings settings) throws Exit.Refusal {
        start(settings);
        try {
            // The transport's threads are daemons; this one keeps the process.
            new CountDownLatch(1).await();
        } catch (InterruptedException impossible) {
            Exit.leave(0);
        }
    }

    private static void start(Settings settings) throws Exit.Refusal {
        Logs.install();
        Manifest manifest = Manifest.read(settings.manifest());
        Plugin plugin = Plugin.load(manifest, settings.code());
        Calls calls = new Calls(Thread.currentThread().getContextClassLoader());
        Serving serving =
                new Serving(plugin, Schema.of(manifest.inputSchema()), Schema.of(manifest.outputSchema()), calls);
        AtomicBoolean first = new AtomicBoolean(true);
        Runnable ended = () -> {
            if (first.getAndSet(false)) {
                leave(calls);
            }
        };
        ToolService tools = new ToolService(serving, ended);
        try {
            server(settings, serving, tools).start();
            Exit.terminateBy(tools::end);
        } catch (IOException fault) {
            throw new Exit.Refusal(
                    Exit.WRONG_ENVIRONMENT, "cannot listen at " + settings.socket() + ": " + fault.getMessage());
        }
    }

    private static io.grpc.Server server(Settings settings, Serving serving, ToolService tools) {
        Path socket = settings.socket();
        return OkHttpServerBuilder.forPort(UnixDomainSocketAddress.of(socket), InsecureServerCredentials.create())
                .socketFactory(UnixSockets.listening(socket))
                // One thread is enough: nothing there runs a plugin's code or waits. It cannot be the transport's
                // own, which delivers under the transport's lock: a sending handler has our locks and wants that one.
                .executor(Executors.newSingleThreadExecutor(Server::reader))
                .maxInboundMessageSize(Limits.MESSAGE_BYTES)
                .maxInboundMetadataSize(16 << 10)
                // The supervisor may ping as often as it likes: HTTP/2 stacks measure with pings.
                .permitKeepAliveTime(1, TimeUnit.NANOSECONDS)
                .permitKeepAliveWithoutCalls(true)
                .intercept(new Access(settings.token()))
                .addService(tools)
                .addService(new ResourceService(serving))
                .addService(new PromptService(serving))
                .build();
    }

    private static Thread reader(Runnable work) {
        Thread thread = new Thread(work, "reader");
        thread.setDaemon(true);
        return thread;
    }

    /** Lets cancelled handlers clean up, then ends the process; off the transport's thread. */
    private static void leave(Calls calls) {
        Runnable leaving = () -> {
            calls.drain(CLEANUP_MILLIS);
            Exit.leave(0);
        };
        new Thread(leaving, "leave").start();
    }
}
