import asp.plugin.Arguments;
import asp.plugin.Context;
import asp.plugin.Json;
import asp.plugin.PluginException;
import asp.plugin.Tool;
import com.fasterxml.jackson.databind.JsonNode;
import com.sun.management.HotSpotDiagnosticMXBean;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.reflect.Field;
import java.net.DatagramPacket;
import java.net.DatagramSocket;
import java.net.HttpURLConnection;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import java.net.UnixDomainSocketAddress;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import sun.misc.Unsafe;

/**
 * What a hostile plugin tries, in Java. Arguments: {"attempts": [{"name", "do", ...}]}; the answer has "allowed" or
 * "denied: why" under each name. The same class run as a program is the control: java Attempts {arguments}.
 */
public final class Attempts implements Tool {
    private static final int WITHIN_MILLIS = 20_000;
    private static final int MIB = 1 << 20;
    private static final Duration FETCH_WITHIN = Duration.ofSeconds(10);

    public static void main(String[] arguments) throws IOException {
        System.out.println(Json.tree(attempts(Json.parse(arguments[0].getBytes(StandardCharsets.UTF_8)))));
    }

    @Override
    public Object run(Arguments arguments, Context context) throws Exception {
        if (arguments.has("harm")) {
            context.progress(1, "begun");
            harm(arguments.string("harm"));
            return Map.of();
        }
        if (arguments.has("crowd")) {
            return crowd(context);
        }
        if (arguments.has("ask")) {
            context.elicit("room");
            return Map.of();
        }
        if (arguments.has("knobs")) {
            return knobs();
        }
        if (arguments.has("fetch")) {
            return Map.of("text", fetch(arguments.object("fetch")));
        }
        if (arguments.has("secret")) {
            String key = context.secret(arguments.string("secret")).reveal();
            System.out.println("stdout " + key);
            context.log(System.Logger.Level.INFO, "log " + key);
            if (arguments.has("fail")) {
                throw new PluginException("FAILS", "failed with " + key);
            }
            return Map.of("text", key, "environment", System.getenv().containsValue(key));
        }
        if (arguments.has("names")) {
            return Map.of("names", new TreeSet<>(System.getenv().keySet()));
        }
        return attempts(arguments.node());
    }

    private static Map<String, String> attempts(JsonNode arguments) {
        Map<String, String> found = new LinkedHashMap<>();
        for (JsonNode want : arguments.get("attempts")) {
            String outcome = "allowed";
            try {
                attempt(Arguments.of(want));
            } catch (Exception | OutOfMemoryError denied) {
                outcome = "denied: " + denied;
            }
            found.put(want.get("name").asText(), outcome);
        }
        return found;
    }

    private static void attempt(Arguments want) throws Exception {
        switch (want.string("do")) {
            case "tcp" -> tcp(want);
            case "udp" -> udp(want);
            case "unix" -> SocketChannel.open(UnixDomainSocketAddress.of(want.string("path"))).close();
            case "abstract" -> program("/usr/bin/perl", "-e", ABSTRACT, want.string("path"));
            case "open" -> new FileInputStream(want.string("path")).close();
            case "read" -> expect(contains(Path.of(want.string("path")), want.string("mark")), "something else");
            case "list" -> list(want);
            case "environments" -> environments(want.string("mark"));
            case "write" -> write(Path.of(want.string("path")));
            case "signal" -> program("/bin/sh", "-c", "kill -0 " + want.integer("pid"));
            case "processes" -> processes(want.integer("count"));
            case "files" -> files(want);
            case "disk" -> disk(want);
            default -> throw new IllegalStateException("unknown attempt");
        }
    }

    private static void expect(boolean holds, String why) throws IOException {
        if (!holds) {
            throw new IOException(why);
        }
    }

    private static void tcp(Arguments want) throws IOException {
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress(want.string("host"), (int) want.integer("port")), WITHIN_MILLIS);
            socket.setSoTimeout(WITHIN_MILLIS);
            socket.getOutputStream().write("hello\n".getBytes(StandardCharsets.US_ASCII));
            expect(socket.getInputStream().read() >= 0, "closed");
        }
    }

    private static void udp(Arguments want) throws IOException {
        int[] numbers = want.get("bytes", int[].class);
        ByteBuffer sent = ByteBuffer.allocate(numbers.length);
        for (int number : numbers) {
            sent.put((byte) number);
        }
        try (DatagramSocket socket = new DatagramSocket()) {
            socket.setSoTimeout(WITHIN_MILLIS);
            // Connected, so that a port nobody listens at answers with an error.
            socket.connect(new InetSocketAddress(want.string("host"), (int) want.integer("port")));
            socket.send(new DatagramPacket(sent.array(), numbers.length));
            DatagramPacket answer = new DatagramPacket(new byte[512], 512);
            socket.receive(answer);
            expect(answer.getData()[0] == sent.get(0), "another answer");
        }
    }

    /** Java knows no abstract sockets, but a plugin may run what it finds. */
    private static final String ABSTRACT =
            "socket(S, 1, 1, 0) or die $!; connect(S, pack('S a*', 1, \"\\0\" . shift)) or die $!";

    private static void program(String... command) throws Exception {
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        expect(process.waitFor() == 0, said.strip());
    }

    /** Files of /proc have no size: read as a stream. */
    private static boolean contains(Path path, String mark) throws IOException {
        try (InputStream file = Files.newInputStream(path)) {
            return new String(file.readNBytes(MIB), StandardCharsets.ISO_8859_1).contains(mark);
        }
    }

    private static void list(Arguments want) throws IOException {
        try (var entries = Files.list(Path.of(want.string("path")))) {
            expect(entries.anyMatch(entry -> entry.endsWith(want.string("mark"))), "something else");
        }
    }

    private static void environments(String mark) throws IOException {
        try (var entries = Files.newDirectoryStream(Path.of("/proc"), "[0-9]*")) {
            for (Path entry : entries) {
                try {
                    if (contains(entry.resolve("environ"), mark)) {
                        return;
                    }
                } catch (IOException refused) {
                    continue;
                }
            }
        }
        throw new IOException("not found");
    }

    private static void write(Path directory) throws IOException {
        Path file = directory.resolve("attempt-" + ProcessHandle.current().pid());
        Files.writeString(file, "x");
        Files.delete(file);
    }

    private static void processes(long count) throws IOException {
        try {
            for (long started = 0; started < count; started++) {
                new ProcessBuilder("/bin/sleep", "60").start();
            }
        } finally {
            ProcessHandle.current().children().forEach(ProcessHandle::destroyForcibly);
        }
    }

    private static void files(Arguments want) throws IOException {
        List<InputStream> opened = new ArrayList<>();
        try {
            for (long count = want.integer("count"); opened.size() < count; ) {
                opened.add(new FileInputStream(want.string("path")));
            }
        } finally {
            for (InputStream file : opened) {
                file.close();
            }
        }
    }

    private static void disk(Arguments want) throws IOException {
        List<Path> paths = new ArrayList<>();
        try {
            for (long count = want.integer("mib"); paths.size() < count; ) {
                paths.add(Path.of(want.string("path"), "fill-" + paths.size()));
                Files.write(paths.get(paths.size() - 1), new byte[MIB]);
            }
        } finally {
            for (Path path : paths) {
                Files.deleteIfExists(path);
            }
        }
    }

    // ---------------------------------------------------------------- harm

    private static void harm(String which) throws Exception {
        switch (which) {
            case "exit" -> System.exit(0);
            case "crash" -> unsafe().putAddress(0, 0);
            case "memory" -> memory();
            case "busy" -> busy();
            case "ignore" -> ignore();
            case "forks" -> forks();
            case "logs" -> logs();
            default -> throw new IllegalStateException("unknown harm");
        }
    }

    private static Unsafe unsafe() throws ReflectiveOperationException {
        Field field = Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        return (Unsafe) field.get(null);
    }

    /** Past the heap's own bound, which -Xmx sets: only the sandbox stops this. */
    private static void memory() throws ReflectiveOperationException {
        while (true) {
            unsafe().setMemory(unsafe().allocateMemory(16 * MIB), 16 * MIB, (byte) 1);
        }
    }

    private static void busy() {
        while (true) {
            Thread.onSpinWait();
        }
    }

    private static void ignore() {
        while (true) {
            try {
                Thread.sleep(60_000);
            } catch (InterruptedException ignored) {
                Thread.interrupted();
            }
        }
    }

    private static void forks() {
        while (true) {
            try {
                new ProcessBuilder("/bin/sleep", "60").start();
            } catch (IOException | OutOfMemoryError refused) {
                Thread.onSpinWait();
            }
        }
    }

    private static void logs() {
        String line = "\u001b[31mflood\u001b[0m \r" + "x".repeat(1_000) + "\n";
        for (long until = System.nanoTime() + 1_500_000_000L; System.nanoTime() < until; ) {
            System.out.print(line.repeat(64));
        }
    }

    /** Takes every process and thread it may have, keeps them while it asks, and ends them. */
    private static Map<String, Object> crowd(Context context) {
        int started = 0;
        try {
            for (; ; started++) {
                new ProcessBuilder("/bin/sleep", "60").start();
            }
        } catch (IOException | OutOfMemoryError full) {
            context.elicit("room");
        } finally {
            ProcessHandle.current().children().forEach(ProcessHandle::destroyForcibly);
        }
        return Map.of("started", started);
    }

    // ---------------------------------------------------------------- the language's own bounds

    private static Map<String, Object> knobs() throws Exception {
        var diagnostics = ManagementFactory.getPlatformMXBean(HotSpotDiagnosticMXBean.class);
        Map<String, Object> found = new TreeMap<>();
        for (String option : List.of(
                "ExitOnOutOfMemoryError", "DisableAttachMechanism", "UseSharedSpaces", "SharedArchiveFile",
                "UsePerfData", "UseSerialGC", "TieredStopAtLevel", "ReservedCodeCacheSize", "MaxMetaspaceSize",
                "MaxHeapSize", "ThreadStackSize")) {
            found.put(option, diagnostics.getVMOption(option).getValue());
        }
        found.put("maxMemory", Runtime.getRuntime().maxMemory());
        for (MemoryPoolMXBean pool : ManagementFactory.getMemoryPoolMXBeans()) {
            if (pool.getName().equals("Metaspace")) {
                found.put("metaspace", pool.getUsage().getMax());
            }
        }
        // Mapped: the archive was not only named, but fitted and is used.
        found.put("archiveMapped", contains(Path.of("/proc/self/maps"), "/worker.jsa"));
        found.put("temporary", Files.createTempFile("a", "b").toRealPath().getParent().toString());
        found.put("directory", Path.of("").toRealPath().toString());
        return found;
    }

    // ---------------------------------------------------------------- the way out

    private static String fetch(Arguments want) {
        URI uri = URI.create(want.string("url"));
        try {
            if (want.string("by").equals("HttpURLConnection")) {
                HttpURLConnection connection = (HttpURLConnection) uri.toURL().openConnection();
                try (InputStream body = connection.getInputStream()) {
                    return new String(body.readAllBytes(), StandardCharsets.UTF_8);
                }
            }
            HttpRequest request = HttpRequest.newBuilder(uri).timeout(FETCH_WITHIN).build();
            var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
            return answer.statusCode() == 200 ? answer.body() : "denied: status " + answer.statusCode();
        } catch (Exception denied) {
            return "denied: " + denied;
        }
    }
}
