package asp.plugin;

import asp.plugin.worker.Exit;
import asp.plugin.worker.Server;
import asp.plugin.worker.Settings;

/**
 * The worker's program. Reads its environment and the token on standard input, loads the plugin, and serves it until
 * the platform's Session ends. The command line, with the limits of the plugin:
 *
 * <pre>
 * java -Xmx{heap}m -XX:MaxMetaspaceSize=128m -XX:ReservedCodeCacheSize=32m -Xss512k -XX:+UseSerialGC
 *   -XX:TieredStopAtLevel=1 -XX:CompileThresholdScaling=4 -XX:+ExitOnOutOfMemoryError -XX:-UsePerfData
 *   -XX:+DisableAttachMechanism -Djava.io.tmpdir=. -Duser.home=. -Xshare:auto -XX:SharedArchiveFile={shim}/worker.jsa
 *   -cp {shim}/asp-plugin.jar asp.plugin.Worker
 * </pre>
 *
 * The current directory is the work directory: Java reads neither TMPDIR nor HOME. {@link Train} makes the archive, at
 * its final path and with the same Java. Exit codes: 0 the Session ended, 64 a wrong environment, 70 the plugin
 * ended the process, 78 the plugin cannot be loaded, 3 out of memory.
 */
public final class Worker {
    private Worker() {}

    /** Takes no arguments; see above. */
    public static void main(String[] arguments) {
        Exit.guard();
        try {
            Server.run(Settings.read(System.getenv(), System.in));
        } catch (Exit.Refusal refusal) {
            Exit.refuse(refusal);
        } catch (RuntimeException | Error fault) {
            Exit.refuse(new Exit.Refusal(Exit.PLUGIN_UNUSABLE, "the worker cannot start: " + fault));
        }
    }
}
