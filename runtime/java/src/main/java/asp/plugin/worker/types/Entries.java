package asp.plugin.worker.types;

import asp.plugin.Json;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/** A map from texts to values of one type. */
record Entries(Shape value) implements Shape {
    @Override
    public ObjectNode schema() {
        ObjectNode schema = Json.mapper().createObjectNode().put("type", "object");
        schema.set("additionalProperties", value.schema());
        return schema;
    }

    @Override
    public Object read(JsonNode json) throws Misfit {
        if (!json.isObject()) {
            throw Shape.wanted("an object", json);
        }
        Map<String, Object> made = new LinkedHashMap<>();
        for (Map.Entry<String, JsonNode> entry : json.properties()) {
            try {
                made.put(entry.getKey(), value.read(entry.getValue()));
            } catch (Misfit misfit) {
                throw misfit.within(entry.getKey());
            }
        }
        return Collections.unmodifiableMap(made);
    }

    @Override
    public JsonNode write(Object map) throws Misfit {
        ObjectNode made = Json.mapper().createObjectNode();
        for (Map.Entry<?, ?> entry : ((Map<?, ?>) Shape.there(map)).entrySet()) {
            try {
                made.set(entry.getKey().toString(), value.write(entry.getValue()));
            } catch (Misfit misfit) {
                throw misfit.within(entry.getKey());
            }
        }
        return made;
    }
}
