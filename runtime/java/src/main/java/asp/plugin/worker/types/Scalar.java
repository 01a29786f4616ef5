package asp.plugin.worker.types;

import asp.plugin.Json;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.URI;
import java.time.DateTimeException;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.OffsetDateTime;
import java.util.Map;
import java.util.UUID;

/** Texts, numbers, booleans, and what stands as a text of a format. Nothing is taken for another kind. */
record Scalar(Class<?> type, String word, String format) implements Shape {
    /** Above it a double no longer tells whole numbers from their neighbours. */
    private static final double MAX_WHOLE = 1L << 53;

    private static final Map<Class<?>, Scalar> KNOWN = Map.ofEntries(
            entry(String.class, "string", null),
            entry(boolean.class, "boolean", null),
            entry(byte.class, "integer", null),
            entry(short.class, "integer", null),
            entry(int.class, "integer", null),
            entry(long.class, "integer", null),
            entry(BigInteger.class, "integer", null),
            entry(float.class, "number", null),
            entry(double.class, "number", null),
            entry(BigDecimal.class, "number", null),
            entry(UUID.class, "string", "uuid"),
            entry(URI.class, "string", "uri"),
            entry(LocalDate.class, "string", "date"),
            entry(Instant.class, "string", "date-time"),
            entry(OffsetDateTime.class, "string", "date-time"),
            entry(Duration.class, "string", "duration"));

    private static final Map<Class<?>, Class<?>> BOXES = Map.of(
            Boolean.class, boolean.class,
            Byte.class, byte.class,
            Short.class, short.class,
            Integer.class, int.class,
            Long.class, long.class,
            Float.class, float.class,
            Double.class, double.class);

    private static Map.Entry<Class<?>, Scalar> entry(Class<?> type, String word, String format) {
        return Map.entry(type, new Scalar(type, word, format));
    }

    /** Returns the shape of a type or of the box around it, or null for others. */
    static Scalar of(Class<?> type) {
        return KNOWN.get(BOXES.getOrDefault(type, type));
    }

    static boolean isBox(Class<?> type) {
        return BOXES.containsKey(type);
    }

    @Override
    public ObjectNode schema() {
        ObjectNode schema = Json.mapper().createObjectNode().put("type", word);
        return format == null ? schema : schema.put("format", format);
    }

    @Override
    public Object read(JsonNode json) throws Misfit {
        return switch (word) {
            case "boolean" -> {
                if (!json.isBoolean()) {
                    throw Shape.wanted("a boolean", json);
                }
                yield json.booleanValue();
            }
            case "integer" -> integer(json);
            case "number" -> number(json);
            default -> {
                if (!json.isTextual()) {
                    throw Shape.wanted("a string", json);
                }
                yield format == null ? json.textValue() : parsed(json.textValue());
            }
        };
    }

    @Override
    public JsonNode write(Object value) throws Misfit {
        Shape.there(value);
        if (value instanceof Double || value instanceof Float) {
            double number = ((Number) value).doubleValue();
            if (Double.isNaN(number) || Double.isInfinite(number)) {
                throw new Misfit("is " + number + ", which JSON cannot say");
            }
        }
        return word.equals("string") ? Json.mapper().getNodeFactory().textNode(value.toString()) : Json.tree(value);
    }

    private Object integer(JsonNode json) throws Misfit {
        if (!json.isNumber()) {
            throw Shape.wanted("an integer", json);
        }
        // 1.0 is an integer in JSON Schema. A large exponent is not written out: that takes memory without end.
        double value = json.doubleValue();
        boolean small = Math.rint(value) == value && Math.abs(value) <= MAX_WHOLE;
        if (!json.isIntegralNumber() && !small) {
            throw new Misfit("must be an integer");
        }
        BigInteger whole = json.isIntegralNumber() ? json.bigIntegerValue() : BigInteger.valueOf((long) value);
        if (type == BigInteger.class) {
            return whole;
        }
        try {
            return switch (type.getName()) {
                case "byte" -> (Object) whole.byteValueExact();
                case "short" -> whole.shortValueExact();
                case "int" -> whole.intValueExact();
                default -> whole.longValueExact();
            };
        } catch (ArithmeticException large) {
            throw new Misfit("is beyond what " + type.getName() + " holds");
        }
    }

    private Object number(JsonNode json) throws Misfit {
        if (!json.isNumber()) {
            throw Shape.wanted("a number", json);
        }
        if (type == BigDecimal.class) {
            try {
                return json.decimalValue();
            } catch (NumberFormatException infinite) {
                throw new Misfit("has too large an exponent");
            }
        }
        double value = type == float.class ? json.floatValue() : json.doubleValue();
        if (Double.isInfinite(value)) {
            throw new Misfit("is beyond what " + type.getName() + " holds");
        }
        return type == float.class ? (Object) (float) value : (Object) value;
    }

    private Object parsed(String text) throws Misfit {
        try {
            return switch (type.getSimpleName()) {
                case "UUID" -> UUID.fromString(text);
                case "URI" -> URI.create(text);
                case "LocalDate" -> LocalDate.parse(text);
                case "Instant" -> OffsetDateTime.parse(text).toInstant();
                case "OffsetDateTime" -> OffsetDateTime.parse(text);
                default -> Duration.parse(text);
            };
        } catch (DateTimeException | IllegalArgumentException fault) {
            throw new Misfit("must be a " + format);
        }
    }
}
