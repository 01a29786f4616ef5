package asp.plugin.worker.types;

import asp.plugin.Json;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.List;

/** An enum, by the names of its constants. */
record Enumerated(List<Enum<?>> constants) implements Shape {
    static Enumerated of(Class<?> type) {
        return new Enumerated(Arrays.stream(type.getEnumConstants())
                .<Enum<?>>map(constant -> (Enum<?>) constant)
                .toList());
    }

    @Override
    public ObjectNode schema() {
        ObjectNode schema = Json.mapper().createObjectNode().put("type", "string");
        constants.forEach(constant -> schema.withArray("enum").add(constant.name()));
        return schema;
    }

    @Override
    public Object read(JsonNode json) throws Misfit {
        for (Enum<?> constant : constants) {
            if (constant.name().equals(json.textValue())) {
                return constant;
            }
        }
        throw new Misfit("must be one of " + constants.stream().map(Enum::name).toList());
    }

    @Override
    public JsonNode write(Object value) throws Misfit {
        return Json.mapper().getNodeFactory().textNode(((Enum<?>) Shape.there(value)).name());
    }
}
