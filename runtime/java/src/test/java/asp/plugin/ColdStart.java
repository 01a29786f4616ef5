package asp.plugin;

import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/**
 * Measures exec to socket and exec to the first answer: {@code java -cp
 * target/test-classes:target/dist/asp-plugin.jar asp.plugin.ColdStart <runs> <java flags of the worker ...>}. Prints
 * p50, p95 and the largest of the runs in milliseconds, and the resident memory of the last idle worker in MiB.
 */
final class ColdStart {
    private ColdStart() {}

    public static void main(String[] arguments) throws Exception {
        int runs = Integer.parseInt(arguments[0]);
        double[] toSocket = new double[runs];
        double[] toAnswer = new double[runs];
        long resident = 0;
        for (int run = 0; run < runs; run++) {
            Path directory = Files.createTempDirectory("cold");
            Files.write(directory.resolve("plugin.json"), Json.bytes(Manifests.acts()));
            long begin = System.nanoTime();
            Process process = start(directory, Arrays.copyOfRange(arguments, 1, arguments.length));
            await(process, directory.resolve("socket"));
            toSocket[run] = (System.nanoTime() - begin) / 1e6;
            resident = resident(process);
            try (WorkerProcess worker = new WorkerProcess(directory, directory.resolve("socket"), process).greet()) {
                worker.call("first", Map.of("act", "echo", "text", "x"));
                toAnswer[run] = (System.nanoTime() - begin) / 1e6;
            }
        }
        print("socket", toSocket);
        print("first answer", toAnswer);
        System.out.println("resident " + resident + " MiB");
    }

    private static void print(String what, double[] millis) {
        Arrays.sort(millis);
        int runs = millis.length;
        System.out.printf(
                "%s: p50 %.0f ms, p95 %.0f ms, max %.0f ms; ",
                what, millis[runs / 2], millis[(int) (runs * 0.95)], millis[runs - 1]);
    }

    private static Process start(Path directory, String[] flags) throws IOException {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(List.of(flags));
        command.add("asp.plugin.Worker");
        ProcessBuilder builder = new ProcessBuilder(command).inheritIO().redirectInput(ProcessBuilder.Redirect.PIPE);
        builder.environment().put("ASP_WORKER_SOCKET", directory.resolve("socket").toString());
        builder.environment().put("ASP_PLUGIN_MANIFEST", directory.resolve("plugin.json").toString());
        builder.environment().put("ASP_PLUGIN_CODE", Path.of("target/test-classes").toAbsolutePath().toString());
        builder.environment().put("ASP_WORK_DIR", directory.toString());
        Process process = builder.start();
        try (var input = process.getOutputStream()) {
            input.write((WorkerProcess.TOKEN + "\n").getBytes(StandardCharsets.US_ASCII));
        }
        return process;
    }

    private static void await(Process process, Path socket) throws Exception {
        while (true) {
            try (SocketChannel probe = SocketChannel.open(UnixDomainSocketAddress.of(socket))) {
                return;
            } catch (IOException notYet) {
                if (!process.isAlive()) {
                    throw new IllegalStateException("the worker ended with " + process.exitValue());
                }
                // A busy wait would take one of the worker's processors.
                Thread.sleep(1);
            }
        }
    }

    private static long resident(Process process) throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/" + process.pid() + "/status"))) {
            if (line.startsWith("VmRSS:")) {
                return Long.parseLong(line.replaceAll("\\D", "")) / 1024;
            }
        }
        return 0;
    }
}
