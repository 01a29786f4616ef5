package asp.plugin;

import static asp.plugin.CallTest.text;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import asp.plugin.v1.ServerMessage;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.Test;

/**
 * The positive controls of the sandbox's tests: outside a sandbox each bounded attempt of the hostile fixture succeeds,
 * so that its refusal inside means something. And what a worker does by itself when its plugin means harm.
 */
class HostileTest {
    private static final Map<String, Object> MANIFEST = Manifests.of("tool", "asp.plugin.fixtures.Hostile");

    @Test
    void outsideASandboxEveryAttemptSucceeds() throws Exception {
        Path directory = Files.createTempDirectory("outside");
        Path socket = directory.resolve("socket");
        InetAddress loopback = InetAddress.getLoopbackAddress();
        try (WorkerProcess worker = WorkerProcess.start(MANIFEST, Map.of("SECRET", "x")).greet();
                ServerSocket tcp = new ServerSocket(0, 50, loopback);
                DatagramSocket udp = new DatagramSocket(0, loopback);
                ServerSocketChannel unix = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            unix.bind(UnixDomainSocketAddress.of(socket));
            allowed(worker, Map.of("act", "tcp", "host", "127.0.0.1", "port", tcp.getLocalPort()));
            allowed(worker, Map.of("act", "udp", "host", "127.0.0.1", "port", udp.getLocalPort()));
            allowed(worker, Map.of("act", "dns", "host", "localhost"));
            allowed(worker, Map.of("act", "unix", "path", socket.toString()));
            allowed(worker, Map.of("act", "read", "path", "/proc/" + ProcessHandle.current().pid() + "/environ"));
            allowed(worker, Map.of("act", "write", "path", directory.resolve("file").toString()));
            allowed(worker, Map.of("act", "list", "path", "/proc"));
            assertTrue(allowed(worker, Map.of("act", "env")).contains("SECRET"));
            allowed(worker, Map.of("act", "fork", "count", 2));
            allowed(worker, Map.of("act", "threads", "count", 10));
            allowed(worker, Map.of("act", "fds", "count", 100));
            allowed(worker, Map.of("act", "disk", "bytes", 5_000_000));
            allowed(worker, Map.of("act", "log", "bytes", 1_000_000));
            allowed(worker, Map.of("act", "native-memory", "bytes", 100_000_000));
        } finally {
            for (String file : new String[] {"socket", "file", ""}) {
                Files.deleteIfExists(directory.resolve(file));
            }
        }
    }

    @Test
    void aNativeCrashEndsTheWorkerBySignal() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(MANIFEST).greet()) {
            worker.invoke("crash", Map.of("act", "crash"));
            assertEquals(128 + 6, worker.exitCode());
        }
    }

    @Test
    void aFullHeapEndsTheWorkerWithCode3() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(MANIFEST).greet()) {
            worker.invoke("heap", Map.of("act", "heap"));
            assertEquals(3, worker.exitCode());
        }
    }

    @Test
    void exitCountsAsACrashAndHaltAtLeastEndsTheStream() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(MANIFEST).greet()) {
            worker.invoke("exit", Map.of("act", "exit"));
            assertEquals(70, worker.exitCode());
        }
        try (WorkerProcess worker = WorkerProcess.start(MANIFEST).greet()) {
            worker.invoke("halt", Map.of("act", "halt"));
            worker.exitCode();
            assertNotEquals("OK", worker.streamEnd());
        }
    }

    @Test
    void aHandlerThatNeverStopsDoesNotKeepTheWorkerAlive() throws Exception {
        for (String act : new String[] {"spin", "ignore-cancel"}) {
            try (WorkerProcess worker = WorkerProcess.start(MANIFEST).greet()) {
                worker.invoke(act, Map.of("act", act));
                worker.next(ServerMessage::hasProgress);
                CancelTest.cancel(worker, act);
                worker.endSession();
                assertEquals(0, worker.exitCode());
            }
        }
    }

    private static String allowed(WorkerProcess worker, Map<String, Object> arguments) throws Exception {
        String text = text(worker.call(arguments.get("act").toString(), arguments));
        assertTrue(text.startsWith("allowed"), arguments + ": " + text);
        return text;
    }
}
