package asp.plugin.worker;

import asp.plugin.Json;
import asp.plugin.v1.DeliverDelegationResult;
import asp.plugin.v1.DeliverUserInput;
import asp.plugin.v1.Resume;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;

/**
 * What a lost execution had saved and been answered, so that nobody is asked twice. A capsule is the author's state and
 * how many answers of each question that state knows; the answers after these are given again, in their order. A
 * delegation is known by the delegate, its input and a count, which another execution that asks the same makes again.
 */
final class Replay {
    private static final String STATE = "state";
    private static final String ANSWERED = "answered";

    private final JsonNode state;
    private final Map<String, List<DeliverUserInput>> inputs = new HashMap<>();
    private final Map<String, DeliverDelegationResult> results = new HashMap<>();
    private final Map<String, Integer> answered = new TreeMap<>();
    private final Map<String, Integer> delegated = new HashMap<>();

    /** @param resume null for a first execution */
    Replay(Resume resume) {
        if (resume == null) {
            state = null;
            return;
        }
        JsonNode capsule = capsule(resume);
        state = capsule.get(STATE);
        capsule.path(ANSWERED).properties().forEach(had -> answered.put(had.getKey(), had.getValue().intValue()));
        // What failed is asked again: the next answer may be another.
        for (DeliverUserInput input : resume.getUserInputsList()) {
            if (input.getError().isEmpty()) {
                inputs.computeIfAbsent(input.getElicitationId(), id -> new ArrayList<>()).add(input);
            }
        }
        for (DeliverDelegationResult result : resume.getDelegationResultsList()) {
            if (result.getError().isEmpty()) {
                results.put(result.getCorrelationId(), result);
            }
        }
    }

    /** Returns the author's state, or null without a checkpoint. */
    JsonNode state() {
        return state;
    }

    /** Returns the next answer to `id`, or null when the user has to be asked. */
    synchronized DeliverUserInput input(String id) {
        List<DeliverUserInput> given = inputs.getOrDefault(id, List.of());
        int had = answered.getOrDefault(id, 0);
        return had < given.size() ? given.get(had) : null;
    }

    /** Notes that the handler has an answer to `id`, given again or by the user. */
    synchronized void had(String id) {
        answered.merge(id, 1, Integer::sum);
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
        return name + "-" + delegated.merge(name, 1, Integer::sum);
    }

    /** Makes the capsule of a checkpoint. */
    synchronized byte[] capsule(Object saved) {
        ObjectNode capsule = Json.mapper().createObjectNode();
        capsule.set(STATE, Json.tree(saved));
        capsule.set(ANSWERED, Json.tree(answered));
        return Json.bytes(capsule);
    }

    private static JsonNode capsule(Resume resume) {
        if (resume.getCapsule().isEmpty()) {
            return Json.mapper().createObjectNode();
        }
        try {
            return Json.parse(resume.getCapsule().toByteArray());
        } catch (IOException fault) {
            throw new IllegalStateException("the saved state is no JSON", fault);
        }
    }
}
