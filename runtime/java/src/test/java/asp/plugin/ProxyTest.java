package asp.plugin;

import static asp.plugin.CallTest.failed;
import static asp.plugin.CallTest.text;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Java's own clients use the platform's proxy, with names the worker cannot resolve. */
class ProxyTest {
    /** Reserved: no resolver knows it (RFC 6761). */
    private static final String HOST = "plugin.invalid";

    @Test
    void bothClientsOfJavaAskTheProxy() throws Exception {
        try (Recorder proxy = new Recorder();
                WorkerProcess worker = worker(proxy)) {
            for (boolean old : new boolean[] {false, true}) {
                String id = "old-" + old;
                assertEquals(
                        "through the proxy",
                        text(worker.call(id, Map.of("url", "http://" + HOST + "/x", "old", old))));
                assertEquals("GET http://" + HOST + "/x HTTP/1.1", proxy.next());
                assertTrue(failed(worker.call("tls-" + id, Map.of("url", "https://" + HOST + "/x", "old", old)))
                        .getCode()
                        .equals("INTERNAL"));
                assertEquals("CONNECT " + HOST + ":443 HTTP/1.1", proxy.next());
            }
        }
    }

    @Test
    void withoutAProxyTheNameIsNotResolved() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(manifest()).greet()) {
            assertEquals("INTERNAL", failed(worker.call("a", Map.of("url", "http://" + HOST + "/x"))).getCode());
        }
    }

    @Test
    void aProxyThatIsNoUriIsRefused() throws Exception {
        Map<String, String> environment = Map.of("HTTPS_PROXY", "127.0.0.1");
        try (WorkerProcess worker = WorkerProcess.launch(manifest(), environment, WorkerProcess.TOKEN)) {
            assertEquals(64, worker.exitCode());
        }
    }

    private static WorkerProcess worker(Recorder proxy) throws Exception {
        String uri = "http://127.0.0.1:" + proxy.port();
        return WorkerProcess.start(manifest(), Map.of("HTTP_PROXY", uri, "https_proxy", uri)).greet();
    }

    private static Map<String, Object> manifest() {
        return Manifests.of("tool", "asp.plugin.fixtures.Fetch");
    }

    /** A proxy that notes the first line of each request, answers plain ones and refuses tunnels. */
    private static final class Recorder implements AutoCloseable {
        private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        private final BlockingQueue<String> lines = new LinkedBlockingQueue<>();

        Recorder() throws IOException {
            Thread thread = new Thread(this::serve, "proxy");
            thread.setDaemon(true);
            thread.start();
        }

        int port() {
            return listener.getLocalPort();
        }

        String next() throws InterruptedException {
            return lines.poll(20, TimeUnit.SECONDS);
        }

        private void serve() {
            try {
                while (true) {
                    try (Socket socket = listener.accept()) {
                        answer(socket);
                    }
                }
            } catch (IOException closed) {
                // The test is over.
            }
        }

        private void answer(Socket socket) throws IOException {
            BufferedReader reader = new BufferedReader(
                    new InputStreamReader(socket.getInputStream(), StandardCharsets.US_ASCII));
            String first = reader.readLine();
            for (String line = first; line != null && !line.isEmpty(); line = reader.readLine()) {
                // The headers do not matter.
            }
            lines.add(String.valueOf(first));
            String answer = String.valueOf(first).startsWith("CONNECT")
                    ? "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    : "HTTP/1.1 200 OK\r\nContent-Length: 17\r\nConnection: close\r\n\r\nthrough the proxy";
            socket.getOutputStream().write(answer.getBytes(StandardCharsets.US_ASCII));
            socket.getOutputStream().flush();
        }

        @Override
        public void close() throws IOException {
            listener.close();
        }
    }
}
