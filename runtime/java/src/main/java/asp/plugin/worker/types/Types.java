package asp.plugin.worker.types;

import asp.plugin.Arguments;
import asp.plugin.Json;
import asp.plugin.Property;
import asp.plugin.Result;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.lang.reflect.AnnotatedArrayType;
import java.lang.reflect.Constructor;
import java.lang.reflect.RecordComponent;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/**
 * Finds the shape of a type, once, when the plugin is loaded. A type is known by how it is written, so the same code
 * gives the same schema. Refuses what JSON Schema cannot say, and names the field and the way out.
 */
final class Types {
    /** Those that say nothing; a map that says of what is another thing. */
    private static final Set<Class<?>> OPEN = Set.of(Object.class, Arguments.class, Result.class, Void.class);

    private static final Set<Class<?>> LISTS = Set.of(List.class, Collection.class, Iterable.class, Set.class);

    private final String side;
    private final Map<String, Fields> records = new LinkedHashMap<>();
    private final Map<String, Fields> definitions = new LinkedHashMap<>();

    /** @param side `input` or `output`: where the whole type stands */
    Types(String side) {
        this.side = side;
    }

    /** The nested records, by the names they have in `$defs`. */
    Map<String, Fields> definitions() {
        return definitions;
    }

    /** Finds the shape of a type that stands at `where`. */
    Shape of(Bound bound, String where) throws NoSchema {
        Bound type = bound.resolved();
        if (type == null) {
            throw new NoSchema(where, bound.written().getType() + " stands for no type; name one in `implements`");
        }
        Shape shape = plain(type, where);
        Property about = type.written().getAnnotation(Property.class);
        return about == null ? shape : new Annotated(shape, about, null);
    }

    private Shape plain(Bound type, String where) throws NoSchema {
        if (type.written() instanceof AnnotatedArrayType array) {
            Bound item = new Bound(array.getAnnotatedGenericComponentType(), type.variables()).resolved();
            if (item == null || item.raw() == null || item.raw() == byte.class) {
                throw new NoSchema(where, type.written().getType().getTypeName() + " has no schema; write a List, or "
                        + "a String of Base64 for bytes");
            }
            return new Items(item.raw(), true, of(item, where + "[]"));
        }
        Class<?> raw = type.raw();
        Shape scalar = Scalar.of(raw);
        if (scalar != null) {
            return scalar;
        }
        if (raw.isEnum()) {
            return Enumerated.of(raw);
        }
        if (raw.isRecord() && !OPEN.contains(raw)) {
            return record(type, where);
        }
        return container(type, where);
    }

    private Shape container(Bound type, String where) throws NoSchema {
        Class<?> raw = type.raw();
        Bound first = type.parameter(0);
        if (OPEN.contains(raw) || JsonNode.class.isAssignableFrom(raw)) {
            return new Any(raw, raw == ObjectNode.class);
        }
        if (LISTS.contains(raw) && first != null) {
            return new Items(raw, false, of(first, where + "[]"));
        }
        if (raw == Map.class) {
            Bound value = type.parameter(1);
            if (value == null || value.resolved() != null && value.resolved().raw() == Object.class) {
                return new Any(raw, true);
            }
            if (first.resolved() == null || first.resolved().raw() != String.class) {
                throw new NoSchema(where, "the keys of a Map are Strings in JSON");
            }
            return new Entries(of(value, where + "{}"));
        }
        throw new NoSchema(where, type.written().getType().getTypeName() + wayOut(raw));
    }

    private static String wayOut(Class<?> raw) {
        return switch (raw.getName()) {
            case "java.time.LocalDateTime", "java.util.Date" ->
                " has no schema: it has no offset; write java.time.Instant or OffsetDateTime";
            case "java.util.Optional" -> " has no schema here; a record's component may be one";
            case "char", "java.lang.Character" -> " has no schema; write String";
            default -> " has no schema; write a record with its fields, or a type that TypedTool names";
        };
    }

    private Fields record(Bound type, String where) throws NoSchema {
        String known = type.spelled();
        Fields there = records.get(known);
        if (there != null) {
            return there;
        }
        Class<?> raw = type.raw();
        boolean root = where.equals(side);
        String name = free(raw.getSimpleName());
        Fields fields = new Fields(root ? "#" : "#/$defs/" + name, constructor(raw));
        records.put(known, fields);
        if (!root) {
            definitions.put(name, fields);
        }
        Map<java.lang.reflect.TypeVariable<?>, Bound> inside = type.inside();
        for (RecordComponent component : raw.getRecordComponents()) {
            String place = where + "." + component.getName();
            fields.add(component.getName(), field(component, new Bound(component.getAnnotatedType(), inside), place));
        }
        return fields;
    }

    private String free(String wanted) {
        String name = wanted;
        for (int n = 2; definitions.containsKey(name); n++) {
            name = wanted + n;
        }
        return name;
    }

    private static Constructor<?> constructor(Class<?> type) {
        Class<?>[] components = Arrays.stream(type.getRecordComponents())
                .map(RecordComponent::getType)
                .toArray(Class<?>[]::new);
        try {
            Constructor<?> constructor = type.getDeclaredConstructor(components);
            constructor.setAccessible(true);
            return constructor;
        } catch (NoSuchMethodException impossible) {
            // Every record has it (JLS 8.10.4).
            throw new IllegalStateException(impossible);
        }
    }

    private Fields.Field field(RecordComponent component, Bound written, String where) throws NoSchema {
        Bound type = written.resolved();
        boolean optional = type != null && type.raw() == Optional.class && type.parameter(0) != null;
        Shape shape = of(optional ? type.parameter(0) : written, where);
        Property about = component.getAnnotation(Property.class);
        if (about == null && type != null) {
            about = type.written().getAnnotation(Property.class);
        }
        JsonNode value = about == null ? null : value(about, shape, where);
        if (about != null) {
            Shape bare = shape instanceof Annotated said && said.about().equals(about) ? said.type() : shape;
            shape = new Annotated(bare, about, value);
        }
        Fields.Absence absence = Fields.Absence.REFUSED;
        if (optional) {
            absence = Fields.Absence.EMPTY;
        } else if (Scalar.isBox(component.getType())) {
            absence = Fields.Absence.NULL;
        }
        component.getAccessor().setAccessible(true);
        return new Fields.Field(shape, component.getAccessor(), absence, value);
    }

    /** The default as JSON, which the type must take. */
    private static JsonNode value(Property about, Shape shape, String where) throws NoSchema {
        if (about.defaultValue().length == 0) {
            return null;
        }
        String text = about.defaultValue()[0];
        try {
            boolean plain = shape.schema().path("type").asText().equals("string");
            JsonNode value = plain
                    ? Json.mapper().getNodeFactory().textNode(text)
                    : Json.parse(text.getBytes(StandardCharsets.UTF_8));
            // A nested record's components may not be known yet; its own reading tells.
            if (!(shape instanceof Fields)) {
                shape.read(value);
            }
            return value;
        } catch (IOException | Misfit fault) {
            throw new NoSchema(where, "the default `" + text + "` does not fit the type; write it as JSON");
        }
    }
}
