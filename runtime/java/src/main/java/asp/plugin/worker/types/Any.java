package asp.plugin.worker.types;

import asp.plugin.Arguments;
import asp.plugin.Json;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

/** A type that says nothing of its values, or no more than that they are objects: a JsonNode, a bare map. */
record Any(Class<?> type, boolean object) implements Shape {
    @Override
    public ObjectNode schema() {
        ObjectNode schema = Json.mapper().createObjectNode();
        return object ? schema.put("type", "object") : schema;
    }

    @Override
    public Object read(JsonNode json) throws Misfit {
        if (object && !json.isObject()) {
            throw Shape.wanted("an object", json);
        }
        return type == Arguments.class ? Arguments.of(json) : Json.convert(json, type);
    }

    @Override
    public JsonNode write(Object value) throws Misfit {
        try {
            return Json.tree(value);
        } catch (IllegalArgumentException | StackOverflowError unwritable) {
            throw new Misfit("cannot be written as JSON");
        }
    }
}
