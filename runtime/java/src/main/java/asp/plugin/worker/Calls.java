package asp.plugin.worker;

import java.time.Duration;
import java.time.Instant;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * The threads that handlers run on, at most {@link Limits#CALLS}, and one beside them for deadlines and figures, which
 * is there from the start: a plugin may have taken all that its worker may have.
 */
final class Calls {
    /** Idle threads go after this long: a burst must not cost memory for ever. */
    private static final long KEEP_SECONDS = 30;

    private final ThreadPoolExecutor threads;
    private final ScheduledThreadPoolExecutor clock;

    Calls(ClassLoader loader) {
        ThreadFactory factory = work -> {
            Thread thread = new Thread(work, "call");
            thread.setDaemon(true);
            thread.setContextClassLoader(loader);
            return thread;
        };
        threads = new ThreadPoolExecutor(
                0, Limits.CALLS, KEEP_SECONDS, TimeUnit.SECONDS, new SynchronousQueue<>(), factory);
        clock = new ScheduledThreadPoolExecutor(1, factory);
        clock.setRemoveOnCancelPolicy(true);
        clock.prestartCoreThread();
    }

    /** For something short that is no call. */
    ScheduledExecutorService clock() {
        return clock;
    }

    /** Runs `work` for `call` on a thread of its own and watches its deadline; false when there is no thread. */
    boolean start(Call call, Runnable work) {
        try {
            threads.execute(() -> {
                Future<?> alarm = alarm(call);
                try {
                    work.run();
                } finally {
                    if (alarm != null) {
                        alarm.cancel(false);
                    }
                }
            });
            return true;
        } catch (RejectedExecutionException | OutOfMemoryError full) {
            // A full heap ends the process (-XX:+ExitOnOutOfMemoryError): this error says that there is no thread.
            return false;
        }
    }

    /** Takes no more calls and returns when the running ones are over, or after `millis`. */
    void drain(long millis) {
        threads.shutdown();
        try {
            threads.awaitTermination(millis, TimeUnit.MILLISECONDS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private Future<?> alarm(Call call) {
        Instant deadline = call.request().deadline();
        if (deadline == null) {
            return null;
        }
        long millis = Duration.between(Instant.now(), deadline).toMillis();
        if (millis <= 0) {
            call.expire();
            return null;
        }
        return clock.schedule(call::expire, millis, TimeUnit.MILLISECONDS);
    }
}
