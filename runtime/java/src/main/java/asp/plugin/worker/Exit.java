package asp.plugin.worker;

import sun.misc.Signal;

/**
 * How the process ends. An end that did not come through here is the plugin's doing (`System.exit`), and a shutdown
 * hook turns it into exit code 70: a crash. SIGTERM is an orderly end; a shutdown hook alone could not tell the two
 * apart, and only sun.misc.Signal (in jdk.unsupported) can. Java makes a thread for a signal when it comes: where a
 * plugin has taken every thread, SIGTERM does nothing, and the supervisor's SIGKILL follows.
 */
public final class Exit {
    public static final int WRONG_ENVIRONMENT = 64;
    public static final int PLUGIN_EXITED = 70;
    public static final int PLUGIN_UNUSABLE = 78;

    /** The plugin's own shutdown hooks get this long before the process is halted. */
    private static final long HOOKS_MILLIS = 1_000;

    private static volatile boolean orderly;
    private static volatile Runnable onTerminate = () -> leave(0);

    private Exit() {}

    /** A start that cannot go on; the message is one line for the log. */
    public static final class Refusal extends Exception {
        private final int code;

        public Refusal(int code, String message) {
            super(message);
            this.code = code;
        }
    }

    /** Installs the hook and the signal handler, before anything of the plugin is loaded. */
    public static void guard() {
        Runtime.getRuntime().addShutdownHook(new Thread(Exit::judge, "exit"));
        Signal.handle(new Signal("TERM"), signal -> onTerminate.run());
    }

    /** Sets what SIGTERM does, from now on. It must come to {@link #leave} in the end. */
    static void terminateBy(Runnable end) {
        onTerminate = end;
    }

    /** Ends the process; does not return. */
    public static void leave(int code) {
        orderly = true;
        Thread watch = new Thread(() -> haltAfterHooks(code), "halt");
        watch.setDaemon(true);
        try {
            watch.start();
        } catch (OutOfMemoryError noThread) {
            // The plugin has taken all; its hooks, which are threads too, could not run either.
            Runtime.getRuntime().halt(code);
        }
        System.exit(code);
    }

    /** Prints the reason on one line and ends the process. */
    public static void refuse(Refusal refusal) {
        System.err.println(oneLine(refusal.getMessage()));
        leave(refusal.code);
    }

    private static void judge() {
        if (orderly) {
            return;
        }
        System.err.println("the plugin ended the process; this counts as a crash" + place());
        System.out.flush();
        System.err.flush();
        Runtime.getRuntime().halt(PLUGIN_EXITED);
    }

    /** Returns where the plugin's own code ends the process, after a colon; "" if no thread of it does. */
    private static String place() {
        for (StackTraceElement[] stack : Thread.getAllStackTraces().values()) {
            for (StackTraceElement frame : stack) {
                if (frame.getClassName().equals("java.lang.Shutdown")) {
                    String place = Unexpected.place(stack);
                    return place.isEmpty() ? "" : ": " + place;
                }
            }
        }
        return "";
    }

    private static void haltAfterHooks(int code) {
        try {
            Thread.sleep(HOOKS_MILLIS);
        } catch (InterruptedException interrupted) {
            // Nobody waits for this thread: halt at once.
        }
        Runtime.getRuntime().halt(code);
    }

    private static String oneLine(String text) {
        return String.valueOf(text).replaceAll("\\p{Cntrl}+", " ");
    }
}
