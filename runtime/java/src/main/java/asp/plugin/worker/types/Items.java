package asp.plugin.worker.types;

import asp.plugin.Json;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Array;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashSet;
import java.util.List;

/**
 * A list, a set, or an array.
 *
 * @param type List, Collection or Iterable, Set, or the class of the array's items
 */
record Items(Class<?> type, boolean array, Shape item) implements Shape {
    private boolean set() {
        return !array && java.util.Set.class == type;
    }

    @Override
    public ObjectNode schema() {
        ObjectNode schema = Json.mapper().createObjectNode().put("type", "array");
        schema.set("items", item.schema());
        return set() ? schema.put("uniqueItems", true) : schema;
    }

    @Override
    public Object read(JsonNode json) throws Misfit {
        if (!json.isArray()) {
            throw Shape.wanted("an array", json);
        }
        List<Object> values = new ArrayList<>(json.size());
        for (JsonNode value : json) {
            try {
                values.add(item.read(value));
            } catch (Misfit misfit) {
                throw misfit.within(values.size());
            }
        }
        if (array) {
            Object made = Array.newInstance(type, values.size());
            for (int i = 0; i < values.size(); i++) {
                Array.set(made, i, values.get(i));
            }
            return made;
        }
        return set()
                ? Collections.unmodifiableSet(new LinkedHashSet<>(values))
                : Collections.unmodifiableList(values);
    }

    @Override
    public JsonNode write(Object value) throws Misfit {
        ArrayNode made = Json.mapper().createArrayNode();
        for (Object one : values(Shape.there(value))) {
            try {
                made.add(item.write(one));
            } catch (Misfit misfit) {
                throw misfit.within(made.size());
            }
        }
        return made;
    }

    private Collection<?> values(Object value) {
        if (!array) {
            return (Collection<?>) value;
        }
        Object[] boxed = new Object[Array.getLength(value)];
        Arrays.setAll(boxed, i -> Array.get(value, i));
        return Arrays.asList(boxed);
    }
}
