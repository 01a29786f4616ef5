package asp.plugin.worker.types;

import asp.plugin.Json;
import asp.plugin.Property;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

/** A type with what a {@link Property} says of it. The bounds are the schema's to hold: it is checked before. */
record Annotated(Shape type, Property about, JsonNode defaultValue) implements Shape {
    /** Whole numbers up to here are written without a point. */
    private static final double MAX_WHOLE = 1L << 53;

    @Override
    public ObjectNode schema() {
        ObjectNode schema = type.schema();
        if (!about.description().isEmpty()) {
            schema.put("description", about.description());
        }
        String unit = switch (schema.path("type").asText()) {
            case "string" -> "Length";
            case "array" -> "Items";
            case "object" -> "Properties";
            default -> "imum";
        };
        bound(schema, "min" + unit, about.min());
        bound(schema, "max" + unit, about.max());
        if (!about.pattern().isEmpty()) {
            schema.put("pattern", about.pattern());
        }
        if (defaultValue != null) {
            schema.set("default", defaultValue);
        }
        return schema;
    }

    private static void bound(ObjectNode schema, String keyword, double value) {
        if (Double.isInfinite(value)) {
            return;
        }
        if (Math.rint(value) == value && Math.abs(value) <= MAX_WHOLE) {
            schema.set(keyword, Json.tree((long) value));
        } else {
            schema.set(keyword, Json.tree(value));
        }
    }

    @Override
    public Object read(JsonNode json) throws Misfit {
        return type.read(json);
    }

    @Override
    public JsonNode write(Object value) throws Misfit {
        return type.write(value);
    }
}
