package asp.plugin.worker;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A machine that gives no more threads than were there at first. */
@Timeout(30)
class StandingTest {
    private static final int THREADS = 2;

    private final AtomicInteger made = new AtomicInteger();
    private final ThreadFactory few = work -> {
        if (made.incrementAndGet() > THREADS) {
            throw new OutOfMemoryError("unable to create native thread");
        }
        return Standing.daemons("standing").newThread(work);
    };
    private final Standing standing = new Standing(THREADS, few);

    @Test
    void whatAThreadHandsOnIsTakenByTheOther() throws Exception {
        CountDownLatch taken = new CountDownLatch(1);
        CountDownLatch ended = new CountDownLatch(1);
        standing.execute(() -> {
            standing.execute(taken::countDown);
            await(taken);
            ended.countDown();
        });
        assertTrue(ended.await(20, TimeUnit.SECONDS));
    }

    @Test
    void workWaitsForAThreadAlsoWhereItsGiverIsInterrupted() throws Exception {
        CountDownLatch busy = new CountDownLatch(THREADS);
        CountDownLatch free = new CountDownLatch(1);
        for (int thread = 0; thread < THREADS; thread++) {
            standing.execute(() -> {
                busy.countDown();
                await(free);
            });
        }
        busy.await();
        CountDownLatch done = new CountDownLatch(1);
        CountDownLatch stillInterrupted = new CountDownLatch(1);
        Thread giver = new Thread(() -> {
            Thread.currentThread().interrupt();
            standing.execute(done::countDown);
            if (Thread.interrupted()) {
                stillInterrupted.countDown();
            }
        });
        giver.start();
        while (made.get() <= THREADS) {
            Thread.onSpinWait();
        }
        free.countDown();
        assertTrue(done.await(20, TimeUnit.SECONDS), "it is done");
        assertTrue(stillInterrupted.await(20, TimeUnit.SECONDS), "the interrupt is not lost");
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
