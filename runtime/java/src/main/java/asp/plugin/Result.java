package asp.plugin;

import java.util.List;
import java.util.Map;

/**
 * A result with more to say than its output.
 *
 * @param output anything Jackson turns into JSON; null for none
 * @param content MCP content blocks; empty: made from `output`
 * @param isError the tool ran and failed in a way the model should read
 */
public record Result(Object output, List<Map<String, Object>> content, boolean isError) {
    public Result {
        content = content == null ? List.of() : List.copyOf(content);
    }

    public static Result of(Object output) {
        return new Result(output, List.of(), false);
    }

    /** A failure the model should read, as text. */
    public static Result error(String text) {
        return new Result(null, List.of(Map.of("type", "text", "text", text)), true);
    }

    /** The same result with these content blocks. */
    public Result with(List<Map<String, Object>> blocks) {
        return new Result(output, blocks, isError);
    }
}
