package asp.plugin.worker.types;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

/** How the values of one type stand in JSON: their schema, the way in and the way out. */
interface Shape {
    /** Returns a schema of the asker's own, who may add to it. */
    ObjectNode schema();

    /** Makes a value of the type. */
    Object read(JsonNode json) throws Misfit;

    /** Makes JSON of a value, which may be null where the author was careless. */
    JsonNode write(Object value) throws Misfit;

    /** The usual word for a value of the wrong kind. */
    static Misfit wanted(String what, JsonNode json) {
        return new Misfit("must be " + what + ", not " + json.getNodeType().name().toLowerCase(java.util.Locale.ROOT));
    }

    static <T> T there(T value) throws Misfit {
        if (value == null) {
            throw new Misfit("is null");
        }
        return value;
    }
}
