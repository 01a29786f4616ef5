package asp.plugin.worker;

import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogManager;
import java.util.logging.LogRecord;
import java.util.logging.SimpleFormatter;

/**
 * Where java.util.logging goes: to the call whose handler the thread runs, else to standard error. Stacks go to
 * standard error only: the call's log may be shown to its caller.
 */
final class Logs extends Handler {
    /** Kept here: java.util.logging forgets the level of a logger that nobody holds. */
    private static final java.util.logging.Logger TRANSPORT =
            java.util.logging.Logger.getLogger("io.grpc.okhttp.OkHttpServerTransport");

    private final SimpleFormatter formatter = new SimpleFormatter();

    private Logs() {}

    /** Replaces the handlers of the root logger. */
    static void install() {
        LogManager.getLogManager().reset();
        java.util.logging.Logger.getLogger("").addHandler(new Logs());
        // It warns with a stack when somebody connects and goes, which is no fault of the plugin.
        TRANSPORT.setLevel(Level.SEVERE);
    }

    /** Prints what a handler threw, for the plugin's author. */
    static void unexpected(String requestId, Throwable thrown) {
        synchronized (System.err) {
            System.err.println("call " + requestId + " failed unexpectedly");
            thrown.printStackTrace();
            String limit = Unexpected.limit(thrown);
            if (limit != null) {
                System.err.println(limit);
            }
        }
    }

    @Override
    public void publish(LogRecord record) {
        if (!isLoggable(record)) {
            return;
        }
        String message = formatter.formatMessage(record);
        String logger = String.valueOf(record.getLoggerName());
        Call call = Call.current();
        // What gRPC says about sending must not be sent.
        boolean own = logger.startsWith("io.grpc");
        boolean sent = call != null && call.hasEvents() && !own
                && call.log(Events.log(call.request(), Events.level(record.getLevel()), message));
        if (!sent) {
            System.err.println(record.getLevel().getName() + " " + logger + ": " + message);
        }
        if (record.getThrown() != null && record.getLevel().intValue() >= Level.INFO.intValue()) {
            record.getThrown().printStackTrace();
        }
    }

    @Override
    public void flush() {
        System.err.flush();
    }

    @Override
    public void close() {}
}
