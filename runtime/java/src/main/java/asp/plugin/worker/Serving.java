package asp.plugin.worker;

import asp.plugin.Arguments;
import asp.plugin.Json;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.ByteString;
import java.io.IOException;
import java.util.List;

/** One primitive as the services run it: its code and its compiled schemas. */
record Serving(Plugin plugin, Schema input, Schema output) {
    static Serving of(Plugin plugin) throws Exit.Refusal {
        Manifest manifest = plugin.manifest();
        return new Serving(plugin, Schema.of(manifest.inputSchema()), Schema.of(manifest.outputSchema()));
    }

    Manifest manifest() {
        return plugin.manifest();
    }

    boolean resumable() {
        return plugin.tool() != null && plugin.tool().resumable();
    }

    /** Parses and checks the arguments; runs on the call's thread. */
    Arguments arguments(Request request) throws Failure {
        JsonNode json = object(request.arguments());
        List<Schema.Fault> faults = input.check(json);
        if (!faults.isEmpty()) {
            String message = Schema.sentence("the arguments do not fit", faults);
            throw new Failure("INVALID_ARGUMENT", message, Schema.place(faults), false);
        }
        return Arguments.of(json);
    }

    /** Parses the arguments and leaves them unchecked. */
    static ObjectNode object(ByteString text) throws Failure {
        if (text.isEmpty()) {
            return Json.mapper().createObjectNode();
        }
        try {
            JsonNode json = Json.parse(text.toByteArray());
            if (json instanceof ObjectNode object) {
                return object;
            }
        } catch (IOException fault) {
            throw new Failure("INVALID_ARGUMENT", "the arguments are no JSON");
        }
        throw new Failure("INVALID_ARGUMENT", "the arguments are no object");
    }
}
