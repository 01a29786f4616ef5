package asp.plugin;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.StreamReadFeature;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.IOException;

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

    private Json() {}

    /** Returns the mapper, to be used and not changed. */
    public static JsonMapper mapper() {
        return MAPPER;
    }

    /** Parses one JSON value. */
    public static JsonNode parse(byte[] json) throws IOException {
        return MAPPER.readTree(json);
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
        return MAPPER.convertValue(node, type);
    }
}
