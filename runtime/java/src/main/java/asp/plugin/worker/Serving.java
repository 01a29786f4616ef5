package asp.plugin.worker;

import asp.plugin.Arguments;
import asp.plugin.Json;
import asp.plugin.v1.InitResponse;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.ByteString;
import java.io.IOException;
import java.util.List;

/** What all services of a worker share: the plugin, its compiled schemas, and the threads. */
record Serving(Plugin plugin, Schema input, Schema output, Calls calls) {
    private static final String SHIM = "asp-plugin-java/0.3.0";

    Manifest manifest() {
        return plugin.manifest();
    }

    InitResponse greeting() {
        boolean resumable = plugin.tool() != null && plugin.tool().resumable();
        return InitResponse.newBuilder()
                .setOk(true)
                .putCaps("shim", SHIM)
                .putCaps("checkpoint", Boolean.toString(resumable))
                .build();
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
