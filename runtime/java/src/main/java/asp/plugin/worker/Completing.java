package asp.plugin.worker;

import asp.plugin.Arguments;
import asp.plugin.v1.Completion;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;

/** What a prompt or resource offers for an argument that somebody types. */
final class Completing {
    /** Most values of one answer (MCP, CompleteResult). */
    private static final int MAX_OFFERED = 100;

    private Completing() {}

    /** The plugin's own method. */
    interface Offers {
        List<String> of(String argument, String value, Arguments known) throws Exception;
    }

    static Completion of(Request request, String argument, Offers offers) throws Exception {
        ObjectNode known = Serving.object(request.arguments());
        String typed = known.path(argument).asText("");
        known.remove(argument);
        List<String> offered = offers.of(argument, typed, Arguments.of(known));
        return Completion.newBuilder()
                .addAllValues(offered.subList(0, Math.min(offered.size(), MAX_OFFERED)))
                .setTotal(offered.size())
                .setHasMore(offered.size() > MAX_OFFERED)
                .build();
    }
}
