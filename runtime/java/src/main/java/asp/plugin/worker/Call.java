package asp.plugin.worker;

import asp.plugin.CancelledException;
import asp.plugin.PluginException;
import asp.plugin.v1.CancelRequest;
import asp.plugin.v1.CancelResponse;
import asp.plugin.v1.CheckpointAck;
import asp.plugin.v1.DeliverDelegationResult;
import asp.plugin.v1.DeliverStorageAnswer;
import asp.plugin.v1.DeliverUserInput;
import asp.plugin.v1.ServerMessage;
import asp.plugin.v1.StorageRequested;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;

/**
 * One call while it runs: its thread, whether it must stop, and what it waits for. Sends nothing after its end, and its
 * end once. Interrupts its thread only while the handler is on it.
 */
final class Call {
    /**
     * The call whose handler the current thread runs. Not inherited: a pool's thread, started in one call, works for
     * others too, and one caller's log is not another's to read.
     */
    private static final ThreadLocal<Call> CURRENT = new ThreadLocal<>();

    /** Why a call must stop, from the mildest on; a call is never set back to a milder one. */
    private enum Stop {
        NONE,
        PREEMPT,
        SOFT,
        HARD,
        DEADLINE
    }

    private final Request request;
    private final Outbox<ServerMessage> outbox;
    private final Questions<DeliverUserInput> inputs = new Questions<>(Limits.OPEN_QUESTIONS);
    private final Questions<DeliverDelegationResult> delegations = new Questions<>(Limits.OPEN_QUESTIONS);
    private final Questions<CheckpointAck> checkpoints = new Questions<>(1);
    private final Questions<DeliverStorageAnswer> stored = new Questions<>(Limits.STORAGE_REQUESTS);
    /** A place is taken until the answer, even if nobody waits for that: the platform counts so too. */
    private final Semaphore storagePlaces = new Semaphore(Limits.STORAGE_REQUESTS);
    private final AtomicLong storageRequests = new AtomicLong();

    // Guarded by this.
    private Thread thread;
    private Stop stop = Stop.NONE;
    private String reason = "";
    private boolean preempted;
    /** Whether a checkpoint of this call is stored, by this worker or a former one. */
    private boolean saved;
    private boolean ended;

    /** @param outbox where its events go; null for a method that has none */
    Call(Request request, Outbox<ServerMessage> outbox) {
        this.request = request;
        this.outbox = outbox;
        this.saved = request.resume() != null && !request.resume().getCapsule().isEmpty();
    }

    /** Returns the call whose handler the current thread runs, or null. */
    static Call current() {
        return CURRENT.get();
    }

    Request request() {
        return request;
    }

    boolean hasEvents() {
        return outbox != null;
    }

    Questions<DeliverUserInput> inputs() {
        return inputs;
    }

    Questions<DeliverDelegationResult> delegations() {
        return delegations;
    }

    Questions<CheckpointAck> checkpoints() {
        return checkpoints;
    }

    /** Runs the handler on the current thread; every way it can fail becomes a {@link Failure}. */
    <T> T execute(Callable<T> handler) throws Failure {
        try {
            enter();
            T value = handler.call();
            stopped();
            return value;
        } catch (Throwable thrown) {
            throw failure(thrown);
        } finally {
            leave();
        }
    }

    /** Sends an event of the handler, after waiting for room. */
    void send(ServerMessage event) {
        goOn();
        try {
            outbox.awaitReady();
        } catch (InterruptedException interrupted) {
            throw new CancelledException("the call's thread was interrupted");
        }
        if (!push(event)) {
            throw new IllegalStateException("the call has ended");
        }
    }

    /** Sends a request for the plugin's storage, after waiting for a place, and waits for its answer. */
    DeliverStorageAnswer askStorage(StorageRequested.Builder asked) {
        try {
            storagePlaces.acquire();
        } catch (InterruptedException interrupted) {
            throw new CancelledException("the call's thread was interrupted");
        }
        String key = Long.toString(storageRequests.incrementAndGet());
        CompletableFuture<DeliverStorageAnswer> answer;
        try {
            answer = stored.open(key);
            send(ServerMessage.newBuilder()
                    .setStorageRequested(asked.setCorrelationId(key))
                    .build());
        } catch (RuntimeException unsent) {
            storagePlaces.release();
            throw unsent;
        }
        return stored.await(key, answer, 0);
    }

    void answerStorage(DeliverStorageAnswer answer) {
        stored.answer(answer.getCorrelationId(), answer);
        storagePlaces.release();
    }

    /** Sends a line of the log, also while the call is being cancelled; false when the call has ended. */
    boolean log(ServerMessage line) {
        try {
            outbox.awaitReady();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
        return push(line);
    }

    /** Sends without waiting and without regard to cancellation; false when the call has ended. */
    private synchronized boolean push(ServerMessage event) {
        if (!ended) {
            outbox.push(event);
        }
        return !ended;
    }

    /** Sends the end; only the first one counts. */
    synchronized void end(ServerMessage end) {
        if (!ended) {
            outbox.push(end);
            ended = true;
        }
    }

    /** Cancels as the platform wants it, and says so; nothing when the call has ended. */
    synchronized void cancel(CancelRequest cancel) {
        if (ended) {
            return;
        }
        outbox.push(ServerMessage.newBuilder()
                .setCancel(CancelResponse.newBuilder().setRequestId(request.requestId()).setAccepted(true))
                .build());
        Stop wanted = switch (cancel.getMode()) {
            case SOFT -> Stop.SOFT;
            case PREEMPT -> Stop.PREEMPT;
            default -> Stop.HARD;
        };
        if (wanted == Stop.HARD && cancel.getReason().equals("deadline")) {
            // The runtime's clock may be the first to say so.
            expire();
            return;
        }
        stop(wanted, cancel.getReason().isEmpty() ? "the call was cancelled" : cancel.getReason());
    }

    /** Stops the handler at once. */
    void abort(String why) {
        stop(Stop.HARD, why);
    }

    /** Stops the handler because its time is over. */
    void expire() {
        stop(Stop.DEADLINE, "the call's time is over");
    }

    /** Whether the call is to end; not so for one that is to yield, which goes on elsewhere. */
    synchronized boolean cancelled() {
        return stop.compareTo(Stop.SOFT) >= 0;
    }

    synchronized boolean preempted() {
        return preempted;
    }

    /** Throws when the handler must not go on: after a hard cancel and after the deadline. */
    synchronized void goOn() {
        if (stop.compareTo(Stop.HARD) >= 0) {
            throw new CancelledException(reason);
        }
    }

    /** Notes that a checkpoint is stored; throws when the platform waits for just that, or for the step's end. */
    synchronized void saved() {
        saved = true;
        if (stop == Stop.PREEMPT || stop == Stop.SOFT) {
            closeQuestions();
            throw new CancelledException(reason);
        }
    }

    private synchronized void stop(Stop wanted, String why) {
        if (ended || wanted.compareTo(stop) <= 0) {
            return;
        }
        stop = wanted;
        reason = why;
        preempted |= wanted == Stop.PREEMPT;
        // A preempted call that has nothing to go on from would be lost: it may ask until it has saved.
        if (wanted != Stop.PREEMPT || saved) {
            closeQuestions();
        }
        if (wanted.compareTo(Stop.HARD) >= 0) {
            checkpoints.close(why);
            stored.close(why);
            // Whoever waits for a place finds that it is over.
            storagePlaces.release(Limits.CALLS);
            if (thread != null) {
                if (wanted == Stop.DEADLINE) {
                    reportPlace(thread.getStackTrace());
                }
                thread.interrupt();
            }
        }
    }

    /** Prints for the author where a handler is whose time is over. */
    private static void reportPlace(StackTraceElement[] stack) {
        String place = Unexpected.place(stack);
        if (!place.isEmpty()) {
            System.err.println("the call's time is over, and its handler is at " + place);
        }
    }

    private void closeQuestions() {
        inputs.close(reason);
        delegations.close(reason);
    }

    private synchronized void enter() {
        goOn();
        thread = Thread.currentThread();
        CURRENT.set(this);
    }

    private synchronized void leave() {
        thread = null;
        CURRENT.remove();
        // The thread goes back to the pool: an interrupt of this call must not reach the next one.
        Thread.interrupted();
    }

    /**
     * A cancelled call ends as cancelled even when its handler returned. A preempted one may as well be finished, and
     * after a soft cancel a result is what the step in hand came to.
     */
    private synchronized void stopped() throws Failure {
        if (stop.compareTo(Stop.HARD) >= 0) {
            throw stopFailure();
        }
    }

    private synchronized Failure failure(Throwable thrown) {
        try {
            return read(thrown);
        } catch (Throwable unreadable) {
            // Its own methods throw, such as getMessage: the call ends all the same.
            String name = thrown.getClass().getName();
            System.err.println("call " + request.requestId() + " failed by " + name + ", which cannot be read");
            return new Failure("INTERNAL", Unexpected.FOR_CALLERS);
        }
    }

    private Failure read(Throwable thrown) {
        if (thrown instanceof Failure failure) {
            return failure;
        }
        boolean gaveUp = thrown instanceof CancelledException;
        if (stop != Stop.NONE && (stop != Stop.PREEMPT || gaveUp)) {
            return stopFailure();
        }
        if (gaveUp) {
            return new Failure("CANCELLED", thrown.getMessage());
        }
        if (thrown instanceof PluginException own) {
            return new Failure(own.code(), own.getMessage(), own.details(), false);
        }
        Logs.unexpected(request.requestId(), thrown);
        return new Failure("INTERNAL", Unexpected.text(thrown));
    }

    private Failure stopFailure() {
        if (stop == Stop.DEADLINE) {
            return new Failure("DEADLINE", reason);
        }
        return new Failure("CANCELLED", reason, null, stop == Stop.PREEMPT && saved);
    }
}
