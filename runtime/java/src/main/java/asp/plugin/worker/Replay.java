package asp.plugin.worker;

import asp.plugin.v1.DeliverDelegationResult;
import asp.plugin.v1.DeliverUserInput;
import asp.plugin.v1.Resume;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;

/**
 * The answers a lost execution had been given, so that nobody is asked twice. A user's answers are matched by the
 * question's id, in their order; a delegation's by an id made of the delegate, its input and a count, which another
 * execution that asks the same makes again.
 */
final class Replay {
    private final Map<String, Deque<DeliverUserInput>> inputs = new HashMap<>();
    private final Map<String, DeliverDelegationResult> results = new HashMap<>();
    private final Map<String, Integer> counts = new HashMap<>();

    /** @param resume null for a first execution */
    Replay(Resume resume) {
        if (resume == null) {
            return;
        }
        for (DeliverUserInput input : resume.getUserInputsList()) {
            if (input.getError().isEmpty()) {
                inputs.computeIfAbsent(input.getElicitationId(), id -> new ArrayDeque<>()).add(input);
            }
        }
        for (DeliverDelegationResult result : resume.getDelegationResultsList()) {
            if (result.getError().isEmpty()) {
                results.put(result.getCorrelationId(), result);
            }
        }
    }

    /** Takes the next answer to `id`, or null when the user has to be asked. */
    synchronized DeliverUserInput input(String id) {
        Deque<DeliverUserInput> given = inputs.get(id);
        return given == null ? null : given.poll();
    }

    /** Takes the result with this id, or null when the delegate has to be asked. */
    synchronized DeliverDelegationResult result(String correlation) {
        return results.remove(correlation);
    }

    synchronized String correlation(String id, byte[] input) {
        byte[] prefix = (id + '\0').getBytes(StandardCharsets.UTF_8);
        byte[] all = new byte[prefix.length + input.length];
        System.arraycopy(prefix, 0, all, 0, prefix.length);
        System.arraycopy(input, 0, all, prefix.length, input.length);
        String name = UUID.nameUUIDFromBytes(all).toString();
        return name + "-" + counts.merge(name, 1, Integer::sum);
    }
}
