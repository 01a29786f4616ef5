package asp.plugin;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.StreamReadFeature;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.DoubleNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ValueNode;
import java.io.IOException;
import java.math.BigDecimal;

/**
 * The one JSON mapper of the worker: strict on input (no duplicate keys, nothing after the value), so that what was
 * checked is what is read. Unknown properties are no error: the input schema judges them.
 */
public final class Json {
    private static final JsonMapper MAPPER = JsonMapper.builder()
            .enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION)
            .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
            .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
            .build();

    /** Reads trees whose numbers know what was written, for {@link JsonNode#decimalValue}. */
    private static final ObjectReader READER =
            MAPPER.reader().with(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS).with(new ExactNumbers());

    private Json() {}

    /** Returns the mapper, to be used and not changed. */
    public static JsonMapper mapper() {
        return MAPPER;
    }

    /** Parses one JSON value. */
    public static JsonNode parse(byte[] json) throws IOException {
        return READER.readTree(json);
    }

    /** Turns any value into a tree. */
    public static JsonNode tree(Object value) {
        return value instanceof JsonNode node ? node : MAPPER.valueToTree(value);
    }

    /** Turns any value into JSON text in UTF-8. */
    public static byte[] bytes(Object value) {
        try {
            return MAPPER.writeValueAsBytes(value);
        } catch (JsonProcessingException fault) {
            throw new IllegalArgumentException("this value cannot be written as JSON", fault);
        }
    }

    /** Maps a tree to a class. */
    public static <T> T convert(JsonNode node, Class<T> type) {
        try {
            // From the tree itself: a copy of it would have doubles for its numbers.
            return MAPPER.treeToValue(node, type);
        } catch (JsonProcessingException fault) {
            throw new IllegalArgumentException(fault.getMessage(), fault);
        }
    }

    /** A double, as a fraction always was, which a BigDecimal is made of without rounding. */
    private static final class ExactNumber extends DoubleNode {
        private static final long serialVersionUID = 1L;

        private final BigDecimal exact;

        ExactNumber(BigDecimal exact) {
            super(exact.doubleValue());
            this.exact = exact;
        }

        @Override
        public BigDecimal decimalValue() {
            return exact;
        }
    }

    private static final class ExactNumbers extends JsonNodeFactory {
        private static final long serialVersionUID = 1L;

        /** More than the digits of a number that the parser takes. Beyond it the digits of an exponent alone fill memory. */
        private static final int MAX_SCALE = 1_100;

        ExactNumbers() {
            super(true);
        }

        @Override
        public ValueNode numberNode(BigDecimal value) {
            if (value == null) {
                return nullNode();
            }
            boolean writable = value.scale() >= -MAX_SCALE && value.scale() <= MAX_SCALE;
            return writable ? new ExactNumber(value) : numberNode(value.doubleValue());
        }
    }
}
