package asp.plugin;

import asp.plugin.v1.ServerMessage;
import java.util.Arrays;
import java.util.Map;

/**
 * Measures warm calls over a worker's socket, client included, with the tests' command line: {@code java -cp
 * target/test-classes:target/classes:target/dist/lib/* asp.plugin.WarmCall <calls>}. Prints microseconds for one call
 * at a time, and calls a second with 32 in flight.
 */
final class WarmCall {
    private static final int IN_FLIGHT = 32;

    private WarmCall() {}

    public static void main(String[] arguments) throws Exception {
        int calls = Integer.parseInt(arguments[0]);
        Map<String, String> argument = Map.of("act", "echo", "text", "x".repeat(400));
        try (WorkerProcess worker = WorkerProcess.start(Manifests.acts()).greet()) {
            for (int i = 0; i < calls; i++) {
                worker.call("warm-" + i, argument);
            }
            double[] micros = new double[calls];
            for (int i = 0; i < calls; i++) {
                long begin = System.nanoTime();
                worker.call("one-" + i, argument);
                micros[i] = (System.nanoTime() - begin) / 1e3;
            }
            Arrays.sort(micros);
            long begin = System.nanoTime();
            for (int i = 0; i < calls + IN_FLIGHT; i++) {
                if (i < calls) {
                    worker.invoke("many-" + i, argument);
                }
                if (i >= IN_FLIGHT) {
                    worker.next(ServerMessage::hasCompleted);
                }
            }
            double seconds = (System.nanoTime() - begin) / 1e9;
            System.out.printf(
                    "one at a time: p50 %.0f us, p99 %.0f us; %d in flight: %.0f calls/s%n",
                    micros[calls / 2], micros[(int) (calls * 0.99)], IN_FLIGHT, calls / seconds);
        }
    }
}
