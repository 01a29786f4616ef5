package asp.plugin;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.NoSuchElementException;

/**
 * A JSON object that was checked against its schema. Read it by name, or map it to a record with {@link #as}. A getter
 * for a name that is not there throws {@link NoSuchElementException}: use the schema's `required` or a fallback.
 */
public final class Arguments {
    private final ObjectNode object;

    private Arguments(ObjectNode object) {
        this.object = object;
    }

    /** Wraps an object; for the worker, and for tests of a plugin. */
    public static Arguments of(Map<String, ?> values) {
        return of(Json.tree(values));
    }

    /** Wraps a tree; anything but an object counts as an empty one. */
    public static Arguments of(JsonNode node) {
        return new Arguments(node instanceof ObjectNode object ? object : JsonNodeFactory.instance.objectNode());
    }

    /** Maps the whole object to a record or another class. */
    public <T> T as(Class<T> type) {
        return Json.convert(object, type);
    }

    /** Says whether there is a value that is not null. */
    public boolean has(String name) {
        return object.hasNonNull(name);
    }

    /** Maps one value, such as an array: {@code get("numbers", double[].class)}. */
    public <T> T get(String name, Class<T> type) {
        return Json.convert(required(name), type);
    }

    public String string(String name) {
        return required(name).asText();
    }

    public String string(String name, String fallback) {
        return has(name) ? string(name) : fallback;
    }

    /** Returns a whole number; {@code 1.0} is one. Throws {@link ArithmeticException} for a fraction and beyond a long. */
    public long integer(String name) {
        JsonNode value = required(name);
        if (!value.isNumber()) {
            return value.longValue();
        }
        try {
            return value.decimalValue().longValueExact();
        } catch (ArithmeticException | NumberFormatException fault) {
            throw new ArithmeticException("the argument `" + name + "` is no whole number that a long holds: " + value);
        }
    }

    public long integer(String name, long fallback) {
        return has(name) ? integer(name) : fallback;
    }

    public double number(String name) {
        return required(name).doubleValue();
    }

    public double number(String name, double fallback) {
        return has(name) ? number(name) : fallback;
    }

    public boolean flag(String name) {
        return has(name) && object.get(name).booleanValue();
    }

    public Arguments object(String name) {
        return of(required(name));
    }

    /** Returns the tree itself. */
    public ObjectNode node() {
        return object;
    }

    private JsonNode required(String name) {
        JsonNode value = object.get(name);
        if (value == null || value.isNull()) {
            throw new NoSuchElementException("there is no argument `" + name + "`");
        }
        return value;
    }

    @Override
    public String toString() {
        return object.toString();
    }
}
