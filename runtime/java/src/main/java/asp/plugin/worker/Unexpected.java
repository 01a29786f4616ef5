package asp.plugin.worker;

import java.net.SocketException;
import java.net.UnknownHostException;
import java.util.Map;

/**
 * What an exception that a plugin did not mean for its caller is called. Outside of development a caller learns nothing
 * of it. A limit of the sandbox is named with the key of the spec that changes it.
 */
final class Unexpected {
    static final String FOR_CALLERS = "the plugin failed; its log says why";

    /** The name of the loader of a plugin's own classes. */
    static final String LOADER = "plugin";

    private static final boolean DEVELOPMENT = "true".equals(System.getenv("ASP_DEVELOPMENT"));
    private static final int MAX_CAUSES = 16;

    private static final String NETWORK =
            "blocked: a plugin reaches only the hosts in security.allowedDomains of its spec, by HTTP through its proxy, "
                    + "and the services in security.allowedTcp";
    private static final String DISK = "blocked: the work directory is limited by runtime.resources.disk of the spec";
    private static final String PROCESSES =
            "blocked: processes and threads are limited by runtime.resources.pids of the spec";

    /** By the kernel's words in the exception's message. */
    private static final Map<String, String> LIMITS = Map.of(
            "No space left on device", DISK,
            "Disk quota exceeded", DISK,
            "File too large", DISK,
            "Too many open files", "blocked: open files are limited by runtime.resources.files of the spec",
            "Resource temporarily unavailable", PROCESSES,
            "unable to create native thread", PROCESSES);

    private Unexpected() {}

    /** Returns what the caller is told. */
    static String text(Throwable thrown) {
        return DEVELOPMENT ? described(thrown) : FOR_CALLERS;
    }

    /** Returns file and line of the plugin's own code, the exception, and the limit that it met. */
    static String described(Throwable thrown) {
        String place = place(thrown.getStackTrace());
        String text = place.isEmpty() ? thrown.toString() : place + ": " + thrown;
        String limit = limit(thrown);
        return limit == null ? text : text + ": " + limit;
    }

    /** Returns file and line of the innermost frame of the plugin's own code; "" if there is none. */
    static String place(StackTraceElement[] stack) {
        for (StackTraceElement frame : stack) {
            if (LOADER.equals(frame.getClassLoaderName())) {
                return frame.getFileName() + ":" + frame.getLineNumber();
            }
        }
        return "";
    }

    /** Returns the limit of the sandbox that an exception met; null if it met none. */
    static String limit(Throwable thrown) {
        Throwable cause = thrown;
        for (int depth = 0; cause != null && depth < MAX_CAUSES; depth++) {
            String message = String.valueOf(cause.getMessage());
            boolean unreachable = message.contains("Address family not supported")
                    || message.contains("Network is unreachable");
            if (cause instanceof UnknownHostException || (cause instanceof SocketException && unreachable)) {
                return NETWORK;
            }
            for (Map.Entry<String, String> limit : LIMITS.entrySet()) {
                if (message.contains(limit.getKey())) {
                    return limit.getValue();
                }
            }
            cause = cause.getCause();
        }
        return null;
    }
}
