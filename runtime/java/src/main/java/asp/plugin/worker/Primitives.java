package asp.plugin.worker;

import asp.plugin.v1.InitResponse;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The primitives that a worker serves, by id, and the threads that all of them share. */
final class Primitives {
    private static final String SHIM = "asp-plugin-java/0.3.0";

    private final Map<String, Serving> servings = new LinkedHashMap<>();
    private final Calls calls;

    Primitives(List<Plugin> plugins, Calls calls) throws Exit.Refusal {
        for (Plugin plugin : plugins) {
            servings.put(plugin.manifest().id(), Serving.of(plugin));
        }
        this.calls = calls;
    }

    Calls calls() {
        return calls;
    }

    Collection<Serving> all() {
        return servings.values();
    }

    /** Returns the primitive of this id, or the only one whatever the id; null when the package does not serve it. */
    Serving find(String id) {
        return servings.size() == 1 ? servings.values().iterator().next() : servings.get(id);
    }

    InitResponse greeting() {
        return InitResponse.newBuilder()
                .setOk(true)
                .putCaps("shim", SHIM)
                .putCaps("checkpoint", checkpoint())
                .build();
    }

    /** Says which primitives save and resume (plugin.proto, `InitResponse.caps`). */
    private String checkpoint() {
        List<String> ids = servings.values().stream()
                .filter(Serving::resumable)
                .map(serving -> serving.manifest().id())
                .toList();
        if (ids.size() == servings.size()) {
            return "true";
        }
        return ids.isEmpty() ? "false" : "of " + String.join(" ", ids);
    }
}
