package asp.plugin.worker;

import java.util.concurrent.Executor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * Threads that are there from the start and stay, and more while they are wanted: the session must go on when a plugin
 * has taken every thread that its worker may have.
 */
final class Standing implements Executor {
    private static final long KEEP_SECONDS = 30;

    private final SynchronousQueue<Runnable> handover = new SynchronousQueue<>();
    private final ThreadPoolExecutor threads;

    Standing(int standing, ThreadFactory factory) {
        threads = new ThreadPoolExecutor(
                standing, Integer.MAX_VALUE, KEEP_SECONDS, TimeUnit.SECONDS, handover, factory);
        threads.prestartAllCoreThreads();
    }

    /** Makes threads that keep no process. */
    static ThreadFactory daemons(String name) {
        return work -> {
            Thread thread = new Thread(work, name);
            thread.setDaemon(true);
            return thread;
        };
    }

    @Override
    public void execute(Runnable work) {
        try {
            threads.execute(work);
        } catch (OutOfMemoryError noThread) {
            handOver(work);
        }
    }

    /**
     * Waits for a standing thread that has just done its work. An interrupt is for the caller's own work: what was taken
     * on is not dropped, or gRPC would take it for under way for ever.
     */
    private void handOver(Runnable work) {
        boolean interrupted = false;
        while (true) {
            try {
                handover.put(work);
                break;
            } catch (InterruptedException again) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
