package asp.plugin.worker.types;

import asp.plugin.Json;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;

/** The whole type of a tool's arguments or of its result. */
public final class Root {
    private final Shape shape;
    private final ObjectNode schema;

    private Root(Shape shape, ObjectNode schema) {
        this.shape = shape;
        this.schema = schema;
    }

    /**
     * Returns what stands for the parameter at `index` of `wanted`, as `type` implements it.
     *
     * @param side `input` or `output`, for messages
     */
    public static Root of(Class<?> type, Class<?> wanted, int index, String side) throws NoSchema {
        Bound implemented = Bound.implemented(type, wanted);
        Bound parameter = implemented == null ? null : implemented.parameter(index);
        if (parameter == null) {
            throw new NoSchema(side, type.getName() + " names no types; write implements " + wanted.getSimpleName()
                    + "<Input, Output>");
        }
        Types types = new Types(side);
        Shape shape = types.of(parameter, side);
        return new Root(shape, schema(shape, types, side));
    }

    private static ObjectNode schema(Shape shape, Types types, String side) throws NoSchema {
        if (shape instanceof Any) {
            return null;
        }
        ObjectNode schema = shape instanceof Fields fields ? fields.definition() : shape.schema();
        if (!schema.path("type").asText().equals("object")) {
            throw new NoSchema(side, "is no object; write a record around it");
        }
        if (!types.definitions().isEmpty()) {
            ObjectNode definitions = schema.putObject("$defs");
            for (Map.Entry<String, Fields> entry : types.definitions().entrySet()) {
                definitions.set(entry.getKey(), entry.getValue().definition());
            }
        }
        return schema;
    }

    /** Returns the JSON Schema, null where the type says nothing. */
    public JsonNode schema() {
        return schema == null ? null : schema.deepCopy();
    }

    /** Makes a value of the type. */
    public Object read(JsonNode json) throws Misfit {
        return shape.read(json);
    }

    /** Makes JSON of a value. */
    public JsonNode write(Object value) throws Misfit {
        return shape.write(value);
    }
}
