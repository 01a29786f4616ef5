package asp.plugin.worker.types;

import asp.plugin.Json;
import asp.plugin.PluginException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;

/**
 * A record. It is made by its constructor, whose IllegalArgumentException is the author's own check and told to the
 * caller. Nested records stand in `$defs`, so that one which holds itself has an end.
 */
final class Fields implements Shape {
    /** What is done where a component is left out. */
    enum Absence {
        REFUSED,
        NULL,
        EMPTY
    }

    /**
     * One component.
     *
     * @param value what is taken where it is left out, null for none
     */
    record Field(Shape shape, Method accessor, Absence absence, JsonNode value) {
        boolean required() {
            return absence == Absence.REFUSED && value == null;
        }
    }

    private final String reference;
    private final Constructor<?> constructor;
    private final Map<String, Field> fields = new LinkedHashMap<>();

    /** @param reference where the schema stands, such as `#/$defs/Entry`; `#` for the root */
    Fields(String reference, Constructor<?> constructor) {
        this.reference = reference;
        this.constructor = constructor;
    }

    /** The components come one by one, because one of them may hold this record again. */
    void add(String name, Field field) {
        fields.put(name, field);
    }

    @Override
    public ObjectNode schema() {
        return Json.mapper().createObjectNode().put("$ref", reference);
    }

    /** The schema that is referred to. */
    ObjectNode definition() {
        ObjectNode schema = Json.mapper().createObjectNode().put("type", "object");
        ObjectNode properties = schema.putObject("properties");
        fields.forEach((name, field) -> properties.set(name, field.shape().schema()));
        fields.forEach((name, field) -> {
            if (field.required()) {
                schema.withArray("required").add(name);
            }
        });
        return schema.put("additionalProperties", false);
    }

    @Override
    public Object read(JsonNode json) throws Misfit {
        if (!json.isObject()) {
            throw Shape.wanted("an object", json);
        }
        for (Map.Entry<String, JsonNode> entry : json.properties()) {
            if (!fields.containsKey(entry.getKey())) {
                throw new Misfit("is unknown").within(entry.getKey());
            }
        }
        ArrayList<Object> values = new ArrayList<>(fields.size());
        for (Map.Entry<String, Field> entry : fields.entrySet()) {
            try {
                values.add(read(entry.getValue(), json.get(entry.getKey())));
            } catch (Misfit misfit) {
                throw misfit.within(entry.getKey());
            }
        }
        return made(values.toArray());
    }

    private static Object read(Field field, JsonNode json) throws Misfit {
        JsonNode given = json == null ? field.value() : json;
        if (given == null) {
            return switch (field.absence()) {
                case REFUSED -> throw new Misfit("is missing");
                case NULL -> null;
                case EMPTY -> Optional.empty();
            };
        }
        Object value = field.shape().read(given);
        return field.absence() == Absence.EMPTY ? Optional.of(value) : value;
    }

    private Object made(Object[] values) throws Misfit {
        try {
            return constructor.newInstance(values);
        } catch (InvocationTargetException thrown) {
            if (thrown.getCause() instanceof IllegalArgumentException own) {
                throw new Misfit(String.valueOf(own.getMessage()));
            }
            if (thrown.getCause() instanceof PluginException own) {
                throw own;
            }
            throw new IllegalStateException("the constructor of a record failed", thrown.getCause());
        } catch (ReflectiveOperationException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    @Override
    public JsonNode write(Object value) throws Misfit {
        Shape.there(value);
        ObjectNode made = Json.mapper().createObjectNode();
        for (Map.Entry<String, Field> entry : fields.entrySet()) {
            Field field = entry.getValue();
            Object held = held(field, value);
            if (held == null && field.absence() != Absence.REFUSED) {
                continue;
            }
            try {
                made.set(entry.getKey(), field.shape().write(held));
            } catch (Misfit misfit) {
                throw misfit.within(entry.getKey());
            }
        }
        return made;
    }

    private static Object held(Field field, Object value) {
        try {
            Object held = field.accessor().invoke(value);
            return held instanceof Optional<?> optional ? optional.orElse(null) : held;
        } catch (ReflectiveOperationException fault) {
            throw new IllegalStateException("a record's accessor failed", fault.getCause());
        }
    }
}
