package asp.plugin.worker;

import asp.plugin.CancelledException;
import asp.plugin.PluginException;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * The open questions of one call: what was asked and is not answered. An answer to what is not open is dropped. After
 * {@link #close} every wait throws {@link CancelledException}, also one that starts later.
 */
final class Questions<A> {
    private final int bound;
    private final Map<String, CompletableFuture<A>> open = new HashMap<>();
    private String closed;

    Questions(int bound) {
        this.bound = bound;
    }

    /** Opens `key`, before it is asked: the answer may come at once. */
    synchronized CompletableFuture<A> open(String key) {
        if (closed != null) {
            throw new CancelledException(closed);
        }
        if (open.containsKey(key)) {
            throw new PluginException("ALREADY_ASKED", "`" + key + "` is asked already and not answered");
        }
        if (open.size() >= bound) {
            throw new PluginException("OVERLOADED", "a call has at most " + bound + " open questions");
        }
        CompletableFuture<A> answer = new CompletableFuture<>();
        open.put(key, answer);
        return answer;
    }

    /** Waits for the answer; `null` after `millis`. Zero means without an end of its own. */
    A await(String key, CompletableFuture<A> answer, long millis) {
        try {
            return millis > 0 ? answer.get(millis, TimeUnit.MILLISECONDS) : answer.get();
        } catch (TimeoutException late) {
            return null;
        } catch (InterruptedException interrupted) {
            throw new CancelledException("the call's thread was interrupted");
        } catch (ExecutionException ended) {
            throw new CancelledException(ended.getCause().getMessage());
        } finally {
            forget(key, answer);
        }
    }

    /** Answers a question, whose place is free at once: who waited for it may not have run yet. */
    synchronized void answer(String key, A answer) {
        CompletableFuture<A> waiting = open.remove(key);
        if (waiting != null) {
            waiting.complete(answer);
        }
    }

    /** Ends all waits. */
    synchronized void close(String reason) {
        if (closed == null) {
            closed = reason;
            open.values().forEach(answer -> answer.completeExceptionally(new CancelledException(reason)));
        }
    }

    private synchronized void forget(String key, CompletableFuture<A> answer) {
        open.remove(key, answer);
    }
}
